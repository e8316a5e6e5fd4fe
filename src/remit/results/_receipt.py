"""The account of a cancel: each piece of work, how it was stopped, and how fast."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from remit.contract import CancelItem, CancelReceipt
from remit.work import ClosedItem


def write_receipt(
    closed: Iterable[ClosedItem], *, requested_at: datetime, by: str, reason: str | None, complete: bool
) -> CancelReceipt:
    """The receipt of one cancel.

    Args:
        closed: What ended after the cancel had reached it.
        requested_at: When it was asked for.
        by: A code of the terminal class `cancelled`.
        reason: The caller's own words, if there were any.
        complete: Whether nothing was left running.
    """
    items = tuple(
        CancelItem(
            work_id=item.work_id,
            kind=item.kind.value,
            label=item.label,
            how=item.how,
            ms=item.ms,
            pids=item.pids or None,
        )
        for item in closed
    )
    return CancelReceipt(requested_at=requested_at, by=by, reason=reason, complete=complete, items=items)
