"""The five operations, on the dispatcher in memory; and hosted execution over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

import remit.errors
from hosted_kit import EXECUTION, SETTLED, hosted_input, settle
from remit.admission import AdmissionSettings
from remit.contract import AttemptCoverage, AttemptEnded, AttemptStarted, AttemptUsage, RunStatus
from remit.errors import (
    Draining,
    IdempotencyConflict,
    InternalError,
    InvalidRequest,
    MisuseError,
    NodeError,
    NotFound,
    OwnershipError,
    PreconditionFailed,
    ProviderError,
    QueueFull,
    RemitError,
    StaleGeneration,
    StorageError,
    StorageFull,
)
from remit.runs import (
    DECLARED,
    AttemptRow,
    HostedInput,
    HostedOperations,
    OperationContext,
    Refused,
    Scope,
    SessionSpec,
    TurnBlocked,
    TurnQuery,
    TurnSpec,
    TurnStart,
    TurnStarted,
    TurnStop,
    UsageQuery,
    UsageRange,
)
from remit.runs._usage_answer import answer_usage
from remit.testing._fake_operations import MOMENT
from remit.testing._hosted_suite import COMPLETES, WAITS, OperationsSuite
from remit.testing._hosted_world import FOLDER, HostedWorld, hosted_world
from remit.usage import summarise_attempts


class MemoryHarness:
    """The dispatcher over a store, a node and models in memory."""

    def __init__(self, world: HostedWorld) -> None:
        self.world = world
        self.operations = world.dispatcher

    def context(self) -> OperationContext:
        return self.world.context()

    def stale_context(self) -> OperationContext:
        return self.world.context("epoch_before")

    def spec(self) -> SessionSpec:
        return self.world.spec()

    async def until_working(self, turn_id: str) -> None:
        async with asyncio.timeout(20):
            await self.world.node.blocked.wait()


class TestDispatcher(OperationsSuite):
    """M6, M8, M28, M29, M30, M31: what each operation answers, joins, refuses and counts."""

    @pytest.fixture
    async def harness(self) -> AsyncGenerator[MemoryHarness]:
        async with hosted_world() as world:
            yield MemoryHarness(world)


class TestDispatcherOverASocket(OperationsSuite):
    """M6, M8, M28, M29, M30, M31: the same rules with the node at the other end of a socket."""

    @pytest.fixture
    async def harness(self) -> AsyncGenerator[MemoryHarness]:
        async with hosted_world(link_kind="socket") as world:
            yield MemoryHarness(world)


@pytest.fixture
async def world() -> AsyncGenerator[HostedWorld]:
    async with hosted_world() as made:
        yield made


def wanted(text: str = COMPLETES, **fields: Any) -> HostedInput:
    """An input for the world in memory."""
    return hosted_input(content=text, **fields)


async def run(world: HostedWorld, text: str = COMPLETES, scope: Scope | None = None) -> dict[str, Any]:
    """A hosted execution's result, as JSON values."""
    async with asyncio.timeout(30):
        return (await world.hosted().run(wanted(text), scope or Scope())).to_json()


async def test_a_hosted_run_completes(world: HostedWorld) -> None:
    """M3, M7, M27: a folder and a target are enough; the run, its session and its turn have the one id."""
    assert wanted().session.folder == FOLDER
    result = await run(world)
    assert result == {
        "id": EXECUTION,
        "kind": "settled",
        "status": "completed",
        "usage": {
            "input_tokens": 40,
            "output_tokens": 20,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
            "reasoning_tokens": 0,
            "total_tokens": 60,
        },
        "cost_usd": 0,
    }
    assert list(result) == list(SETTLED)
    stored = await world.store.find_run(EXECUTION)
    assert stored is not None
    assert (stored.view.session_id, stored.request.model) == (EXECUTION, "fake:model")
    assert world.residencies.count == 0


async def test_a_step_cap_is_a_limit(world: HostedWorld) -> None:
    """M27, M29: it bounds the tool rounds, and stands in the snapshot."""
    async with asyncio.timeout(30):
        await world.hosted().run(wanted(step_cap=7), Scope())
    stored = await world.store.find_run(EXECUTION)
    assert stored is not None
    assert stored.view.limits.max_tool_rounds == 7
    query = TurnQuery(session_id=EXECUTION, turn_id=EXECUTION)
    assert (await world.dispatcher.query_turn(query, world.context())).get().step_cap == 7


