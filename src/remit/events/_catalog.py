"""Every event there is, with the shape of its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from remit import contract
from remit.contract import Model, TerminalKind
from remit.errors import InternalError
from remit.events._event import Event, NewEvent

PAYLOADS: Final[dict[str, type[Model]]] = {
    "run.queued": contract.RunQueued,
    "run.started": contract.RunStarted,
    "run.cancel_requested": contract.CancelRequested,
    "run.released": contract.RunReleased,
    "run.finalizing": contract.RunFinalizing,
    "run.settling": contract.RunSettling,
    "run.completed": contract.RunEnded,
    "run.failed": contract.RunEnded,
    "run.cancelled": contract.RunEnded,
    "run.indeterminate": contract.RunEnded,
    "stage.started": contract.StageStarted,
    "stage.completed": contract.StageCompleted,
    "stage.failed": contract.StageFailed,
    "attempt.started": contract.AttemptStarted,
    "attempt.completed": contract.AttemptEnded,
    "attempt.failed": contract.AttemptEnded,
    "tool.started": contract.ToolStarted,
    "tool.completed": contract.ToolCompleted,
    "work.registered": contract.WorkRegistered,
    "work.finished": contract.WorkFinished,
    "work.cleanup_failed": contract.WorkCleanupFailed,
    "checkout.opened": contract.CheckoutOpened,
    "plan.ready": contract.PlanReady,
    "check.completed": contract.CheckCompleted,
    "review.decided": contract.ReviewDecided,
    "usage.updated": contract.UsageUpdated,
    "limit.warning": contract.LimitWarning,
    "delivery.intent": contract.DeliveryIntended,
    "delivery.completed": contract.DeliveryCompleted,
    "node.lost": contract.NodeChanged,
    "node.back": contract.NodeChanged,
}
"""Type -> shape of `data`."""

TERMINAL_TYPES: Final = frozenset({"run.completed", "run.failed", "run.cancelled", "run.indeterminate"})
"""The types that end a run; their data is the whole run as the API shows it, not wrapped."""

CLOSING_TYPES: Final = TERMINAL_TYPES | {
    "attempt.completed",
    "attempt.failed",
    "delivery.completed",
    "node.lost",
    "run.cancel_requested",
    "run.released",
    "run.settling",
    "stage.failed",
    "tool.completed",
    "usage.updated",
    "work.cleanup_failed",
    "work.finished",
}
"""Facts that end something and begin nothing: what a full disk must still take."""

EPHEMERAL_TYPES: Final = frozenset({"message.delta", "reasoning.delta", "tool.output"})
"""Not stored; `seq` is null."""


def terminal_type(kind: TerminalKind) -> str:
    """The type of the event that ends a run so."""
    return f"run.{kind}"


def closing_among(events: Sequence[NewEvent]) -> list[NewEvent]:
    """Those that only end something, in their order.

    Work that is over waits, beginning and end, for the next fact: its beginning is among them, then.
    """
    over = {event.work_id for event in events if event.type == "work.finished"}
    return [
        event
        for event in events
        if event.type in CLOSING_TYPES or (event.type == "work.registered" and event.work_id in over)
    ]


def payload_of(event: Event) -> Model:
    """An event's data in its own shape.

    Raises:
        InternalError: No such event type.
    """
    shape = PAYLOADS.get(event.type)
    if shape is None:
        raise InternalError(f"no event type {event.type!r}")
    if event.type in TERMINAL_TYPES:
        return contract.RunEnded(run=contract.RunView.model_validate(event.data))
    return shape.model_validate(event.data)
