"""Who must know of each attempt before it is sent and after it ended: budget, work registry, log."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from remit.contract import AttemptEnded, AttemptStarted, AttemptUsage, How, LimitWarning, WorkKind
from remit.events import NewEvent
from remit.models import AttemptFinish, AttemptStart
from remit.stages._log import StageLog
from remit.stages._ports import StageInput
from remit.usage import Budget, Reservation, WorkingTime
from remit.work import (
    ObservationToken,
    ObservedStage,
    Observer,
    Registration,
    StreamHandle,
    WorkSpec,
)

NOTHING_SENT: Final = AttemptUsage(
    coverage="refused",
    input_tokens=0,
    output_tokens=0,
    cache_read_tokens=0,
    cache_write_tokens=0,
    reasoning_tokens=0,
    total_tokens=0,
)
"""The usage of an attempt that was stored and then never sent."""


ANSWER_TOKENS: Final = 4_096
"""Output that is kept for a stage's answer."""


class WorkItems(Protocol):
    """What an attempt needs of the work registry."""

    def observation_token(self, session_id: str, work_id: str) -> ObservationToken | None:
        """The right to say where an item is."""
        ...

    def observe(self, token: ObservationToken, stage: ObservedStage) -> ObservationToken | None:
        """Say where it is."""
        ...

    def register(self, session_id: str, spec: WorkSpec) -> Registration:
        """Take a piece of work in."""
        ...

    def is_cancelled(self, session_id: str, work_id: str) -> bool:
        """Whether the item is registered and flagged."""
        ...

    def finish(self, session_id: str, work_id: str, how: How = ...) -> bool:
        """The work has ended."""
        ...


@dataclass(frozen=True, slots=True)
class _Open:
    """An attempt that hasn't ended."""

    start: AttemptStart
    reservation: Reservation
    observer: Observer