async def test_a_hosted_run_fails(world: HostedWorld) -> None:
    """M13: the reason is the terminal's class and code."""
    result = await run(world, "Fail at once.")
    assert (result["status"], result["failure_reason"]) == ("failed", "provider/auth")
    assert result["usage"]["total_tokens"] == 0


async def test_a_hosted_run_is_aborted_in_a_tool(world: HostedWorld) -> None:
    """M16, M18, M22: all that ran has ended, the bill is whole, the status is the stop's own."""
    scope = Scope()
    async with asyncio.TaskGroup() as group:
        result = group.create_task(run(world, WAITS, scope))
        await world.node.blocked.wait()
        scope.abort("enough")
    assert result.result()["status"] == "cancelled"
    assert result.result()["usage"]["total_tokens"] == 30
    stored = await world.store.find_run(EXECUTION)
    assert stored is not None
    assert stored.view.cancel is not None
    assert (stored.view.cancel.by, stored.view.cancel.reason) == ("caller", "enough")
    assert world.node.opened == world.node.cleaned == 1
    assert world.residencies.count == 0
    assert not world.admission.draining


async def test_a_hosted_run_is_aborted_in_an_attempt(world: HostedWorld) -> None:
    """M37, M10: the attempt that was cut is missing from the bill, so the cancelled run is indeterminate."""
    scope = Scope()
    async with asyncio.TaskGroup() as group:
        result = group.create_task(run(world, "Think for ever.", scope))
        await world.pool.begun.wait()
        scope.abort()
    assert result.result() == {
        "id": EXECUTION,
        "kind": "indeterminate",
        "failure_reason": "usage/missing_attempt_usage",
    }
    stored = await world.store.find_run(EXECUTION)
    assert stored is not None
    assert stored.view.status is RunStatus.CANCELLED, "the strict view changes nothing of the stored end"


async def test_a_hosted_run_whose_stop_comes_too_late(world: HostedWorld) -> None:
    """M35: aborted in the delivery, which is behind the commit point: the run completes, and that is kept."""
    gate = world.node.gates["deliver"] = asyncio.Event()
    scope = Scope()
    async with asyncio.TaskGroup() as group:
        result = group.create_task(run(world, scope=scope))
        await settle(lambda: "deliver" in world.node.kinds())
        scope.abort()
        await asyncio.sleep(0.02)
        gate.set()
    assert result.result()["status"] == "completed"


async def test_a_queued_hosted_run_is_aborted() -> None:
    """M34: a run that was cancelled while it was queued was admitted: settled, cancelled, usage 0, cost 0."""
    async with hosted_world(settings=AdmissionSettings(max_running=1)) as world:
        first, scope = Scope(), Scope()
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            group.create_task(world.hosted().run(wanted(WAITS, execution_id="first"), first))
            await world.node.blocked.wait()
            result = group.create_task(run(world, scope=scope))
            while await world.store.find_run(EXECUTION) is None:
                await asyncio.sleep(0)
            scope.abort()
            settled = await result
            first.abort()
        assert (settled["status"], settled["usage"]["total_tokens"], settled["cost_usd"]) == (
            "cancelled",
            0,
            0,
        )


async def test_usage_that_cannot_be_read(world: HostedWorld) -> None:
    """M11, M24: a ledger that can't be read is the first cause, not an error of the operation."""
    await run(world)

    async def broken(*_: Any, **__: Any) -> Any:
        raise StorageError("disk")

    world.store.read_attempts = broken
    query = UsageQuery(session_id=EXECUTION, turn_id=EXECUTION)
    usage = (await world.dispatcher.query_usage(query, world.context())).get()
    assert usage.provenance.unreadable_records == 1
    assert usage.summary.totals.total_tokens is None
    assert (await run(world))["failure_reason"] == "usage/unreadable_usage_record"


async def test_a_full_host_blocks(world: HostedWorld) -> None:
    """M24, M28: not now is an answer of its own; a repetition of what was admitted joins all the same."""
    async with hosted_world(settings=AdmissionSettings(max_running=1, max_queued=0)) as world:
        started = await start(world, "first", WAITS)
        assert isinstance(started, TurnStarted)
        blocked = await start(world, "second", COMPLETES)
        assert isinstance(blocked, TurnBlocked)
        assert (blocked.kind, blocked.error.code, blocked.error.retryable) == ("blocked", "queue_full", True)
        assert isinstance(blocked.error.to_error(), QueueFull)
        again = await start(world, "first", WAITS)
        assert isinstance(again, TurnStarted)
        assert again.joined
        assert (await run(world))["failure_reason"] == "lost/unproven"


