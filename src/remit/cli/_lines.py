"""Progress where nothing can be redrawn: one line for each stage, tool and check."""

from __future__ import annotations

from remit.cli._formats import (
    between_ms,
    call_words,
    check_words,
    count,
    duration,
    exit_words,
    failure_words,
    label_of,
    trouble_words,
)
from remit.cli._screen import Glyphs
from remit.cli._story import StageStory, Story
from remit.cli._words import one_line
from remit.contract import (
    AttemptEnded,
    CheckCompleted,
    LimitWarning,
    StageCompleted,
    StageFailed,
    ToolCompleted,
)
from remit.events import EPHEMERAL_TYPES, Event, payload_of

_LABEL_CHARS = 100


def line_of(event: Event, story: Story, glyphs: Glyphs) -> str | None:
    """What to print for an event; None: nothing. `story` knows the event already."""
    if event.type in EPHEMERAL_TYPES:
        return None
    match payload_of(event):
        case ToolCompleted() as done:
            return _tool_line(done, story)
        case AttemptEnded() as ended:
            stage = story.find_stage(ended.stage_id)
            words = trouble_words(stage.trouble) if stage is not None and stage.trouble is not None else None
            return f"{ended.stage_id}: {words}" if words is not None else None
        case StageCompleted() | StageFailed() as ended:
            stage = story.find_stage(ended.stage_id)
            return _stage_line(stage) if stage is not None else None
        case CheckCompleted(check=check):
            before, after = exit_words(check.base_exit), exit_words(check.exit)
            return f"check {check.id}: {before} {glyphs.arrow} {after} ({check_words(check)})"
        case LimitWarning() as warning:
            return f"80 % of {warning.kind} is used ({warning.value:,g} of {warning.cap:,g})"
        case _:
            return None


def _tool_line(done: ToolCompleted, story: Story) -> str:
    stage = story.find_stage(done.stage_id)
    calls = stage.calls if stage is not None else []
    call = next((call for call in calls if call.started.tool_call_id == done.tool_call_id), None)
    label = call.started.label if call is not None else ""
    child = f"{one_line(call.child_id, width=40)}, " if call is not None and call.child_id else ""
    return f"{done.stage_id}: {label_of(done.name, label, width=_LABEL_CHARS)} ({child}{call_words(done)})"


def _stage_line(stage: StageStory) -> str:
    took = duration(between_ms(stage.started_at, stage.ended_at or stage.started_at))
    if stage.failure is not None:
        failed = "" if stage.failure.class_ == "cancelled" else "failed, "
        return f"{stage.stage_id}: {failed}{failure_words(stage.failure)} ({took})"
    word = stage.answer.get("decision", "done")
    return f"{stage.stage_id}: {word} ({count(stage.rounds, 'round')}, {took})"
