"""Hosted execution that is aborted: before admission, while running, while settling, after the terminal."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from hosted_kit import NOT_ADMITTED, SETTLED, UNPROVEN, Hosted, a_while, settle
from remit.contract import RunStatus
from remit.errors import StorageError
from remit.runs import Scope, TurnStop
from remit.testing._fake_operations import FakeBarriers, FakeOperations, sample_usage

CANCELLED = {**SETTLED, "status": "cancelled"}


def running(*, single_run: bool = True, stopped: RunStatus = RunStatus.CANCELLED) -> Hosted:
    """A turn that goes on until it is stopped; the execution barrier may not be touched."""
    operations = FakeOperations(RunStatus.WORKING, stopped=stopped, failure_class="provider/auth")
    return Hosted(
        operations=operations, barriers=FakeBarriers(forbidden=["execution"]), single_run=single_run
    )


# ---- before admission


async def test_aborted_from_the_outset() -> None:
    """M36, M21, M33: nothing is created; one drain, all residencies, not admitted; no usage, no cost."""
    hosted = Hosted(barriers=FakeBarriers(forbidden=["execution"]))
    hosted.scope.abort()
    assert await hosted.result() == NOT_ADMITTED
    assert hosted.operations.names == []
    assert hosted.barriers.drains == 1
    assert hosted.barriers.opened == ["all"]


async def test_aborted_while_the_session_is_created() -> None:
    """M20, M21, M36: the create in flight is awaited; then no start, query, stop or usage; not admitted."""
    hosted = Hosted(barriers=FakeBarriers(forbidden=["execution"]))
    gate = hosted.operations.gates["create"] = asyncio.Event()
    hosted.abort_on("create")
    async with asyncio.TaskGroup() as group:
        result = group.create_task(hosted.result())
        await settle(lambda: hosted.barriers.drains == 1)
        await a_while()
        assert not result.done(), "a create in flight isn't abandoned"
        assert hosted.barriers.waited == []
        gate.set()
    assert result.result() == NOT_ADMITTED
    assert hosted.operations.answered == ["create"]
    assert hosted.operations.names == ["create"]
    assert hosted.barriers.drains == 1
    assert hosted.barriers.opened == ["all"]


async def test_not_admitted_waits_for_all_residencies() -> None:
    """M36: the result isn't there before all residencies are, and their errors don't matter."""
    hosted = Hosted()
    gate = hosted.barriers.gates["all"] = asyncio.Event()
    hosted.barriers.failure = RuntimeError("broken")
    hosted.scope.abort()
    async with asyncio.TaskGroup() as group:
        result = group.create_task(hosted.result())
        await settle(lambda: hosted.barriers.waited == ["all"])
        await a_while()
        assert not result.done()
        gate.set()
    assert result.result() == NOT_ADMITTED


async def test_a_create_that_fails_after_the_abort() -> None:
    """M24, M36: an error is an error, also after an abort; there is still but one drain."""
    hosted = Hosted()
    hosted.operations.failures["create"] = StorageError("broken")
    hosted.abort_on("create")
    assert await hosted.result() == UNPROVEN
    assert hosted.barriers.drains == 1


# ---- while it is started, and while it runs


async def test_aborted_while_it_is_started() -> None:
    """M16, M18: the start in flight is awaited: it may have admitted the turn; then one stop."""
    hosted = running()
    gate = hosted.operations.gates["start"] = asyncio.Event()
    hosted.abort_on("start")
    async with asyncio.TaskGroup() as group:
        result = group.create_task(hosted.result())
        await settle(lambda: hosted.scope.aborted)
        await a_while()
        assert hosted.operations.names == ["create", "start"]
        gate.set()
    assert result.result() == CANCELLED
    assert hosted.operations.names == ["create", "start", "stop", "usage"]


@pytest.mark.parametrize("time", [1, 3])
async def test_aborted_while_it_runs(time: int) -> None:
    """M16, M17, M18, M22: one stop, one drain, the stop's own status, the barrier of all residencies."""
    hosted = running()
    hosted.abort_on("query", time=time)
    assert await hosted.result() == CANCELLED
    assert hosted.operations.names.count("stop") == 1
    assert hosted.operations.names.count("query") == time
    assert hosted.operations.names[-2:] == ["stop", "usage"]
    assert hosted.barriers.drains == 1
    assert hosted.barriers.waited == ["all"]
    (stop,) = [asked for asked in hosted.operations.asked if isinstance(asked, TurnStop)]
    assert stop.by == "caller"


