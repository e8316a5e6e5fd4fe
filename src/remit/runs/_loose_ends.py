"""What a dead host left open in a run's log, and how each is closed: as it is known, never as it was hoped.

Pure: the log in, facts out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remit.contract import (
    AttemptEnded,
    AttemptStarted,
    AttemptUsage,
    How,
    RunStatus,
    RunView,
    StageCompleted,
    StageFailed,
    StageStarted,
    Terminal,
    ToolCompleted,
    ToolStarted,
    ToolStatus,
    WorkFinished,
    WorkKind,
    WorkRegistered,
)
from remit.errors import InternalError
from remit.events import Event, NewEvent, payload_of

__all__ = ["close_loose_ends"]

_DELEGATE = "delegate"


def close_loose_ends(
    events: Iterable[Event], *, children: Sequence[RunView], terminal: Terminal
) -> tuple[NewEvent, ...]:
    """An end for each beginning that has none, the newest first.

    Args:
        events: The log of a run whose host died.
        children: The runs that it had started, as they ended, in that order.
        terminal: How the run ends.
    """
    open_: dict[tuple[str, str], Event] = {}
    for event in events:
        payload = payload_of(event)
        match payload:
            case AttemptStarted():
                open_["attempt", payload.attempt_id] = event
            case AttemptEnded():
                open_.pop(("attempt", payload.attempt_id), None)
            case ToolStarted():
                open_["tool", f"{payload.stage_id}/{payload.tool_call_id}"] = event
            case ToolCompleted():
                open_.pop(("tool", f"{payload.stage_id}/{payload.tool_call_id}"), None)
            case StageStarted():
                open_["stage", payload.stage_id] = event
            case StageCompleted() | StageFailed():
                open_.pop(("stage", payload.stage_id), None)
            case WorkRegistered():
                open_["work", event.work_id or ""] = event
            case WorkFinished():
                open_.pop(("work", event.work_id or ""), None)
            case _:
                pass
    return tuple(_end_of(event, children, terminal) for event in reversed(open_.values()))


def _end_of(event: Event, children: Sequence[RunView], terminal: Terminal) -> NewEvent:
    payload = payload_of(event)
    match payload:
        case AttemptStarted():
            type_, ended = "attempt.failed", _interrupted(payload)
        case ToolStarted():
            type_, ended = "tool.completed", _unanswered(payload, _status_of(event, payload, children))
        case StageStarted() if terminal.class_ is not None and terminal.code is not None:
            type_ = "stage.failed"
            ended = StageFailed(stage_id=payload.stage_id, class_=terminal.class_, code=terminal.code)
        case WorkRegistered():
            type_ = "work.finished"
            ended = WorkFinished(
                kind=payload.kind, label=payload.label, how=_how_of(event, payload, children)
            )
        case _:
            raise InternalError(f"a {event.type} has no end")
    return NewEvent(type=type_, payload=ended, work_id=event.work_id, parent_work_id=event.parent_work_id)


def _how_of(event: Event, began: WorkRegistered, children: Sequence[RunView]) -> How:
    """A node's work is abandoned; a child run may never have been stored, or may have ended before."""
    if began.kind != WorkKind.RUN:
        return "abandoned"
    child = next((view for view in children if view.id == event.work_id), None)
    if child is None:
        return "not_started"
    lost = child.terminal is not None and child.terminal.class_ == "lost"
    return "abandoned" if lost else "already_ended"


def _interrupted(started: AttemptStarted) -> AttemptEnded:
    """Its host died before the answer was there: what it used isn't known."""
    return AttemptEnded(
        attempt_id=started.attempt_id,
        stage_id=started.stage_id,
        round=started.round,
        ordinal=started.ordinal,
        model=started.model,
        status="interrupted",
        usage=AttemptUsage(coverage="interrupted"),
    )


def _unanswered(started: ToolStarted, status: ToolStatus) -> ToolCompleted:
    return ToolCompleted(
        tool_call_id=started.tool_call_id,
        stage_id=started.stage_id,
        name=started.name,
        status=status,
        exit_code=None,
        duration_ms=None,
        receipt_id=None,
    )


def _status_of(event: Event, started: ToolStarted, children: Sequence[RunView]) -> ToolStatus:
    """What is known of a call in flight.

    One that starts a child goes alone, so its child is the newest, if that one came after it. Only a child
    that passed changes its parent's checkout; whether it had been put there isn't known.
    """
    if started.name != _DELEGATE:
        return "outcome_unknown"
    newest = children[-1] if children else None
    if newest is None or newest.created_at < event.at:
        return "cancelled"
    return "outcome_unknown" if newest.status is RunStatus.COMPLETED else "failed"
