"""What became of a run's patch: what the run itself did, and what was done by hand since it ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_args

from remit.contract import Delivery, DeliveryMode, RunView
from remit.runs._ports import HistoryEntry


def ended_delivery(delivery: Delivery | None) -> Delivery | None:
    """A delivery as the run's end leaves it: whoever was waited for isn't any more."""
    if delivery is None or delivery.status != "awaiting_approval":
        return delivery
    return Delivery(mode=delivery.mode, status="skipped")


def newest_delivery(view: RunView, history: Sequence[HistoryEntry]) -> Delivery | None:
    """The state of a run's delivery after what its host log says."""
    states: list[Delivery | None] = [view.delivery]
    for entry in history:
        match entry.type:
            case "delivery.completed":
                states.append(_of(entry.data, "delivered"))
            case "delivery.conflict":
                states.append(_of(entry.data, "conflict"))
            case "delivery.discarded":
                states.append(Delivery(mode="patch", status="discarded"))
            case "delivery.undone":
                states.append(_undone(view))
            case _:
                pass
    return states[-1]


def with_newest_delivery(view: RunView, history: Sequence[HistoryEntry]) -> RunView:
    """The run, with what was done with its patch by hand since it ended."""
    if not view.status.ended or view.patch is None:
        return view
    delivery = newest_delivery(view, history)
    return view if delivery == view.delivery else view.model_copy(update={"delivery": delivery})


def _of(data: dict[str, Any], status: Any) -> Delivery:
    mode, ref = data.get("mode"), data.get("ref")
    known = cast("DeliveryMode", mode) if mode in get_args(DeliveryMode) else "apply"
    return Delivery(mode=known, status=status, ref=ref if isinstance(ref, str) else None)


def _undone(view: RunView) -> Delivery | None:
    """What a run is left with once what it applied was taken back: its patch, which can be applied again."""
    applied = (
        view.workspace is not None and view.workspace.isolation == "in_place"
        if view.delivery is None
        else view.delivery.status == "delivered" and view.delivery.mode != "patch"
    )
    return Delivery(mode="patch", status="delivered") if applied else view.delivery