async def test_a_shared_host_goes_on() -> None:
    """M15, M17: in ours on single-run hosts only: an abort on a shared host stops the turn, not the host."""
    hosted = running(single_run=False)
    hosted.abort_on("query")
    assert await hosted.result() == CANCELLED
    assert hosted.operations.names.count("stop") == 1
    assert hosted.barriers.drains == 0


async def test_several_aborts_are_one() -> None:
    """M15, M16, M17: however often it is aborted, there is one stop and one drain."""
    hosted = running()
    hosted.abort_on("query")
    gate = hosted.operations.gates["stop"] = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        result = group.create_task(hosted.result())
        await settle(lambda: "stop" in hosted.operations.names)
        assert not hosted.scope.abort()
        result.cancel()
        await a_while()
        result.cancel()
        await a_while()
        assert not result.done()
        gate.set()
        await asyncio.wait({result})
    assert result.cancelled()
    assert hosted.operations.names.count("stop") == 1
    assert hosted.barriers.drains == 1
    assert hosted.operations.names[-1] == "usage"


async def test_the_stop_is_waited_for() -> None:
    """M19: nothing is waited for, read or reported before the stop has answered."""
    hosted = running()
    hosted.abort_on("query")
    gate = hosted.operations.gates["stop"] = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        result = group.create_task(hosted.result())
        await settle(lambda: "stop" in hosted.operations.names)
        await a_while()
        assert not result.done()
        assert hosted.barriers.waited == []
        gate.set()
    assert result.result() == CANCELLED


async def test_all_residencies_are_waited_for() -> None:
    """M23: while it is held nothing is reported and no usage read; then settled/cancelled, one drain."""
    hosted = running()
    hosted.abort_on("query")
    gate = hosted.barriers.gates["all"] = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        result = group.create_task(hosted.result())
        await settle(lambda: hosted.barriers.waited == ["all"])
        await a_while()
        assert not result.done()
        assert "usage" not in hosted.operations.names
        gate.set()
    assert result.result() == CANCELLED
    assert hosted.barriers.drains == 1


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED])
async def test_the_stops_answer_is_canonical(status: RunStatus) -> None:
    """M18, M35: the abort came first, so all residencies; the stop says how it ended, and that is kept."""
    hosted = running(stopped=status)
    hosted.abort_on("query")
    reason = {"failure_reason": "provider/auth"} if status is RunStatus.FAILED else {}
    assert await hosted.result() == {**SETTLED, "status": status.value, **reason}
    assert hosted.barriers.waited == ["all"]


async def test_aborted_while_it_settles() -> None:
    """M35, M16: `settling` isn't the terminal yet: it is stopped, joined, and all residencies are awaited."""
    hosted = running(stopped=RunStatus.COMPLETED)
    hosted.operations.statuses = [RunStatus.SETTLING]
    hosted.abort_on("query")
    assert await hosted.result() == SETTLED
    assert hosted.operations.names.count("stop") == 1
    assert hosted.barriers.waited == ["all"]


async def test_a_query_in_flight_is_given_up() -> None:
    """M16, M25: a query that waits doesn't hold up the stop."""
    hosted = running()
    hosted.operations.gates["query"] = asyncio.Event()
    hosted.abort_on("query")
    assert await hosted.result() == CANCELLED


async def test_an_answer_that_comes_with_the_abort() -> None:
    """M35: the terminal wasn't known when the abort came, so the abort counts: stop, and all residencies."""
    hosted = running(stopped=RunStatus.COMPLETED)
    hosted.operations.statuses = [RunStatus.COMPLETED]
    hosted.abort_on("query")
    assert await hosted.result() == SETTLED
    assert hosted.operations.names == ["create", "start", "query", "stop", "usage"]
    assert hosted.barriers.waited == ["all"]


