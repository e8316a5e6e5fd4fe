"""Answers `checks`: the workspace's own commands on the result, each beside how it was on the base."""

from __future__ import annotations

from remit.contract import CheckResult, ChecksDone, ChecksRequest
from remit.workspaces._checks import CheckDefinition, CheckRun, compare, describe_broken, run_check
from remit.workspaces._service_parts import NodeParts
from remit.workspaces._service_runs import Activity, Interrupted, NodeRun

__all__ = ["run_checks"]


async def run_checks(node: NodeParts, request: ChecksRequest) -> ChecksDone:
    """Run the checks on the result, and compare them with the base."""
    run = await node.enter(request)
    prepared = run.get_prepared()
    deadline = node.clock.monotonic() + request.remaining_ms / 1000
    results: list[CheckResult] = []
    broken: list[str] = []
    for check, state in prepared.checks:
        left_ms = int((deadline - node.clock.monotonic()) * 1000)
        done = await _run_check(node, run, check, left_ms)
        verdict = compare(prepared.settings.gate, state.base_exit, done.exit)
        if verdict == "worse":
            broken.append(describe_broken(check, state.base_exit, done))
        results.append(
            CheckResult(
                id=check.id,
                base_exit=state.base_exit,
                exit=done.exit,
                ms=None if done.exit is None else done.ms,
                gate=verdict,
            )
        )
    return ChecksDone(
        run_id=request.run_id,
        generation=request.generation,
        checks=tuple(results),
        broken=tuple(broken),
    )


async def _run_check(node: NodeParts, run: NodeRun, check: CheckDefinition, left_ms: int) -> CheckRun:
    checkout = run.get_checkout()
    settings = run.get_prepared().settings
    call_id = f"check/{check.id}"
    activity = Activity(label=f"check {check.id}", tool_call_id=call_id, command_id=call_id)
    timeout_ms = max(1, min(left_ms, settings.max_command_timeout_ms))
    with run.active(activity):
        work = run_check(checkout, check, call_id=call_id, timeout_ms=timeout_ms, settings=settings)
        done = await activity.run(work)
    if activity.interrupted:
        raise Interrupted(activity.label)
    return done
