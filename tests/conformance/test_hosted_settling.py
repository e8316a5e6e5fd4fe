"""Hosted execution that nobody aborts: what it depends on, what it waits for, what comes out."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from pydantic import TypeAdapter

from hosted_kit import (
    EXECUTION,
    SETTLED,
    UNPROVEN,
    USAGE,
    Hosted,
    TwoReadings,
    a_while,
    hosted_input,
    settle,
)
from remit.contract import RunStatus
from remit.errors import QueueFull, StorageError
from remit.runs import (
    HostedOperations,
    HostedResult,
    HostedRun,
    IndeterminateRun,
    OperationContext,
    Scope,
    SessionCreate,
    SettledRun,
    TurnQuery,
    TurnStart,
    UsageQuery,
)
from remit.testing._fake_operations import FakeBarriers, FakeOperations, sample_usage
from remit.work import Residencies


def test_it_depends_on_nothing_else() -> None:
    """M1: five operations, a context, drain, two barriers, an optional clock; and the operations are five."""
    parameters = inspect.signature(HostedRun).parameters
    assert list(parameters) == [
        "operations",
        "context",
        "drain",
        "wait_execution_drained",
        "wait_all_drained",
        "clock",
    ]
    assert [name for name, one in parameters.items() if one.default is not inspect.Parameter.empty] == [
        "clock"
    ]
    operations = [name for name in vars(HostedOperations) if not name.startswith("_")]
    assert operations == ["create_session", "start_turn", "query_turn", "stop_turn", "query_usage"]


async def test_a_run_that_completes() -> None:
    """M3, M9, M15: the settled result holds these keys and no other; no stop, no drain, one barrier."""
    hosted = Hosted(barriers=FakeBarriers(forbidden=["all"]))
    assert await hosted.result() == SETTLED
    assert hosted.operations.names == ["create", "start", "query", "usage"]
    assert hosted.barriers.waited == ["execution"]
    assert hosted.barriers.drains == 0


async def test_usage_waits_for_the_barrier() -> None:
    """M2: usage isn't read while execution residencies are outstanding; it is read after they settle."""
    hosted = Hosted()
    gate = hosted.barriers.gates["execution"] = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(hosted.run())
        await settle(lambda: hosted.barriers.waited == ["execution"])
        await a_while()
        assert "usage" not in hosted.operations.names
        assert not running.done()
        gate.set()
    assert hosted.operations.names[-1] == "usage"
    assert isinstance(running.result(), SettledRun)


async def test_numbers_are_passed_on() -> None:
    """M4, M5, M31: six totals and the cost as the summary has them; nothing is added up again."""
    odd = sample_usage()
    totals = odd.summary.totals.model_copy(update={"input_tokens": 11, "total_tokens": 99})
    odd = odd.model_copy(update={"summary": odd.summary.model_copy(update={"totals": totals})})
    result = await Hosted(operations=FakeOperations(usage=odd)).result()
    assert result["usage"] == {**USAGE, "total_tokens": 99}
    assert result["cost_usd"] == 0.25
    assert (await Hosted().result())["usage"] == USAGE


async def test_the_clock_bounds_what_was_looked_at() -> None:
    """M6: one reading at the start, one at settlement; they say when somebody looked and select nothing."""
    clock = TwoReadings()
    hosted = Hosted(clock=clock, operations=FakeOperations(RunStatus.WORKING, RunStatus.COMPLETED))
    assert await hosted.result() == SETTLED
    assert clock.asked == 2
    asked = hosted.operations.asked[-1]
    assert isinstance(asked, UsageQuery)
    assert asked.range is not None
    assert [moment.timestamp() for moment in (asked.range.start, asked.range.end)] == [100, 200]
    assert asked.turn_id == EXECUTION


async def test_it_needs_no_clock() -> None:
    """M32: without one the result is the same, and no range is named."""
    hosted = Hosted()
    runner = HostedRun(
        hosted.operations,
        hosted.context,
        drain=hosted.barriers.drain,
        wait_execution_drained=hosted.barriers.wait_execution_drained,
        wait_all_drained=hosted.barriers.wait_all_drained,
    )
    assert (await runner.run(hosted_input(), Scope())).to_json() == SETTLED
    asked = hosted.operations.asked[-1]
    assert isinstance(asked, UsageQuery)
    assert asked.range is None


async def test_one_id_for_run_session_and_turn() -> None:
    """M7, M27: the execution's id is session and turn; session, text and cap arrive as they were given."""
    hosted, wanted = Hosted(), hosted_input(step_cap=12)
    await hosted.run(wanted)
    create, start, query, usage = hosted.operations.asked
    assert isinstance(create, SessionCreate)
    assert (create.session_id, create.turn_id, create.session) == (EXECUTION, EXECUTION, wanted.session)
    assert create.session.folder == "/home/me/app"
    assert create.session.target is not None
    assert create.session.target.to_json() == {
        "connection_id": "fake",
        "connection_slug": "fake",
        "model": "model",
    }
    assert isinstance(start, TurnStart)
    assert (start.session.session_id, start.turn_id, start.turn.id) == (EXECUTION, EXECUTION, EXECUTION)
    assert start.session.spec == wanted.session
    assert start.turn.prompt == "Make the failing test pass."
    assert start.turn.limits.max_tool_rounds == 12
    for asked in (query, usage):
        assert isinstance(asked, TurnQuery | UsageQuery)
        assert (asked.session_id, asked.turn_id) == (EXECUTION, EXECUTION)


