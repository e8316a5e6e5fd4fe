"""Reads how a run stands after what was done with its patch by hand."""

from __future__ import annotations

from remit.contract import RunView
from remit.runs._deliveries import with_newest_delivery
from remit.runs._ports import RunStore


def may_be_delivered_later(view: RunView) -> bool:
    """Whether a host log may say more of the run's delivery than the run's events do."""
    return view.status.ended and view.patch is not None


async def read_newest_view(store: RunStore, view: RunView, *, tenant: str = "local") -> RunView:
    """The run, with what was done with its patch by hand since it ended."""
    if not may_be_delivered_later(view):
        return view
    return with_newest_delivery(view, await store.read_history(view.id, tenant=tenant))