@pytest.mark.parametrize("ended", [False, True])
async def test_a_draining_host_lets_repetitions_join(world: HostedWorld, ended: bool) -> None:
    """M28: the very same request finds its run on a host that takes no more; another under its id doesn't."""
    started = await start(world, "first", COMPLETES if ended else WAITS)
    assert isinstance(started, TurnStarted)
    if ended:
        await world.dispatcher.query_turn(
            TurnQuery(session_id="first", turn_id="first", wait_ms=30_000), world.context()
        )
    world.admission.drain()
    same, other = (COMPLETES, WAITS) if ended else (WAITS, COMPLETES)
    again = await start(world, "first", same)
    assert isinstance(again, TurnStarted)
    assert again.joined
    for turn_id, text in (("first", other), ("second", same)):
        blocked = await start(world, turn_id, text)
        assert isinstance(blocked, TurnBlocked)
        assert blocked.error.code == "draining"


async def test_places_are_given_back(world: HostedWorld) -> None:
    """M28: a start that joins, conflicts or finds its id dead takes no place for good."""
    await run(world)
    permits = world.admission.permits
    await world.dispatcher.stop_turn(
        TurnStop(session_id="dead", turn_id="dead", tombstone=True), world.context()
    )
    for turn_id, text in ((EXECUTION, WAITS), ("dead", COMPLETES), ("dead", WAITS)):
        try:
            await start(world, turn_id, text)
        except IdempotencyConflict:
            assert turn_id == EXECUTION
    assert (permits.running, permits.queued) == (0, 0)


def attempt(
    number: int,
    coverage: AttemptCoverage,
    counts: dict[str, Any] | None = None,
    *,
    status: str = "completed",
    micros: int | None = 5,
) -> AttemptRow:
    """A line of the ledger."""
    asked: dict[str, Any] = {"stage_id": "work-1", "round": 1, "ordinal": 1, "model": "fake:model"}
    attempt_id = f"att_{number}"
    return AttemptRow(
        run_id="run_1",
        started=AttemptStarted(attempt_id=attempt_id, reserved_tokens=10, reserved_micros=micros, **asked),
        started_at=MOMENT,
        ended=AttemptEnded(
            attempt_id=attempt_id,
            status=status,
            usage=AttemptUsage(coverage=coverage, **(counts or {})),
            cost_micros=micros,
            **asked,
        ),
        ended_at=MOMENT,
    )


def test_the_ledger_as_an_answer() -> None:
    """M30, M31, M4: counts, seven totals, how each attempt is covered; child runs are on the bill, too.

    M6: a range that holds none of them selects nothing.
    """
    whole = {
        "input_tokens": 11,
        "output_tokens": 7,
        "cache_read_tokens": 3,
        "cache_write_tokens": 2,
        "reasoning_tokens": 1,
        "total_tokens": 18,
    }
    in_flight = attempt(9, "missing")
    answer = answer_usage(
        [
            attempt(1, "reported", whole),
            attempt(2, "refused", status="refused"),
            attempt(3, "interrupted", {**whole, "cache_read_tokens": 0}, status="cut"),
            attempt(4, "interrupted", status="cancelled"),
            attempt(5, "partial", {"input_tokens": 1}, status="cut"),
            AttemptRow(
                run_id="run_1", started=in_flight.started, started_at=MOMENT, ended=None, ended_at=None
            ),
        ],
        None,
    )
    assert answer.provenance.coverage.to_json() == {
        "attempts": 6,
        "priced": 6,
        "unpriced": 0,
        "reported": 2,
        "partial": 2,
        "missing": 2,
    }
    summary = answer.summary
    assert (summary.request_count, summary.error_count, summary.cost_usd) == (6, 5, None)
    assert (summary.cache_hit_count, summary.cache_create_count) == (1, 2)
    below = summarise_attempts(
        [
            (one.started, one.ended)
            for one in (
                attempt(1, "reported", whole),
                attempt(7, "reported", whole),
                attempt(8, "interrupted", whole, status="cut"),
            )
        ]
    )
    tree = answer_usage([attempt(1, "reported", whole)], None, usage=below.usage, cost_usd=below.cost_usd)
    assert tree.summary.totals.total_tokens == 3 * 18
    assert tree.summary.cost_usd is None
    coverage = tree.provenance.coverage
    assert (coverage.attempts, coverage.reported, coverage.partial, coverage.missing) == (3, 2, 0, 1)
    alone = answer_usage([attempt(1, "reported", whole)], None).summary
    assert alone.totals.to_json() == {**whole, "cache_miss_tokens": 8}
    assert alone.cost_usd == 0.000005
    long_ago = UsageRange(start=MOMENT.replace(year=2000), end=MOMENT.replace(year=2001))
    ranged = answer_usage([attempt(1, "reported", whole)], long_ago).summary
    assert ranged == alone.model_copy(update={"range": long_ago})
    unpriced = answer_usage([attempt(1, "reported", whole), attempt(2, "reported", whole, micros=None)], None)
    assert (unpriced.provenance.coverage.priced, unpriced.provenance.coverage.unpriced) == (1, 1)
    assert unpriced.summary.cost_usd is None