async def test_a_step_cap_is_optional() -> None:
    """M27: without one no limit is named."""
    hosted = Hosted()
    await hosted.run()
    start = hosted.operations.asked[1]
    assert isinstance(start, TurnStart)
    assert "limits" not in start.turn.model_fields_set


@pytest.mark.parametrize(
    "fields",
    [
        {"execution_id": "no spaces"},
        {"session": {"target": {"connection_id": "a", "connection_slug": "a", "model": "m"}}},
        {"session": {"folder": "/home/me/app"}},
        {"session": {"folder": "/home/me/app", "target": {"connection_id": "a", "model": "m"}}},
        {"session": {**hosted_input().session.to_json(), "session_id": "another"}},
        {"step_cap": 0},
        {"content": None},
        {"colour": "blue"},
    ],
)
def test_an_input_is_whole(fields: dict[str, Any]) -> None:
    """M27: id, folder, an explicit target of three parts and text; nothing else, and nothing less."""
    with pytest.raises(ValueError, match="validation error"):
        hosted_input(**fields)


async def test_the_context_says_who_asks() -> None:
    """M8: principal, connection, host epoch and residency acquisition, with each of the operations."""
    residencies = Residencies()
    context = OperationContext(host_epoch="epoch_7", residencies=residencies)
    hosted = Hosted(context=context)
    await hosted.run()
    assert len(hosted.operations.contexts) == 4
    for seen in hosted.operations.contexts:
        assert (seen.principal, seen.connection, seen.host_epoch) == (
            "runtime_host",
            "hosted-execution",
            "epoch_7",
        )
        with seen.acquire_residency("turn"):
            assert residencies.by_label() == {"turn": 1}
    assert residencies.count == 0


async def test_one_missing_attempt_spoils_the_bill() -> None:
    """M10: one reported, one missing: indeterminate with that cause, though the turn completed."""
    usage = sample_usage(attempts=2, reported=1, missing=1)
    hosted = Hosted(operations=FakeOperations(usage=usage))
    assert await hosted.result() == {
        "id": EXECUTION,
        "kind": "indeterminate",
        "failure_reason": "usage/missing_attempt_usage",
    }


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        ({"unreadable_records": 1}, "unreadable_usage_record"),
        ({"pending_repairs": 1}, "pending_usage_repair"),
        ({"attempts": 2, "partial": 1}, "partial_attempt_usage"),
        ({"attempts": 2, "missing": 1}, "missing_attempt_usage"),
        ({"attempts": 2}, "missing_attempt_usage"),
        ({"unreadable_records": 1, "pending_repairs": 1, "partial": 1}, "unreadable_usage_record"),
        ({"pending_repairs": 1, "attempts": 3, "partial": 1, "missing": 1}, "pending_usage_repair"),
        ({"attempts": 3, "partial": 1, "missing": 1}, "partial_attempt_usage"),
    ],
)
async def test_causes_have_an_order(broken: dict[str, int], cause: str) -> None:
    """M11: a closed set in a fixed order: unreadable, pending, partial, missing; of several the first."""
    hosted = Hosted(operations=FakeOperations(usage=sample_usage(**broken)))
    assert (await hosted.result())["failure_reason"] == f"usage/{cause}"


@pytest.mark.parametrize("spoiled", [{"unpriced": 1, "priced": 0}, {"legacy_records": 1}])
async def test_a_cost_that_isnt_known_is_null(spoiled: dict[str, int]) -> None:
    """M12: one attempt without a price, or one record of before: no cost, and settled all the same."""
    hosted = Hosted(operations=FakeOperations(usage=sample_usage(**spoiled)))
    assert await hosted.result() == {**SETTLED, "cost_usd": None}


async def test_a_run_that_fails() -> None:
    """M13, M34: settled, failed, the reason is the turn's own class; usage and cost as with any other."""
    operations = FakeOperations(RunStatus.FAILED, failure_class="provider/auth")
    assert await Hosted(operations=operations).result() == {
        **SETTLED,
        "status": "failed",
        "failure_reason": "provider/auth",
    }


