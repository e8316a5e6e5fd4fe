"""The last part of a run: what is left is stopped, the bill is read, the terminal is written.

run.settling (the decision) ─> processes, checkout, residencies ─> usage ─> terminal, in one transaction
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from remit.contract import (
    CancelReceipt,
    Delivery,
    RunEnded,
    RunSettling,
    RunStatus,
    RunView,
    StageFailed,
    Terminal,
    UsageCause,
    UsageUpdated,
    WorkCleanupFailed,
)
from remit.errors import StorageError, StorageFull
from remit.events import NewEvent, terminal_type
from remit.results import final_terminal, write_receipt
from remit.runs._context import RunContext
from remit.runs._deliveries import ended_delivery
from remit.runs._draining import Draining
from remit.runs._endings import Decision
from remit.runs._journal import RunJournal
from remit.runs._states import Trigger, next_status
from remit.runs._tools import RunTools
from remit.runs._work import RunWork
from remit.usage import Bill, LedgerRow, strict_causes, summarise
from remit.work import CleanupFailure, ObservedStage

_log = logging.getLogger(__name__)


def _cleanup_failed(failure: CleanupFailure) -> NewEvent:
    payload = WorkCleanupFailed(kind=failure.kind.value, label=failure.work_id, message=failure.message)
    return NewEvent(type="work.cleanup_failed", payload=payload, work_id=failure.work_id)


_TRIGGERS = {
    "completed": Trigger.COMPLETE,
    "failed": Trigger.FAIL,
    "cancelled": Trigger.CANCEL,
    "indeterminate": Trigger.LOSE,
}


class Settlement:
    """Takes one run from its decision to its terminal. Nothing cancels it; it bounds its own time.

    Args:
        context: The run's surroundings.
        journal: Its log.
        work: Its work items.
        tools: Its hands; None without a workspace.
        children: Its child runs, however deep, which have ended: they are on its bill.
    """

    def __init__(
        self,
        context: RunContext,
        journal: RunJournal,
        work: RunWork,
        tools: RunTools | None,
        *,
        children: Sequence[str] = (),
    ) -> None:
        self._context = context
        self._journal = journal
        self._work = work
        self._children = children
        self._draining = Draining(context, journal, work, tools)

    async def settle(self, decision: Decision, *, stage_id: str | None, cut_off: bool) -> RunView:
        """Write the decision, drain, read the bill, write the terminal.

        Args:
            decision: How the run ends.
            stage_id: The stage that ran last; None when none did.
            cut_off: Whether that stage's end isn't on record yet.

        Returns:
            The run as it ended.
        """
        decision = await self._decide(decision, stage_id, cut_off=cut_off)
        self._work.see(ObservedStage.CLEANUP)
        await self._draining.drain(completed=decision.terminal.kind == "completed")
        self._work.see(ObservedStage.RETIREMENT)
        bill, causes = await self._bill()
        terminal = final_terminal(
            decision.terminal,
            causes,
            abandoned=bool(self._draining.abandoned),
            usage_required=self._context.stored.request.usage == "required",
        )
        view = self._final_view(decision, terminal, bill)
        updated = UsageUpdated(
            usage=bill.usage,
            cost_usd=bill.cost_usd,
            estimated_max_cost_usd=bill.estimated_max_cost_usd,
        )
        await self._journal.finish(
            NewEvent(type="usage.updated", payload=updated, work_id=self._work.root_id),
            NewEvent(
                type=terminal_type(terminal.kind), payload=RunEnded(run=view), work_id=self._work.root_id
            ),
            artifacts=self._draining.artifacts,
        )
        return self._journal.view

    async def put_away(self) -> None:
        """After the terminal: close a checkout that is kept and that nobody had to wait for."""
        await self._draining.put_away()

    # ---- the decision

    async def _decide(self, decision: Decision, stage_id: str | None, *, cut_off: bool) -> Decision:
        """Write how the run ends; on a full disk without what was held back and can be missed.

        A run completes by what is on record: where that can't be stored, it has failed.

        Returns:
            The decision that stands.
        """
        cut_off_stage = stage_id if cut_off else None
        try:
            await self._journal.append(*self._facts_of(decision, cut_off_stage))
        except StorageFull:
            if not self._journal.give_up_all_but_ends():
                raise
            if decision.terminal.kind == "completed":
                decision = Decision(terminal=Terminal.of("workspace", "storage_full", stage=stage_id))
            await self._journal.append(*self._facts_of(decision, cut_off_stage))
        return decision

    def _facts_of(self, decision: Decision, cut_off_stage: str | None) -> list[NewEvent]:
        end = decision.terminal
        settling = RunSettling(
            kind=end.kind,
            class_=end.class_,
            code=end.code,
            stage=end.stage,
            limit=end.limit,
            output=decision.output,
            detail=decision.detail,
        )
        events = [_cleanup_failed(failure) for failure in self._context.control.cleanup_failures]
        if cut_off_stage is not None and end.class_ is not None and end.code is not None:
            failed = StageFailed(stage_id=cut_off_stage, class_=end.class_, code=end.code)
            work_id = self._work.id_of(cut_off_stage)
            events.append(NewEvent(type="stage.failed", payload=failed, work_id=work_id))
        events.append(NewEvent(type="run.settling", payload=settling, work_id=self._work.root_id))
        return events

    # ---- the bill

    async def _bill(self) -> tuple[Bill, tuple[UsageCause, ...]]:
        """The bill, and why it isn't complete in the strict view."""
        view, tenant = self._journal.view, self._context.stored.tenant
        try:
            attempts = await self._context.store.read_attempts(view.id, tenant=tenant)
            below = [
                LedgerRow.of(child, row.started, row.ended)
                for child in self._children
                for row in await self._context.store.read_attempts(child, tenant=tenant)
            ]
        except StorageError:
            return summarise([], readable=False), strict_causes([], readable=False)
        rows = [LedgerRow.of(view.id, row.started, row.ended) for row in attempts]
        return summarise(rows, below), strict_causes([*rows, *below])

    # ---- the terminal

    def _final_view(self, decision: Decision, terminal: Terminal, bill: Bill) -> RunView:
        view = self._journal.view
        status = next_status(RunStatus.SETTLING, _TRIGGERS[terminal.kind])
        return view.model_copy(
            update={
                "status": status,
                "ended_at": self._context.clock.now(),
                "terminal": terminal,
                "output": decision.output,
                "patch": self._draining.patch or view.patch,
                "usage": bill.usage,
                "cost_usd": bill.cost_usd,
                "estimated_max_cost_usd": bill.estimated_max_cost_usd,
                "delivery": self._delivery(),
                "cancel": self._receipt(),
                "abandoned": tuple(self._draining.abandoned),
            }
        )

    def _delivery(self) -> Delivery | None:
        """What became of the patch: skipped where nothing was delivered; None without a workspace."""
        view, request = self._journal.view, self._context.stored.request
        delivery = ended_delivery(view.delivery)
        if delivery is not None or view.workspace is None or request.in_place:
            return delivery
        asked = request.delivery
        mode = asked.mode if asked is not None else self._context.binding.delivery
        return Delivery(mode=mode, status="skipped")

    def _receipt(self) -> CancelReceipt | None:
        asked = self._context.control.asked
        if asked is None:
            return None
        return write_receipt(
            self._work.closed(),
            requested_at=asked.at,
            by=asked.by,
            reason=asked.reason,
            complete=not self._draining.abandoned,
        )
