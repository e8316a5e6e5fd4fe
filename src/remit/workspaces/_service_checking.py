"""Answers `checks`: the workspace's own commands on the result, each beside how it was on the base."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from remit.contract import CheckResult, ChecksDone, ChecksRequest, Gate
from remit.workspaces._checks import (
    TIMED_OUT,
    CheckDefinition,
    CheckRun,
    compare,
    describe_broken,
    run_check,
)
from remit.workspaces._service_parts import NodeParts
from remit.workspaces._service_runs import Activity, Interrupted, NodeRun

__all__ = ["judge", "run_checks"]


async def run_checks(node: NodeParts, request: ChecksRequest) -> ChecksDone:
    """Run the checks on the result, and compare them with the base."""
    run = await node.enter(request)
    prepared = run.get_prepared()
    deadline = node.clock.monotonic() + request.remaining_ms / 1000
    results: list[CheckResult] = []
    broken: list[str] = []

    async def run_once(check: CheckDefinition) -> CheckRun:
        left_ms = int((deadline - node.clock.monotonic()) * 1000)
        return await _run_check(node, run, check, left_ms)

    for check, state in prepared.checks:
        result, done = await judge(check, state.base_exit, gate=prepared.settings.gate, run=run_once)
        if result.gate == "worse":
            broken.append(describe_broken(check, state.base_exit, done))
        results.append(result)
    return ChecksDone(
        run_id=request.run_id,
        generation=request.generation,
        checks=tuple(results),
        broken=tuple(broken),
    )


async def judge(
    check: CheckDefinition,
    base_exit: int | None,
    *,
    gate: Gate,
    run: Callable[[CheckDefinition], Awaitable[CheckRun]],
) -> tuple[CheckResult, CheckRun]:
    """Run a check and compare it with the base; what is worse is run once more, and the second run counts.

    A test that fails now and then would else send good work back. That it did is noted as `flaky`. What
    couldn't be started or took too long isn't tried again: it would come to the same, or take as long again.
    """
    done = await run(check)
    verdict = compare(gate, base_exit, done.exit)
    flaky = False
    if verdict != "pass" and done.exit not in (None, TIMED_OUT) and base_exit is not None:
        again = await run(check)
        if compare(gate, base_exit, again.exit) == "pass":
            done, verdict, flaky = again, "pass", True
    return (
        CheckResult(
            id=check.id,
            base_exit=base_exit,
            exit=done.exit,
            ms=None if done.exit is None else done.ms,
            gate=verdict,
            flaky=flaky,
        ),
        done,
    )


async def _run_check(node: NodeParts, run: NodeRun, check: CheckDefinition, left_ms: int) -> CheckRun:
    checkout = run.get_checkout()
    settings = run.get_prepared().settings
    call_id = f"check/{check.id}"
    activity = Activity(label=f"check {check.id}", tool_call_id=call_id, command_id=call_id)
    timeout_ms = max(1, min(left_ms, settings.max_command_timeout_ms))
    with run.active(activity):
        work = run_check(
            checkout,
            check,
            call_id=call_id,
            timeout_ms=timeout_ms,
            settings=settings,
            environment=run.get_prepared().secrets.environment("checks"),
        )
        done = await activity.run(work)
    if activity.interrupted:
        raise Interrupted(activity.label)
    return done