async def test_a_stop_that_fails() -> None:
    """M24: an error of the stop is a result like any other error, and there is still one drain."""
    hosted = running()
    hosted.operations.failures["stop"] = StorageError("broken")
    hosted.abort_on("query")
    assert await hosted.result() == UNPROVEN
    assert hosted.operations.names.count("stop") == 1
    assert hosted.barriers.drains == 1
    assert hosted.barriers.waited == ["all"]


async def test_a_stop_that_doesnt_say_how_it_ended() -> None:
    """M18, M24: a snapshot that isn't a terminal proves nothing."""
    hosted = running(stopped=RunStatus.SETTLING)
    hosted.abort_on("query")
    assert await hosted.result() == UNPROVEN
    assert hosted.operations.names.count("stop") == 1
    assert "usage" not in hosted.operations.names


async def test_a_cancelled_run_with_an_incomplete_bill() -> None:
    """M37: the gate looks at the bill alone."""
    hosted = running()
    hosted.operations.usage = sample_usage(attempts=1, reported=0, missing=1)
    hosted.abort_on("query")
    assert (await hosted.result())["failure_reason"] == "usage/missing_attempt_usage"


# ---- after the terminal was known


@pytest.mark.parametrize("single_run", [True, False])
@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED])
async def test_an_abort_after_the_terminal(status: RunStatus, single_run: bool) -> None:
    """M14, M15: neither kind, status, reason nor barrier changes; a late drain on a host of one run."""
    operations = FakeOperations(status, failure_class="provider/auth")
    hosted = Hosted(operations=operations, barriers=FakeBarriers(forbidden=["all"]), single_run=single_run)
    hosted.abort_on("execution")
    reason = {"failure_reason": "provider/auth"} if status is RunStatus.FAILED else {}
    assert await hosted.result() == {**SETTLED, "status": status.value, **reason}
    assert hosted.barriers.waited == ["execution"]
    assert "stop" not in operations.names
    assert hosted.barriers.drains == single_run


async def test_an_abort_while_usage_is_read() -> None:
    """M14, M15: just as late."""
    hosted = Hosted(barriers=FakeBarriers(forbidden=["all"]))
    hosted.abort_on("usage")
    assert await hosted.result() == SETTLED
    assert hosted.barriers.drains == 1


async def test_an_abort_after_the_result() -> None:
    """M15, M38: a run that has its result doesn't listen any more."""
    hosted = Hosted()
    assert await hosted.result() == SETTLED
    hosted.scope.abort()
    assert hosted.barriers.drains == 0


# ---- the caller


async def test_a_deadline_aborts_too() -> None:
    """M16, M38: the scope's own deadline is an abort; the stop says so."""
    hosted = running()
    hosted.scope = Scope(deadline=timedelta(milliseconds=30))
    assert await hosted.result() == CANCELLED
    (stop,) = [asked for asked in hosted.operations.asked if isinstance(asked, TurnStop)]
    assert stop.by == "deadline"


async def test_a_deadline_that_is_past() -> None:
    """M36: it is aborted from the outset."""
    hosted = Hosted(scope=Scope(deadline=timedelta(0)))
    assert await hosted.result() == NOT_ADMITTED
    assert hosted.operations.names == []


async def test_a_caller_that_is_cancelled() -> None:
    """M38, M16: its own cancel stops the turn and settles it; then that is raised, and nothing else."""
    hosted = running()
    async with asyncio.TaskGroup() as group:
        result = group.create_task(hosted.result())
        await settle(lambda: "query" in hosted.operations.names)
        result.cancel()
        await asyncio.wait({result})
    assert result.cancelled()
    assert hosted.operations.names[-2:] == ["stop", "usage"]
    assert hosted.barriers.opened == ["all"]
    assert hosted.barriers.drains == 1


async def test_a_scope_holds_several() -> None:
    """M38: one scope, two executions: both are stopped."""
    one, other = running(), running()
    other.scope = one.scope
    async with asyncio.TaskGroup() as group:
        results = [group.create_task(hosted.result()) for hosted in (one, other)]
        await settle(lambda: all("query" in hosted.operations.names for hosted in (one, other)))
        one.scope.abort()
    assert [result.result() for result in results] == [CANCELLED, CANCELLED]
