"""What the registry shows of its items, as lines of pages and lists. Pure; `now` is one reading for all."""

from __future__ import annotations

from remit.work._elapsed import elapsed_ms
from remit.work._entry import Entry, Session
from remit.work._handles import is_cancellable
from remit.work._items import Observation, PageEntry, WorkSnapshot


def page_entry(entry: Entry, now: float) -> PageEntry:
    """The item as a line of an observation page."""
    return PageEntry(
        work_id=entry.work_id,
        stage=entry.stage,
        elapsed_ms=None if entry.stage is None else elapsed_ms(entry.stage_at, now),
        cancelled=entry.cancelled,
    )


def snapshots(session: Session, now: float) -> tuple[WorkSnapshot, ...]:
    """The items of a session, ordered by work id."""
    return tuple(_snapshot(session.entries[work_id], now) for work_id in session.ids())


def _snapshot(entry: Entry, now: float) -> WorkSnapshot:
    seen = entry.stage
    return WorkSnapshot(
        work_id=entry.work_id,
        kind=entry.spec.kind,
        label=entry.spec.label,
        tool_call_id=entry.spec.tool_call_id,
        status="cancelling" if entry.cancelled else "running",
        observation=None
        if seen is None
        else Observation(stage=seen, elapsed_ms=elapsed_ms(entry.stage_at, now)),
        cancellable=is_cancellable(entry.handle),
    )
