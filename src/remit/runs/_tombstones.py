"""Ids that were made dead before a run had them.

A cancel may come before the start that it is for. With a tombstone it isn't lost: the id is dead for ever,
and a start with it answers a run that is cancelled, and was never anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from remit.contract import (
    CancelReceipt,
    CancelRequested,
    RunEnded,
    RunSettling,
    RunStatus,
    RunView,
    Terminal,
    UsageUpdated,
)
from remit.events import NewEvent
from remit.runs._control import CancelBy
from remit.usage import summarise


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """A dead id. The first one of an id stays."""

    run_id: str
    by: CancelBy
    """A code of the terminal class `cancelled`."""
    reason: str | None
    """The caller's own words."""
    at: datetime


def end_buried(queued: RunView, tombstone: Tombstone, *, at: datetime) -> tuple[NewEvent, ...]:
    """The facts that follow on the `run.queued` of a dead id, in the same transaction. Pure.

    Args:
        queued: The run as it was admitted.
        tombstone: Why it goes no further.
        at: The moment of its admission, which is that of its end.
    """
    terminal, bill = Terminal.of("cancelled", tombstone.by), summarise([])
    receipt = CancelReceipt(
        requested_at=tombstone.at, by=tombstone.by, reason=tombstone.reason, complete=True
    )
    ended = queued.model_copy(
        update={
            "status": RunStatus.CANCELLED,
            "cancel_requested": True,
            "ended_at": at,
            "terminal": terminal,
            "usage": bill.usage,
            "cost_usd": bill.cost_usd,
            "estimated_max_cost_usd": bill.estimated_max_cost_usd,
            "cancel": receipt,
        }
    )
    asked = CancelRequested(by=tombstone.by, reason=tombstone.reason, requested_at=tombstone.at)
    settling = RunSettling(kind=terminal.kind, class_=terminal.class_, code=terminal.code)
    billed = UsageUpdated(
        usage=bill.usage, cost_usd=bill.cost_usd, estimated_max_cost_usd=bill.estimated_max_cost_usd
    )
    return (
        NewEvent(type="run.cancel_requested", payload=asked, work_id=queued.id),
        NewEvent(type="run.settling", payload=settling, work_id=queued.id),
        NewEvent(type="usage.updated", payload=billed, work_id=queued.id),
        NewEvent(type="run.cancelled", payload=RunEnded(run=ended), work_id=queued.id),
    )
