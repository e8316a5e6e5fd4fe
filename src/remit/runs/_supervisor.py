"""Owns one run from its claim to its terminal. The only writer of its end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from remit.contract import CancelRequested, Prepared, RunView, Terminal
from remit.errors import OwnershipError, RemitError, StorageError
from remit.events import NewEvent
from remit.runs._children import Delegation
from remit.runs._context import RunContext
from remit.runs._control import CancelAsked
from remit.runs._endings import Decision, classify_error, detail_of
from remit.runs._journal import RunJournal
from remit.runs._lineage import Offspring
from remit.runs._naming import name_in_host
from remit.runs._pipeline import Pipeline
from remit.runs._preparation import prepare_run, within_queue_time
from remit.runs._queueing import QueueWatch
from remit.runs._sessions import StoreSessions
from remit.runs._settlement import Settlement
from remit.runs._tools import RunTools
from remit.runs._work import RunWork
from remit.usage import Budget
from remit.work import WorkId

_log = logging.getLogger(__name__)


class Supervisor:
    """Drives one run.

    It guarantees exactly one terminal, written last, also when the cause is a fault of our own; nothing
    of the run goes on after it.
    """

    def __init__(self, context: RunContext) -> None:
        view = context.stored.view
        self._context = context
        self._journal = RunJournal(context.store, context.stored, context.feed)
        self._work = RunWork(
            context.registry,
            session_id=name_in_host(context.stored.tenant, view.session_id),
            run_id=view.id,
            residencies=context.control.residencies,
            clock=context.clock,
            note=self._journal.hold,
        )
        self._tools = (
            RunTools(context, self._journal, self._work, context.link)
            if context.link is not None and view.workspace is not None
            else None
        )
        self._pipeline: Pipeline | None = None
        self._session_context: str | None = None
        self._queue = QueueWatch(context.clock)
        self._live: asyncio.Task[Decision | OwnershipError] | None = None
        parent = context.parentage
        self._offspring = Offspring(
            limit=view.limits.max_children, above=parent.offspring if parent is not None else None
        )

    async def drive(self) -> RunView:
        """Take the run to its end; returns once the terminal is durable.

        Raises:
            OwnershipError: Somebody else owns the run; nothing more was written.
            StorageError: The end couldn't be stored; whoever starts next finds the run unfinished.
        """
        parent = self._context.parentage
        called_by = WorkId(parent.session_name, parent.work_id) if parent is not None else None
        self._work.begin(self._reached, parent=called_by)
        self._context.control.on_cancel(lambda asked: self._work.cancel())
        try:
            with self._work.residencies.acquire("pipeline"):
                decision = self._final(await self._decide())
            settlement = Settlement(
                self._context, self._journal, self._work, self._tools, children=self._offspring.run_ids
            )
            view = await settlement.settle(
                decision, stage_id=self._stage_id, cut_off=self._is_cut_off(decision)
            )
            self._context.control.durable.set()
            await settlement.put_away()
        finally:
            self._work.end("closed")
            self._context.place.release()
            if self._tools is not None:
                self._tools.delegation = None  # it leads back to them
        self._context.control.end(view)
        return view

    def _reached(self) -> None:
        """A cancel has reached the run in the registry: its own, or one of the call that it is a child of."""
        control, parent = self._context.control, self._context.parentage
        if parent is not None and control.asked is None:
            why, now = parent.why_stopped(), self._context.clock.now()
            monotonic = self._context.clock.monotonic()
            control.ask(CancelAsked(by=why.by, reason=why.reason, at=now, at_monotonic=monotonic))
        self._stop_live()

    def _stop_live(self) -> None:
        """A cancel has reached the run: whatever its pipeline does is cut off."""
        if self._live is not None and not self._context.control.committed:
            self._live.cancel()

    def _final(self, decision: Decision) -> Decision:
        """The decision, unless a cancel came after it was found and before anybody could know of it."""
        control = self._context.control
        was_first = control.committed or control.commit()
        control.committed = True
        return decision if was_first or decision.terminal.kind == "cancelled" else self._cancelled()

    def _is_cut_off(self, decision: Decision) -> bool:
        """Whether the stage that ran last has no end on record yet."""
        running = self._pipeline is not None and self._pipeline.running_stage is not None
        return running and decision.terminal.kind != "completed"

    # ---- while it goes on

    async def _decide(self) -> Decision:
        """The pipeline's decision, or the one that an error or a cancel leads to."""
        async with asyncio.TaskGroup() as group:
            announcer = group.create_task(self._announce_cancel(), name="announce cancel")
            self._live = group.create_task(self._guarded(), name=f"run {self._journal.view.id}")
            self._journal.on_overdue = lambda: group.create_task(self._flush(), name="store what waits")
            if self._context.control.asked is not None:
                self._live.cancel()
            decision = await self._live_result(self._live)
            self._journal.on_overdue = lambda: None
            if self._context.control.asked is None:
                announcer.cancel()
        if isinstance(decision, OwnershipError):
            raise decision
        return decision

    async def _flush(self) -> None:
        """Store what the pipeline holds back; if it can't be, the pipeline finds that out by itself."""
        with suppress(RemitError):
            await self._journal.flush()

    async def _live_result(self, live: asyncio.Task[Decision | OwnershipError]) -> Decision | OwnershipError:
        try:
            return await live
        except asyncio.CancelledError:
            if live.cancelled() and self._context.control.asked is not None:
                return self._cancelled()  # cut off before its first step
            raise

    async def _guarded(self) -> Decision | OwnershipError:
        """The pipeline; every error becomes a decision, but for a lost ownership."""
        try:
            return await self._run()
        except OwnershipError as error:
            return error
        except asyncio.CancelledError as error:
            error.__traceback__ = None  # where a task group was left, its frame would keep the error for ever
            if self._context.control.asked is not None:
                return self._cancelled()
            return Decision(terminal=classify_error(error, stage_id=self._stage_id))
        except Exception as error:  # noqa: BLE001 - a run has an end whatever happens (R11)
            if self._context.control.asked is not None and not self._context.control.committed:
                return self._cancelled()  # a cancelled parent wins over any error from below
            terminal = classify_error(error, stage_id=self._stage_id)
            if terminal.class_ == "internal":
                _log.exception("run %s: a fault of our own", self._journal.view.id)
            return Decision(terminal=terminal, detail=detail_of(error) or self._queue.told)

    async def _admitted(self) -> Prepared | None:
        """Wait for the session's turn and a place, then make everything ready; `queued` all the while."""
        sessions, stored = StoreSessions(self._context.store), self._context.stored
        if stored.view.session_id != stored.view.id:
            with self._queue.waiting("turn"):
                await sessions.wait_turn(stored)
            self._session_context = await sessions.context_of(stored)
        with self._queue.waiting("place"):
            await self._context.place.acquire()
        with self._queue.waiting("preparation"):
            return await prepare_run(self._context, self._journal, self._work)

    async def _run(self) -> Decision:
        prepared = await within_queue_time(self._admitted(), self._context, self._journal)
        if self._tools is not None and prepared is not None:
            self._tools.use_base(prepared)
        limits, parent = self._journal.view.limits, self._context.parentage
        above = await self._context.allowance() if parent is None else parent.budget
        budget = Budget(limits, parent=above)
        self._offer_children(budget)
        self._pipeline = Pipeline(
            self._context,
            self._journal,
            self._work,
            tools=self._tools,
            prepared=prepared,
            budget=budget,
            session_context=self._session_context,
            queue=self._queue.times(),
        )
        return await self._pipeline.run()

    def _offer_children(self, budget: Budget) -> None:
        tools = self._tools
        if tools is None or not Delegation.is_offered(self._context):
            return
        tools.delegation = Delegation(
            self._context,
            self._journal,
            self._work,
            budget=budget,
            offspring=self._offspring,
            drive=lambda child: Supervisor(child).drive(),
            apply=tools.take_over,
            remaining_s=tools.left_s,
        )

    @property
    def _stage_id(self) -> str | None:
        return self._pipeline.stage_id if self._pipeline else None

    # ---- cancelling

    def _cancelled(self) -> Decision:
        asked = self._context.control.asked
        code = asked.by if asked is not None else "caller"
        terminal = Terminal.of("cancelled", code, stage=self._stage_id)
        return Decision(terminal=terminal, detail=self._queue.told)

    async def _announce_cancel(self) -> None:
        """Put the cancel on record while the work is being stopped."""
        asked: CancelAsked = await self._context.control.wait_asked()
        payload = CancelRequested(by=asked.by, reason=asked.reason, requested_at=asked.at)
        event = NewEvent(type="run.cancel_requested", payload=payload, work_id=self._work.root_id)
        try:
            await self._journal.append(event)
        except OwnershipError:
            return  # the live side finds out by itself
        except StorageError:
            _log.warning("run %s: the cancel request couldn't be put on record", self._journal.view.id)