async def start(world: HostedWorld, turn_id: str, text: str) -> TurnStarted | TurnBlocked:
    """Create and start."""
    from remit.testing import _hosted_suite

    request: TurnStart = await _hosted_suite._turn(MemoryHarness(world), turn_id, text)
    return (await world.dispatcher.start_turn(request, world.context())).get()


async def test_a_fault_of_ours_says_nothing(world: HostedWorld) -> None:
    """M24: what isn't declared is answered as an internal error, without its text."""

    async def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("sk-secret")

    world.store.find_run = broken
    query = TurnQuery(session_id="a", turn_id="a")
    answer = await world.dispatcher.query_turn(query, world.context())
    assert isinstance(answer, Refused)
    assert isinstance(answer.cause, InternalError)
    assert "secret" not in str(answer)


OPERATIONS = {
    "session.create": ("create_session", "_create"),
    "turn.start": ("start_turn", "_start"),
    "turn.query": ("query_turn", "_query"),
    "turn.stop": ("stop_turn", "_stop"),
    "usage.query": ("query_usage", "_usage"),
}
"""Operation -> the method of `HostedOperations` under its name, and what does it in the dispatcher."""
ERRORS = (
    InvalidRequest, NotFound, IdempotencyConflict, PreconditionFailed, QueueFull, Draining, OwnershipError,
    StaleGeneration, StorageError, StorageFull, NodeError, ProviderError, MisuseError, InternalError,
)  # fmt: skip


def _declared(method: str) -> tuple[type[RemitError], ...]:
    """The errors that a method's own words name."""
    said = getattr(HostedOperations, method).__doc__.partition("Declares ")[2].rstrip(".").split(", ")
    return tuple(getattr(remit.errors, name) for name in said)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_each_operation_declares_its_errors(world: HostedWorld, name: str) -> None:
    """M28: what the port declares is answered as itself, all else as a fault of ours without its text."""
    method, inner = OPERATIONS[name]
    declared = _declared(method)
    assert declared
    assert DECLARED[name] == declared
    assert list(DECLARED) == list(OPERATIONS)

    for kind in ERRORS:
        error = kind("sk-secret", **({"reason": "auth"} if kind is ProviderError else {}))

        async def fails(*_: Any, error: RemitError = error) -> Any:
            raise error

        setattr(world.dispatcher, inner, fails)
        answer = await getattr(world.dispatcher, method)(None, world.context())
        assert isinstance(answer, Refused)
        if isinstance(error, declared):
            assert (answer.error.code, answer.cause) == (kind.code, error)
            assert answer.error.message == "sk-secret"
        else:
            assert isinstance(answer.cause, InternalError)
            assert "secret" not in repr(answer) + str(answer.cause)


async def test_a_store_that_is_away_is_told_as_that(world: HostedWorld) -> None:
    """M28: whoever asks what a turn used learns that it is worth asking again."""

    async def away(*_: Any, **__: Any) -> Any:
        raise StorageError("the disk is away")

    world.store.find_run = away
    query = UsageQuery(session_id="a", turn_id="a")
    answer = await world.dispatcher.query_usage(query, world.context())
    assert isinstance(answer, Refused)
    assert answer.error.code == StorageError.code


async def test_a_text_of_another_kind_is_refused_at_the_input() -> None:
    """M27: content is text."""
    with pytest.raises(ValueError, match="content"):
        hosted_input(content=TurnSpec(prompt="a"))