class StageLedger:
    """The attempts of one stage. The pool tells it of each; implements `remit.models.AttemptLedger`.

    An attempt that completed is stored together with what its reply leads to, in the stage's next durable
    step; one that ended otherwise is stored at once.
    """

    def __init__(
        self,
        stage: StageInput,
        log: StageLog,
        *,
        items: WorkItems,
        budget: Budget,
        working: WorkingTime | None = None,
    ) -> None:
        self._stage = stage
        self._log = log
        self._items = items
        self._budget = budget
        self._working = working
        self._open: dict[str, _Open] = {}
        self._warnings: list[LimitWarning] = []
        self._task: asyncio.Task[Any] | None = None
        self._stopped = False
        self._latest_estimate: int | None = None
        self._growth = 0
        self.keeps_for_answer = False
        """Whether a request is refused that would leave too little for one more, the stage's answer."""

    def current(self) -> str | None:
        """The attempt in flight; None where there is none."""
        return next(reversed(self._open), None)

    # ---- stopping a single attempt

    def watch(self, task: asyncio.Task[Any]) -> None:
        """The task that waits for the pool: a cancel of the present attempt cancels it, once."""
        self._task = task

    def unwatch(self) -> bool:
        """The wait is over. Whether an attempt was stopped by hand in it; that cancel is taken back."""
        task, stopped = self._task, self._stopped
        self._task, self._stopped = None, False
        if stopped and task is not None:
            task.uncancel()
        return stopped

    def stage_cancelled(self) -> bool:
        """Whether the whole stage has been asked to stop."""
        return self._items.is_cancelled(self._stage.session_id, self._stage.work_id)

    async def _stop(self, attempt_id: str) -> None:
        """Fired by the registry, perhaps late: the stream is closed by ending whoever reads it."""
        found = self._open.get(attempt_id)
        if found is not None and self._task is not None and not self._stopped:
            self._stopped = True
            found.observer.see(ObservedStage.CLEANUP)
            self._task.cancel()

    # ---- the pool's calls

    def waiting(self) -> AbstractContextManager[None]:
        """Time in which the attempt waits isn't working time."""
        return nullcontext() if self._working is None else self._working.waiting()

    async def begin(self, start: AttemptStart) -> int:
        """Reserve the attempt's worst case and store its row; returns once that is durable.

        Returns:
            The most output tokens that it may ask for.

        Raises:
            LimitReached: It doesn't fit into what is left, or what must be kept wouldn't; nothing was stored,
                nothing may be sent.

        Cancellation: its row may be stored; it is closed as never sent, and nothing is owed for it.
        """
        if self.stage_cancelled():
            raise asyncio.CancelledError  # asked to stop: no request begins after that
        keep_input, keep_output = self._kept(start)
        reservation = self._budget.reserve(
            input_estimate=start.input_tokens_estimate,
            max_output=start.max_output_tokens,
            price=start.price,
            keep_input=keep_input,
            keep_output=keep_output,
        )
        self._items.register(self._stage.session_id, self._spec(start))
        observer = Observer(self._items, self._stage.session_id, self._work_id(start.attempt_id))
        self._open[start.attempt_id] = _Open(start, reservation, observer)
        observer.see(ObservedStage.DISPATCH)
        try:
            await self._log.flush(self._started(start, reservation))
        except BaseException:
            await self.end(AttemptFinish(attempt_id=start.attempt_id, status="cancelled", usage=NOTHING_SENT))
            raise
        observer.see(ObservedStage.RECEIPT_WAIT)
        return reservation.max_output_tokens

    def _kept(self, start: AttemptStart) -> tuple[int, int]:
        """What the request that may have to follow needs: it is longer by as much as any was so far."""
        estimate = start.input_tokens_estimate
        if self._latest_estimate is not None:
            self._growth = max(self._growth, estimate - self._latest_estimate)
        self._latest_estimate = estimate
        if not self.keeps_for_answer:
            return 0, 0
        return estimate + self._growth, min(ANSWER_TOKENS, start.max_output_tokens)

    async def end(self, finish: AttemptFinish) -> None:
        """Settle the reservation and record how the attempt ended; a second time changes nothing.

        Cancellation: the settling is done; the record is stored, at the latest when the stage ends.
        """
        found = self._open.pop(finish.attempt_id, None)
        if found is None:
            return
        settled = self._budget.settle(found.reservation, finish.usage)
        self._warnings.extend(settled.warnings)
        how: How = "closed" if finish.status == "cancelled" else "already_ended"
        self._items.finish(self._stage.session_id, self._work_id(finish.attempt_id), how)
        self._log.add(self._ended(found.start, finish, settled.cost_micros))
        if finish.status == "cancelled":
            await self._log.flush_at_failure()
        elif finish.status != "completed":
            await self._log.flush()

    def take_warnings(self) -> tuple[LimitWarning, ...]:
        """Limits of tokens and money that came near since this was asked last."""
        warnings, self._warnings = tuple(self._warnings), []
        return warnings

    # ---- what goes on record

    def _work_id(self, attempt_id: str) -> str:
        return f"{self._stage.work_id}.{attempt_id}"

    def _spec(self, start: AttemptStart) -> WorkSpec:
        return WorkSpec(
            work_id=self._work_id(start.attempt_id),
            kind=WorkKind.MODEL_TURN,
            label=start.model,
            handle=StreamHandle(partial(self._stop, start.attempt_id)),
            parent_work_id=self._stage.work_id,
        )

    def _started(self, start: AttemptStart, reservation: Reservation) -> NewEvent:
        payload = AttemptStarted(
            attempt_id=start.attempt_id,
            stage_id=start.stage_id,
            round=start.round,
            ordinal=start.ordinal,
            model=start.model,
            pool=start.pool,
            reserved_tokens=reservation.tokens,
            reserved_micros=reservation.micros,
        )
        return self._event("attempt.started", start, payload)

    def _ended(self, start: AttemptStart, finish: AttemptFinish, cost_micros: int | None) -> NewEvent:
        payload = AttemptEnded(
            attempt_id=start.attempt_id,
            stage_id=start.stage_id,
            round=start.round,
            ordinal=start.ordinal,
            model=start.model,
            status=finish.status,
            usage=finish.usage,
            cost_micros=cost_micros,
            price_version=start.price.version if start.price is not None else None,
            code=finish.code,
            detail=finish.detail,
            finish=finish.finish,
            provider_request_id=finish.provider_request_id,
            duration_ms=finish.duration_ms,
            waited_ms=finish.waited_ms,
        )
        completed = finish.status == "completed"
        return self._event("attempt.completed" if completed else "attempt.failed", start, payload)

    def _event(self, type_: str, start: AttemptStart, payload: AttemptStarted | AttemptEnded) -> NewEvent:
        return NewEvent(
            type=type_,
            payload=payload,
            work_id=self._work_id(start.attempt_id),
            parent_work_id=self._stage.work_id,
        )
