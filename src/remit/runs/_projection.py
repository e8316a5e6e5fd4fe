"""The run's row as a pure fold over its events: rebuildable at any time."""

from __future__ import annotations

from typing import Any

from remit.contract import (
    CancelRequested,
    CheckCompleted,
    CheckoutOpened,
    DeliveryCompleted,
    Model,
    ReviewDecided,
    RunEnded,
    RunFinalizing,
    RunQueued,
    RunSettling,
    RunStarted,
    RunStatus,
    RunView,
    StageStarted,
    UsageUpdated,
)
from remit.errors import InternalError
from remit.events import Event, payload_of

VIEW_TYPES = frozenset(
    {
        "run.queued",
        "run.started",
        "run.cancel_requested",
        "run.finalizing",
        "run.settling",
        "run.completed",
        "run.failed",
        "run.cancelled",
        "run.indeterminate",
        "stage.started",
        "checkout.opened",
        "check.completed",
        "review.decided",
        "delivery.completed",
        "usage.updated",
    }
)
"""The events that change the row; every other one leaves it as it was."""


def fold_event(view: RunView | None, event: Event) -> RunView:
    """The row after one more event.

    Args:
        view: The row so far; None before `run.queued`.
        event: The next fact of the same run.

    Raises:
        InternalError: The log doesn't begin with `run.queued`, or goes on after its end.
    """
    if view is not None and event.type not in VIEW_TYPES:
        return view
    return fold_payload(view, payload_of(event))


def fold_payload(view: RunView | None, payload: Model) -> RunView:
    """`fold_event`, for a payload that is already in its own shape."""
    if isinstance(payload, RunQueued):
        return payload.run
    if view is None:
        raise InternalError("a run's log begins with run.queued")
    if view.status.ended:
        raise InternalError("a run's log ends with its terminal")
    if isinstance(payload, RunEnded):
        return payload.run
    changes = _changes(view, payload)
    return view.model_copy(update=changes) if changes else view


def _changes(view: RunView, payload: Model) -> dict[str, Any]:
    match payload:
        case RunStarted():
            changes: dict[str, Any] = {
                "started_at": payload.started_at,
                "deadline_at": payload.deadline_at,
            }
            if payload.prepared is not None:
                changes["workspace"] = payload.prepared.workspace
            return changes
        case CancelRequested():
            return {"cancel_requested": True}
        case StageStarted():
            return {"status": payload.status}
        case RunFinalizing():
            return {"status": RunStatus.FINALIZING}
        case RunSettling():
            return {"status": RunStatus.SETTLING, "output": payload.output}
        case CheckoutOpened() if view.workspace is not None:
            opened = {"isolation": payload.isolation, "sandbox": payload.sandbox}
            return {"workspace": view.workspace.model_copy(update=opened)}
        case CheckCompleted():
            kept = tuple(check for check in view.checks if check.id != payload.check.id)
            return {"checks": (*kept, payload.check)}
        case ReviewDecided():
            return {"review": payload.review, "patch": payload.patch or view.patch}
        case DeliveryCompleted():
            return {"delivery": payload.delivery}
        case UsageUpdated():
            return {
                "usage": payload.usage,
                "cost_usd": payload.cost_usd,
                "estimated_max_cost_usd": payload.estimated_max_cost_usd,
            }
        case _:
            return {}
