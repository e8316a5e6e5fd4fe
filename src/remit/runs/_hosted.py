"""Hosted execution: one input in, one of two results out, and nothing thrown at the caller.

    create ─> start ─> query ... terminal ─> execution barrier ─> usage ─> settled | indeterminate
       │        │        │ abort
       │        │        └─> stop, once: its answer is canonical ─> all residencies ─> usage ─> ...
       │ abort  └─ blocked, refused, or anything raised ─> all residencies ─> indeterminate, unproven
       └─> awaited, nothing started ─> all residencies ─> indeterminate, not admitted

Which barrier is waited for follows from whether the abort came before the terminal was known, not from the
status. An abort later than that changes nothing. On a host that was made for this one run an abort, and any
error, asks for its drain, once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import Field, model_validator

from remit.contract import LimitRequest, Model
from remit.errors import InternalError, MisuseError
from remit.primitives import Clock, is_run_id, once_more
from remit.runs._hosted_results import (
    COULD_NOT_SETTLE,
    NOT_ADMITTED,
    IndeterminateRun,
    SettledRun,
    lost_result,
    settle_result,
)
from remit.runs._operations import (
    Answer,
    HostedOperations,
    OperationContext,
    SessionCreate,
    SessionSpec,
    TurnQuery,
    TurnSnapshot,
    TurnSpec,
    TurnStart,
    TurnStarted,
    TurnStop,
    UsageQuery,
    UsageRange,
)
from remit.runs._scope import Scope, ScopeEnd

_log = logging.getLogger(__name__)
_Value = TypeVar("_Value")
_QUERY_WAIT_MS: Final = 1_000
_LONGEST_PAUSE_S: Final = 0.1
Barrier: TypeAlias = Callable[[], Awaitable[object]]


class HostedInput(Model):
    """What one hosted execution is asked for."""

    execution_id: str
    """The run's id; its session's and its turn's, too."""
    session: SessionSpec
    """A workspace by its folder, and an explicit model target; a binding may be named beside them."""
    content: str
    step_cap: int | None = Field(default=None, gt=0)
    """Tool rounds that each stage may have at most; None: what the binding says."""

    @model_validator(mode="after")
    def _check(self) -> HostedInput:
        if not is_run_id(self.execution_id):
            raise ValueError("an execution id is 1 to 128 of A-Z a-z 0-9 _ -")
        if self.session.folder is None or self.session.target is None:
            raise ValueError("a session has a folder and a model target")
        if self.session.session_id is not None or self.session.continues is not None:
            raise ValueError("an execution has a session of its own, under its own id")
        return self

    def turn(self) -> TurnSpec:
        """What is to be done."""
        if self.step_cap is None:
            return TurnSpec(id=self.execution_id, prompt=self.content)
        limits = LimitRequest(max_tool_rounds=self.step_cap)
        return TurnSpec(id=self.execution_id, prompt=self.content, limits=limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    operations: HostedOperations
    context: OperationContext
    drain: Callable[[], object] | None
    wait_execution_drained: Barrier
    wait_all_drained: Barrier
    clock: Clock | None


class HostedRun:
    """Runs inputs to one of two results.

    Args:
        operations: The five operations.
        context: With which they are called.
        drain: Asks the host to take no more and to end, without waiting; None where it serves others too.
        wait_execution_drained: Waits for all residencies but those that the preserve policy keeps.
        wait_all_drained: Waits for all residencies.
        clock: Tells between which moments usage was looked at; None: nobody is told.
    """

    def __init__(
        self,
        operations: HostedOperations,
        context: OperationContext,
        *,
        drain: Callable[[], object] | None,
        wait_execution_drained: Barrier,
        wait_all_drained: Barrier,
        clock: Clock | None = None,
    ) -> None:
        self._parts = _Parts(
            operations=operations,
            context=context,
            drain=drain,
            wait_execution_drained=wait_execution_drained,
            wait_all_drained=wait_all_drained,
            clock=clock,
        )

    async def run(self, input: HostedInput, scope: Scope) -> SettledRun | IndeterminateRun:  # noqa: A002 - the checklist's own name
        """Run one input to its result. It raises nothing: what goes wrong is a result, without its text.

        Args:
            input: What is asked for.
            scope: The caller's; when it ends, the run is stopped.

        Raises:
            MisuseError: The call itself is wrong: it isn't an input, or not a scope.

        Cancellation: as if the scope had ended; the cancel is raised once the run has settled.
        """
        if not isinstance(input, HostedInput):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise MisuseError("a hosted execution takes a HostedInput", param="input")
        if not isinstance(scope, Scope):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise MisuseError("a hosted execution takes a Scope", param="scope")
        execution = _Execution(self._parts, input)
        stop_listening = scope.on_abort(execution.abort)
        try:
            return await _joined(execution.run(), on_cancel=execution.abort_by_caller)
        finally:
            stop_listening()


async def _joined(work: Coroutine[Any, Any, _Value], *, on_cancel: Callable[[], None]) -> _Value:
    """Finish `work` whatever happens to the caller: a cancel is told to the work, and raised at the end."""
    # Owned by this frame, which doesn't end before it.
    task = asyncio.ensure_future(work)  # noqa: TID251
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    if cancelled is not None:
        raise once_more(cancelled)
    return task.result()


class _NotAdmitted(Exception):
    """The abort came before there was a turn."""


class _CouldNotSettle(Exception):
    """The turn didn't start, or an answer makes no sense."""


class _Execution:
    """One input on its way."""

    def __init__(self, parts: _Parts, wanted: HostedInput) -> None:
        self._parts = parts
        self._input = wanted
        self._abort: ScopeEnd | None = None
        self._was_aborted = asyncio.Event()
        self._drain_asked = False
        self._began = parts.clock.now() if parts.clock is not None else None

    # ---- the abort

    def abort(self, end: ScopeEnd) -> None:
        """The caller's scope has ended: noted once; a drain is asked for also when it comes late."""
        if self._abort is None:
            self._abort = end
            self._was_aborted.set()
        self._ask_for_drain()

    def abort_by_caller(self) -> None:
        """The task that waits for the result was cancelled."""
        self.abort(ScopeEnd(code="caller"))

    def _ask_for_drain(self) -> None:
        if self._drain_asked or self._parts.drain is None:
            return
        self._drain_asked = True
        try:
            self._parts.drain()
        except Exception:  # noqa: BLE001 - whatever a host says, the caller gets a result
            _log.exception("hosted run %s: the host couldn't be asked to drain", self._input.execution_id)

    # ---- the way

    async def run(self) -> SettledRun | IndeterminateRun:
        """The result, whatever happens."""
        try:
            return await self._settle()
        except _NotAdmitted:
            reason = NOT_ADMITTED
        except asyncio.CancelledError:
            if _is_cancelled_itself():
                raise  # the loop itself is being shut down
            reason = self._not_settled()  # a raw cancellation that came up from an operation
        except Exception:  # noqa: BLE001 - its text may be anybody's: it goes to the log and nowhere else
            reason = self._not_settled()
        await self._wait_for_all_whatever_they_say()
        return IndeterminateRun(id=self._input.execution_id, failure_reason=reason)

    def _not_settled(self) -> str:
        _log.exception("hosted run %s couldn't be settled", self._input.execution_id)
        self._ask_for_drain()
        return COULD_NOT_SETTLE

    async def _wait_for_all_whatever_they_say(self) -> None:
        try:
            await self._parts.wait_all_drained()
        except asyncio.CancelledError:
            if _is_cancelled_itself():
                raise
            _log.exception("hosted run %s: waiting for its residencies failed", self._input.execution_id)
        except Exception:  # noqa: BLE001 - nothing hangs on how the wait went
            _log.exception("hosted run %s: waiting for its residencies failed", self._input.execution_id)

    async def _settle(self) -> SettledRun | IndeterminateRun:
        await self._start()
        turn, wait_drained = await self._end()
        await wait_drained()
        if turn.status.value == "indeterminate":
            return lost_result(turn)
        return settle_result(turn, await self._read_usage())

    async def _start(self) -> None:
        """Create, then start; an abort before the start is sent means that there is no turn."""
        operations, context, wanted = self._parts.operations, self._parts.context, self._input
        self._require_wanted()
        create = SessionCreate(
            session_id=wanted.execution_id,
            turn_id=wanted.execution_id,
            session=wanted.session,
            turn=wanted.turn(),
        )
        created = _result(await operations.create_session(create, context))
        self._require_wanted()
        start = TurnStart(session=created.session, turn_id=wanted.execution_id, turn=wanted.turn())
        started = _result(await operations.start_turn(start, context))
        if not isinstance(started, TurnStarted):
            raise _CouldNotSettle(started.kind)
        self._check(started.turn)

    def _require_wanted(self) -> None:
        if self._abort is not None:
            raise _NotAdmitted

    async def _end(self) -> tuple[TurnSnapshot, Barrier]:
        """The terminal, and the barrier that is due: did an abort come before it was known?"""
        pause_s = 0.0
        while (turn := await self._unless_aborted(self._query())) is not None:
            if turn.status.ended:
                return turn, self._parts.wait_execution_drained
            await self._unless_aborted(asyncio.sleep(pause_s))
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2 + 0.001)
        return await self._stop(), self._parts.wait_all_drained

    async def _query(self) -> TurnSnapshot:
        wanted = self._input
        query = TurnQuery(session_id=wanted.execution_id, turn_id=wanted.execution_id, wait_ms=_QUERY_WAIT_MS)
        turn = _result(await self._parts.operations.query_turn(query, self._parts.context))
        return self._check(turn)

    async def _stop(self) -> TurnSnapshot:
        """Stop the turn, once, and wait for the answer: it is canonical, whatever it says."""
        wanted, abort = self._input, self._abort
        if abort is None:
            raise InternalError("a turn is stopped that nobody aborted")
        stop = TurnStop(
            session_id=wanted.execution_id, turn_id=wanted.execution_id, by=abort.code, reason=abort.reason
        )
        turn = self._check(_result(await self._parts.operations.stop_turn(stop, self._parts.context)))
        if not turn.status.ended:
            raise _CouldNotSettle(f"stopped, and {turn.status}")
        return turn

    async def _read_usage(self) -> Any:
        wanted, clock = self._input, self._parts.clock
        looked_at = (
            UsageRange(start=self._began, end=clock.now()) if clock is not None and self._began else None
        )
        query = UsageQuery(session_id=wanted.execution_id, turn_id=wanted.execution_id, range=looked_at)
        return _result(await self._parts.operations.query_usage(query, self._parts.context))

    # ---- small things

    def _check(self, turn: TurnSnapshot) -> TurnSnapshot:
        if turn.turn_id != self._input.execution_id:
            raise _CouldNotSettle("another turn's snapshot")
        return turn

    async def _unless_aborted(self, work: Coroutine[Any, Any, _Value]) -> _Value | None:
        """What the work gives; None once an abort is there, and then the work is given up."""
        if self._abort is not None:
            work.close()
            return None
        async with asyncio.TaskGroup() as group:
            working = group.create_task(work)
            aborted = group.create_task(self._was_aborted.wait())
            await asyncio.wait({working, aborted}, return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            aborted.cancel()
        return None if self._abort is not None else working.result()


def _is_cancelled_itself() -> bool:
    """Whether this task is being cancelled; else a raw cancellation has come up from what it asked."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _result(answer: Answer[_Value]) -> _Value:
    """An operation's result. What it refused is raised here, and goes no further than the execution."""
    return answer.get()
