"""The five operations of hosted execution as a stand-in that plays what it is told, and notes who asked what.

It holds its callers to the order: no start without what a create gave, no question about a turn that was
never started, no usage before the turn has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from remit.contract import RunStatus
from remit.errors import RemitError
from remit.runs import (
    Answer,
    Done,
    OperationContext,
    Refused,
    Session,
    SessionCreate,
    SessionCreated,
    TurnBlocked,
    TurnQuery,
    TurnSnapshot,
    TurnStart,
    TurnStarted,
    TurnStop,
    UsageCoverage,
    UsageProvenance,
    UsageQuery,
    UsageSummarised,
    UsageSummary,
    UsageTotals,
)

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
Asked: TypeAlias = SessionCreate | TurnStart | TurnQuery | TurnStop | UsageQuery
NAMES = {
    SessionCreate: "create",
    TurnStart: "start",
    TurnQuery: "query",
    TurnStop: "stop",
    UsageQuery: "usage",
}


def sample_usage(**changes: Any) -> UsageSummarised:
    """A whole bill: 11 in, 7 out, 3 read from a cache, 2 written to it, 1 of reasoning; a quarter dollar.

    Args:
        changes: Of coverage and provenance, by name.
    """
    coverage = {"attempts": 1, "priced": 1, "unpriced": 0, "reported": 1, "partial": 0, "missing": 0}
    coverage |= {name: value for name, value in changes.items() if name in coverage}
    provenance = {name: value for name, value in changes.items() if name not in coverage}
    totals = UsageTotals(
        input_tokens=11,
        output_tokens=7,
        cache_read_tokens=3,
        cache_write_tokens=2,
        reasoning_tokens=1,
        total_tokens=18,
        cache_miss_tokens=8,
    )
    summary = UsageSummary(
        range=None,
        request_count=coverage["attempts"],
        cost_usd=0.25,
        totals=totals,
        cache_hit_count=1,
        cache_create_count=1,
        error_count=0,
    )
    return UsageSummarised(
        summary=summary, provenance=UsageProvenance(coverage=UsageCoverage(**coverage), **provenance)
    )


class FakeOperations:
    """`remit.runs.HostedOperations` from memory.

    Args:
        statuses: What the queries find, one after the other; the last one for ever.
        stopped: What a stop finds.
        failure_class: With a failed or indeterminate turn.
        usage: What the ledger says.
    """

    def __init__(
        self,
        *statuses: RunStatus,
        stopped: RunStatus = RunStatus.CANCELLED,
        failure_class: str | None = None,
        usage: UsageSummarised | None = None,
    ) -> None:
        self.statuses = list(statuses or (RunStatus.COMPLETED,))
        self.stopped = stopped
        self.failure_class = failure_class
        self.usage = usage or sample_usage()
        self.asked: list[Asked] = []
        self.contexts: list[OperationContext] = []
        self.answered: list[str] = []
        """The names of the operations that have answered, in that order."""
        self.blocked: RemitError | None = None
        """What a start is blocked by."""
        self.failures: dict[str, BaseException] = {}
        """Operation -> what it raises, or answers as refused where it is one of ours."""
        self.gates: dict[str, asyncio.Event] = {}
        """Operation -> it answers only once this is set."""
        self.on_call: Callable[[str], object] = lambda name: None
        """Called with the operation's name as soon as it is asked for."""
        self._started: set[str] = set()

    @property
    def names(self) -> list[str]:
        """What was asked for, in order."""
        return [NAMES[type(asked)] for asked in self.asked]

    async def _enter(self, asked: Asked, context: OperationContext) -> Refused | None:
        name = NAMES[type(asked)]
        self.asked.append(asked)
        self.contexts.append(context)
        self.on_call(name)
        if (gate := self.gates.get(name)) is not None:
            await gate.wait()
        failure = self.failures.get(name)
        if failure is not None and not isinstance(failure, RemitError):
            raise failure
        self.answered.append(name)
        return None if failure is None else Refused.of(failure)

    async def create_session(
        self, request: SessionCreate, context: OperationContext
    ) -> Answer[SessionCreated]:
        """See `HostedOperations`."""
        if refused := await self._enter(request, context):
            return refused
        session = Session(
            session_id=request.session_id or request.turn_id,
            spec=request.session,
            binding="reviewed",
            profile="reviewed",
            workspace="app",
            created=True,
        )
        return Done(SessionCreated(session=session))

    async def start_turn(
        self, request: TurnStart, context: OperationContext
    ) -> Answer[TurnStarted | TurnBlocked]:
        """See `HostedOperations`."""
        if refused := await self._enter(request, context):
            return refused
        assert "create" in self.answered, "a session is created first"
        if self.blocked is not None:
            return Done(TurnBlocked.of(self.blocked))
        self._started.add(request.turn_id)
        return Done(TurnStarted(turn=self.snapshot(request.turn_id, RunStatus.QUEUED)))

    async def query_turn(self, request: TurnQuery, context: OperationContext) -> Answer[TurnSnapshot]:
        """See `HostedOperations`."""
        if refused := await self._enter(request, context):
            return refused
        assert request.turn_id in self._started, "no such turn was started"
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return Done(self.snapshot(request.turn_id, status))

    async def stop_turn(self, request: TurnStop, context: OperationContext) -> Answer[TurnSnapshot]:
        """See `HostedOperations`."""
        if refused := await self._enter(request, context):
            return refused
        assert request.turn_id in self._started, "no such turn was started"
        self.statuses = [self.stopped]
        return Done(self.snapshot(request.turn_id, self.stopped))

    async def query_usage(self, request: UsageQuery, context: OperationContext) -> Answer[UsageSummarised]:
        """See `HostedOperations`."""
        if refused := await self._enter(request, context):
            return refused
        assert all(status.ended for status in self.statuses), "usage is read when all has ended"
        summary = self.usage.summary.model_copy(update={"range": request.range})
        return Done(self.usage.model_copy(update={"summary": summary}))

    def snapshot(self, turn_id: str, status: RunStatus) -> TurnSnapshot:
        """A turn in some status."""
        failed = status in (RunStatus.FAILED, RunStatus.INDETERMINATE)
        return TurnSnapshot(
            session_id=turn_id,
            turn_id=turn_id,
            run_id=turn_id,
            status=status,
            step_cap=200,
            started_at=MOMENT,
            completed_at=MOMENT if status.ended else None,
            failure_class=self.failure_class if failed else None,
        )


class FakeBarriers:
    """A host's two barriers and its drain, as counters; a barrier is open unless it has a gate.

    Args:
        forbidden: Barriers that nobody may wait for: `execution`, `all`.
    """

    def __init__(self, *, forbidden: Sequence[str] = ()) -> None:
        self.forbidden = tuple(forbidden)
        self.gates: dict[str, asyncio.Event] = {}
        self.waited: list[str] = []
        self.opened: list[str] = []
        self.drains = 0
        self.failure: BaseException | None = None
        """What the barrier of all residencies raises."""
        self.on_wait: Callable[[str], object] = lambda name: None

    def drain(self) -> None:
        """Asked to drain."""
        self.drains += 1

    async def wait_execution_drained(self) -> None:
        """All residencies but kept ones."""
        await self._wait("execution")

    async def wait_all_drained(self) -> None:
        """All residencies."""
        await self._wait("all")
        if self.failure is not None:
            raise self.failure

    async def _wait(self, name: str) -> None:
        assert name not in self.forbidden, f"the {name} barrier was touched"
        self.waited.append(name)
        self.on_wait(name)
        if (gate := self.gates.get(name)) is not None:
            await gate.wait()
        self.opened.append(name)