async def test_a_run_that_somebody_else_cancelled() -> None:
    """M34, M9: cancelled, with usage and cost, without a reason; nobody aborted here, so the same barrier."""
    hosted = Hosted(operations=FakeOperations(RunStatus.CANCELLED), barriers=FakeBarriers(forbidden=["all"]))
    assert await hosted.result() == {**SETTLED, "status": "cancelled"}
    assert "stop" not in hosted.operations.names


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED])
async def test_the_gate_doesnt_look_at_the_status(status: RunStatus) -> None:
    """M37, M33: an incomplete bill is indeterminate whatever the status; three keys, no usage, no cost."""
    operations = FakeOperations(
        status, failure_class="provider/auth", usage=sample_usage(attempts=2, partial=1)
    )
    result = await Hosted(operations=operations).result()
    assert result == {
        "id": EXECUTION,
        "kind": "indeterminate",
        "failure_reason": "usage/partial_attempt_usage",
    }


async def test_a_run_whose_own_end_isnt_known() -> None:
    """M33: an indeterminate turn stays so, with its own reason; its usage isn't asked for."""
    operations = FakeOperations(RunStatus.INDETERMINATE, failure_class="lost/not_stopped")
    hosted = Hosted(operations=operations)
    assert await hosted.result() == {
        "id": EXECUTION,
        "kind": "indeterminate",
        "failure_reason": "lost/not_stopped",
    }
    assert hosted.barriers.opened == ["execution"]
    assert "usage" not in operations.names


async def test_any_number_of_snapshots() -> None:
    """M25: queries go on until one finds the end, however many don't, and not in a busy loop."""
    statuses = [RunStatus.QUEUED, *[RunStatus.WORKING] * 8, RunStatus.SETTLING, RunStatus.COMPLETED]
    hosted = Hosted(operations=FakeOperations(*statuses))
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await hosted.result() == SETTLED
    assert hosted.operations.names.count("query") == len(statuses)
    assert loop.time() - began > 0.1


def test_results_are_told_apart_by_kind() -> None:
    """M26: a discriminated union: the kind decides which keys there are, and a wrong mix is refused."""
    adapter: TypeAdapter[SettledRun | IndeterminateRun] = TypeAdapter(HostedResult)
    assert isinstance(adapter.validate_python(SETTLED), SettledRun)
    assert isinstance(adapter.validate_python(UNPROVEN), IndeterminateRun)
    assert adapter.validate_python(SETTLED).to_json() == SETTLED
    for wrong in ({**SETTLED, "kind": "indeterminate"}, {**UNPROVEN, "kind": "settled"}, {"id": "a"}):
        with pytest.raises(ValueError, match="validation error"):
            adapter.validate_python(wrong)
    schema = adapter.json_schema()
    assert schema["discriminator"]["propertyName"] == "kind"


SECRET = "sk-live-0123456789"


@pytest.mark.parametrize("operation", ["create", "start", "query", "usage"])
@pytest.mark.parametrize(
    "error", [StorageError(SECRET), RuntimeError(SECRET), asyncio.CancelledError(SECRET)]
)
async def test_an_error_is_a_result(operation: str, error: BaseException) -> None:
    """M24, M38: refused, raised, cancelled below: one drain, all awaited, unproven, and not a word of it."""
    hosted = Hosted()
    hosted.operations.failures[operation] = error
    assert await hosted.result() == UNPROVEN
    assert hosted.operations.names.count(operation) == 1
    assert hosted.barriers.drains == 1
    assert hosted.barriers.opened[-1] == "all"


@pytest.mark.parametrize("single_run", [True, False])
async def test_a_turn_that_doesnt_start(single_run: bool) -> None:
    """M24: blocked: nothing is asked for any more; only a host of this one run is drained."""
    hosted = Hosted(single_run=single_run)
    hosted.operations.blocked = QueueFull(SECRET)
    assert await hosted.result() == UNPROVEN
    assert hosted.operations.names == ["create", "start"]
    assert hosted.barriers.drains == single_run
    assert hosted.barriers.opened == ["all"]


@pytest.mark.parametrize("error", [RuntimeError(SECRET), asyncio.CancelledError(SECRET)])
async def test_errors_of_the_barriers_are_ignored(error: BaseException) -> None:
    """M24, M38: a barrier that fails on the way is one more error; one that fails afterwards is ignored."""
    hosted = Hosted()
    hosted.operations.failures["query"] = RuntimeError("broken")
    hosted.barriers.failure = error
    assert await hosted.result() == UNPROVEN
    hosted = Hosted(barriers=FakeBarriers(forbidden=["execution"]))
    assert await hosted.result() == UNPROVEN
    assert hosted.barriers.opened == ["all"]


async def test_a_drain_that_raises_is_ignored() -> None:
    """M38: whatever the host says to the drain, the caller gets a result."""

    class Broken(FakeBarriers):
        def drain(self) -> None:
            super().drain()
            raise RuntimeError(SECRET)

    hosted = Hosted(barriers=Broken())
    hosted.operations.failures["query"] = RuntimeError("broken")
    assert await hosted.result() == UNPROVEN
    assert hosted.barriers.drains == 1


async def test_another_turns_answer_is_no_answer() -> None:
    """M7: a snapshot under another id proves nothing."""
    hosted = Hosted()
    snapshot = hosted.operations.snapshot
    hosted.operations.snapshot = lambda turn_id, status: snapshot("another", status)
    assert await hosted.result() == UNPROVEN
