"""New facts of a run on their way into its log: the rules, and what follows from each fact.

Pure: state and facts in, rows and the next state out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from remit.contract import AttemptEnded, AttemptStarted, Model, RunEnded, RunView
from remit.errors import AlreadyDecided, InternalError, MisuseError, StaleGeneration
from remit.events import (
    CURRENT_VERSION,
    TERMINAL_TYPES,
    Artifact,
    Event,
    NewEvent,
    TranscriptEntry,
    number_event,
    payload_of,
)
from remit.primitives import clean_text, format_time
from remit.runs import VIEW_TYPES, fold_payload
from remit.storage._held import HeldRun
from remit.storage._rows import Rows
from remit.storage._texts import clean_name, dump_clean


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A fact in the form in which it is stored."""

    event: Event
    payload: Model
    data: str
    """`event.data` as text."""


def check_owner(held: HeldRun | None, generation: int) -> HeldRun:
    """The run, if whoever wrote this generation owns it and it hasn't ended."""
    if held is None or not held.claimed or held.generation != generation:
        raise StaleGeneration("this host doesn't own the run any more; it must stop its own copy of it")
    if held.ended:
        raise AlreadyDecided("the run has ended")
    return held


def check_types(held: HeldRun, events: Sequence[NewEvent], *, ends: bool) -> None:
    """What may stand in one write, and what may stand in a log only once.

    Raises:
        MisuseError, AlreadyDecided: As the port says.
    """
    types = [event.type for event in events]
    if "run.queued" in types:
        raise MisuseError("a run is admitted by `submit`")
    terminals = [type_ in TERMINAL_TYPES for type_ in types]
    if ends and (not types or not terminals[-1] or any(terminals[:-1])):
        raise MisuseError("the last fact of `finish` is the run's terminal, and no other one is")
    if not ends and any(terminals):
        raise MisuseError("a terminal is stored by `finish`")
    if types.count("run.settling") + held.settled > 1:
        raise AlreadyDecided("how the run ends was decided before")
    if types.count("delivery.intent") + held.intended > 1:
        raise AlreadyDecided("the run's delivery was intended before")


def write_down(new: NewEvent, *, seq: int, run_id: str, session_id: str, at: datetime) -> Fact:
    """A fact with its number and its moment, its text cleaned."""
    event = number_event(new, seq=seq, run_id=run_id, session_id=session_id, at=at)
    payload = new.payload
    try:
        data, cleaned, replaced = dump_clean(event.data)
    except (ValueError, RecursionError) as error:
        raise InternalError(f"the data of {new.type!r} can't be written as JSON: {error}") from error
    work_id, parent_work_id = clean_name(new.work_id), clean_name(new.parent_work_id)
    if replaced or work_id is not new.work_id or parent_work_id is not new.parent_work_id:
        names = {"work_id": work_id, "parent_work_id": parent_work_id}
        event = event.model_copy(update={"data": cleaned, **names})
    if replaced:
        payload = payload_of(event)  # the row is what the log says
    _check_terminal(event, payload)
    return Fact(event=event, payload=payload, data=data)


def _check_terminal(event: Event, payload: Model) -> None:
    if not isinstance(payload, RunEnded):
        return
    run = payload.run
    if run.id != event.run_id or event.type != f"run.{run.status}" or run.terminal is None:
        raise InternalError(f"the data of {event.type!r} is another run's, or one that ended otherwise")


def fold_facts(view: RunView | None, facts: Sequence[Fact]) -> RunView | None:
    """The run's row after these facts."""
    for fact in facts:
        if fact.event.type in VIEW_TYPES:
            view = fold_payload(view, fact.payload)
    return view


def add_facts(rows: Rows, key: int, facts: Sequence[Fact]) -> None:
    """The rows of these facts and of what follows from each."""
    if not facts:
        return
    at = format_time(facts[0].event.at)  # one write has one moment
    for fact in facts:
        event = fact.event
        rows.events.append(
            (key, event.seq, event.type, CURRENT_VERSION, at, event.work_id, event.parent_work_id, fact.data)
        )
        match fact.payload:
            case AttemptStarted() as started:
                rows.attempts_started.append((key, started.attempt_id, event.seq))
            case AttemptEnded() as ended:
                rows.attempts_ended.append((event.seq, key, ended.attempt_id))
            case _:
                pass


def transcript_rows(key: int, entries: Sequence[TranscriptEntry]) -> list[tuple[int, str, int, str, str]]:
    """The rows of a conversation's messages."""
    return [
        (key, clean_text(entry.stage_id)[0], entry.position, entry.role, dump_clean(entry.body)[0])
        for entry in entries
    ]


def artifact_rows(key: int, artifacts: Sequence[Artifact]) -> list[tuple[int, str, str, str]]:
    """The rows of named texts."""
    return [(key, clean_text(item.name)[0], item.media_type, clean_text(item.text)[0]) for item in artifacts]
