"""The run's row as a pure fold over its events: rebuildable at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from remit.contract import (
    CancelRequested,
    CheckCompleted,
    CheckoutOpened,
    DeliveryCompleted,
    DeliveryIntended,
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
        "delivery.intent",
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


def _started(view: RunView, payload: RunStarted) -> dict[str, Any]:
    changes: dict[str, Any] = {"started_at": payload.started_at, "deadline_at": payload.deadline_at}
    if payload.prepared is not None:
        changes["workspace"] = payload.prepared.workspace
    return changes


def _opened(view: RunView, payload: CheckoutOpened) -> dict[str, Any]:
    if view.workspace is None:
        return {}
    found = {"isolation": payload.isolation, "sandbox": payload.sandbox}
    return {"workspace": view.workspace.model_copy(update=found)}


def _checked(view: RunView, payload: CheckCompleted) -> dict[str, Any]:
    kept = tuple(check for check in view.checks if check.id != payload.check.id)
    return {"checks": (*kept, payload.check)}


def _billed(view: RunView, payload: UsageUpdated) -> dict[str, Any]:
    return {
        "usage": payload.usage,
        "cost_usd": payload.cost_usd,
        "estimated_max_cost_usd": payload.estimated_max_cost_usd,
    }


def _finalizing(view: RunView, payload: RunFinalizing) -> dict[str, Any]:
    changes: dict[str, Any] = {"status": RunStatus.FINALIZING, "delivery": payload.delivery}
    return changes if payload.patch is None else changes | {"patch": payload.patch}


_FOLDS: Final[dict[type[Model], Callable[[RunView, Any], dict[str, Any]]]] = {
    RunStarted: _started,
    CancelRequested: lambda view, payload: {"cancel_requested": True},
    StageStarted: lambda view, payload: {"status": payload.status},
    RunFinalizing: _finalizing,
    RunSettling: lambda view, payload: {"status": RunStatus.SETTLING, "output": payload.output},
    CheckoutOpened: _opened,
    CheckCompleted: _checked,
    ReviewDecided: lambda view, payload: {"review": payload.review, "patch": payload.patch or view.patch},
    DeliveryIntended: lambda view, payload: {"patch": payload.patch},
    DeliveryCompleted: lambda view, payload: {"delivery": payload.delivery},
    UsageUpdated: _billed,
}
"""What each kind of fact changes in the row."""


def _changes(view: RunView, payload: Model) -> dict[str, Any]:
    fold = _FOLDS.get(type(payload))
    return fold(view, payload) if fold is not None else {}
