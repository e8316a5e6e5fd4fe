"""What is read, as functions on a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from remit.contract import AttemptEnded, AttemptStarted, RunRequest, RunView
from remit.errors import InternalError, InvalidRequest
from remit.events import Artifact, Event, TranscriptEntry, payload_of, upcast_data
from remit.primitives import clean_text, format_time, parse_time
from remit.runs import AttemptRow, HistoryEntry, StoredRun
from remit.storage._held import RunRef
from remit.storage._texts import load_own

MOST_RUNS_A_PAGE = 500
MOST_EVENTS_A_PAGE = 5_000

_RUN = """
SELECT v.view, q.data, q.version, r.fingerprint, r.tenant, r.epoch, r.generation, r.key_id,
       (SELECT max(seq) FROM events WHERE run = r.key)
FROM runs r JOIN run_views v ON v.run = r.key JOIN events q ON q.run = r.key AND q.seq = 1
"""
# The request isn't kept a second time: it stands in the run's first event.

EVENT_QUERY = """
SELECT e.type, e.version, e.seq, r.id, r.session_id, e.at, e.work_id, e.parent_work_id, e.data
FROM events e JOIN runs r ON r.key = e.run
"""


def load_run(connection: sqlite3.Connection, key: int) -> StoredRun:
    """The run of a key that exists."""
    row = connection.execute(_RUN + "WHERE r.key = ?", (key,)).fetchone()
    if row is None:
        raise InternalError("a run without its row or its first event", key=key)
    return _stored_run(row)


def find_run(connection: sqlite3.Connection, ref: RunRef) -> StoredRun | None:
    """A run by its id, or None."""
    row = connection.execute(_RUN + "WHERE r.tenant = ? AND r.id = ?", ref).fetchone()
    return None if row is None else _stored_run(row)


def children_of(connection: sqlite3.Connection, ref: RunRef) -> tuple[StoredRun, ...]:
    """The runs whose parent is this one."""
    rows = connection.execute(_RUN + "WHERE r.tenant = ? AND r.parent_id = ? ORDER BY r.key", ref)
    return tuple(_stored_run(row) for row in rows)


def find_by_key(connection: sqlite3.Connection, tenant: str, key: str) -> tuple[int, str] | None:
    """(key, fingerprint) of the run that an idempotency key stands for."""
    return connection.execute(
        "SELECT r.key, r.fingerprint FROM idempotency_keys i JOIN runs r ON r.key = i.run"
        " WHERE i.tenant = ? AND i.key = ?",
        (tenant, key),
    ).fetchone()


def load_by_key(connection: sqlite3.Connection, tenant: str, key: str) -> StoredRun | None:
    """The run that an idempotency key stands for, or None."""
    found = find_by_key(connection, tenant, key)
    return None if found is None else load_run(connection, found[0])


def _stored_run(row: Sequence[Any]) -> StoredRun:
    view, queued, version, fingerprint, tenant, epoch, generation, key_id, last_seq = row
    request = upcast_data("run.queued", load_own(queued), version=version)["request"]
    return StoredRun(
        view=RunView.model_validate_json(view),
        request=RunRequest.model_validate(request),
        fingerprint=fingerprint,
        tenant=tenant,
        epoch=epoch,
        generation=generation,
        last_seq=last_seq,
        key_id=key_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs of a tenant."""

    tenant: str
    statuses: Sequence[str]
    session_id: str | None
    binding: str | None
    created_after: datetime | None
    after: str | None
    """The id of the last run of the page before."""

    def conditions(self, connection: sqlite3.Connection) -> tuple[str, list[Any]]:
        """The WHERE of a query over `runs r`, and its values."""
        parts, values = ["r.tenant = ?"], [cast("Any", self.tenant)]
        for column, value in (("session_id", self.session_id), ("binding", self.binding)):
            if value is not None:
                parts.append(f"r.{column} = ?")
                values.append(clean_text(value)[0])
        if self.statuses:
            parts.append(f"r.status IN ({', '.join('?' * len(self.statuses))})")
            values.extend(clean_text(status)[0] for status in self.statuses)
        if self.created_after is not None:
            parts.append("r.created_at > ?")
            values.append(format_time(self.created_after))
        if self.after is not None:
            parts.append("r.key < ?")
            values.append(self._key_of_cursor(connection))
        return " AND ".join(parts), values

    def _key_of_cursor(self, connection: sqlite3.Connection) -> int:
        cursor = (self.tenant, clean_text(self.after or "")[0])
        row = connection.execute("SELECT key FROM runs WHERE tenant = ? AND id = ?", cursor).fetchone()
        if row is None:
            raise InvalidRequest("there is no such place in the list", param="cursor")
        return row[0]


def list_runs(
    connection: sqlite3.Connection, wanted: RunFilter, limit: int
) -> tuple[tuple[StoredRun, ...], str | None]:
    """A page of runs, newest first, and where the next one begins."""
    limit = max(1, min(limit, MOST_RUNS_A_PAGE))
    where, values = wanted.conditions(connection)
    rows = connection.execute(f"{_RUN} WHERE {where} ORDER BY r.key DESC LIMIT ?", [*values, limit + 1])
    runs = tuple(_stored_run(row) for row in rows)
    if len(runs) <= limit:
        return runs, None
    return runs[:limit], runs[limit - 1].view.id


def read_events(connection: sqlite3.Connection, ref: RunRef, *, after: int, limit: int) -> tuple[Event, ...]:
    """A run's events behind a number."""
    limit = max(1, min(limit, MOST_EVENTS_A_PAGE))
    rows = connection.execute(
        f"{EVENT_QUERY} WHERE r.tenant = ? AND r.id = ? AND e.seq > ? ORDER BY e.seq LIMIT ?",
        (*ref, after, limit),
    )
    return tuple(event_of(row) for row in rows)


def event_of(row: Sequence[Any]) -> Event:
    """The event of a row of `EVENT_QUERY`."""
    type_, version, seq, run_id, session_id, at, work_id, parent_work_id, data = row
    return Event(
        type=type_,
        seq=seq,
        run_id=run_id,
        session_id=session_id,
        at=parse_time(at),
        work_id=work_id,
        parent_work_id=parent_work_id,
        data=upcast_data(type_, load_own(data), version=version),
    )


def last_seq(connection: sqlite3.Connection, ref: RunRef) -> int:
    """The number of a run's last event; 0 where there is no run."""
    row = connection.execute(
        "SELECT max(e.seq) FROM events e JOIN runs r ON r.key = e.run WHERE r.tenant = ? AND r.id = ?", ref
    ).fetchone()
    return row[0] or 0


def read_attempts(connection: sqlite3.Connection, ref: RunRef) -> tuple[AttemptRow, ...]:
    """The run's ledger."""
    rows = connection.execute(
        f"{EVENT_QUERY} JOIN attempts a ON a.run = e.run AND e.seq IN (a.started_seq, a.ended_seq)"
        " WHERE r.tenant = ? AND r.id = ? ORDER BY a.started_seq, e.seq",
        ref,
    )
    ledger: dict[str, AttemptRow] = {}
    for event in map(event_of, rows):
        match payload_of(event):
            case AttemptStarted() as started:
                ledger[started.attempt_id] = AttemptRow(
                    run_id=event.run_id, started=started, started_at=event.at, ended=None, ended_at=None
                )
            case AttemptEnded() as ended:
                open_row = ledger[ended.attempt_id]
                ledger[ended.attempt_id] = AttemptRow(
                    run_id=event.run_id,
                    started=open_row.started,
                    started_at=open_row.started_at,
                    ended=ended,
                    ended_at=event.at,
                )
            case other:
                raise InternalError(f"the ledger names a {type(other).__name__}")
    return tuple(ledger.values())


def read_transcript(
    connection: sqlite3.Connection, ref: RunRef, *, stage_id: str | None
) -> tuple[TranscriptEntry, ...]:
    """The run's conversations."""
    stage = None if stage_id is None else clean_text(stage_id)[0]
    rows = connection.execute(
        "SELECT t.stage_id, t.position, t.role, t.body FROM transcript t JOIN runs r ON r.key = t.run"
        " WHERE r.tenant = ? AND r.id = ? AND (? IS NULL OR t.stage_id = ?) ORDER BY t.id",
        (*ref, stage, stage),
    )
    by_stage: dict[str, list[TranscriptEntry]] = {}
    for stage, position, role, body in rows:
        entry = TranscriptEntry(stage_id=stage, position=position, role=role, body=load_own(body))
        by_stage.setdefault(stage, []).append(entry)
    return tuple(entry for entries in by_stage.values() for entry in sorted(entries, key=_position))


def _position(entry: TranscriptEntry) -> int:
    return entry.position


def read_artifact(connection: sqlite3.Connection, ref: RunRef, name: str) -> Artifact | None:
    """A named text."""
    row = connection.execute(
        "SELECT a.name, a.text, a.media_type FROM artifacts a JOIN runs r ON r.key = a.run"
        " WHERE r.tenant = ? AND r.id = ? AND a.name = ?",
        (*ref, clean_text(name)[0]),
    ).fetchone()
    return None if row is None else Artifact(name=row[0], text=row[1], media_type=row[2])


def list_artifacts(connection: sqlite3.Connection, ref: RunRef) -> tuple[str, ...]:
    """The names of a run's texts."""
    rows: Iterable[tuple[str]] = connection.execute(
        "SELECT a.name FROM artifacts a JOIN runs r ON r.key = a.run WHERE r.tenant = ? AND r.id = ?", ref
    )
    return tuple(sorted(name for (name,) in rows))


def read_history(connection: sqlite3.Connection, ref: RunRef) -> tuple[HistoryEntry, ...]:
    """The run's host log."""
    rows = connection.execute(
        "SELECT h.at, h.type, h.data FROM history h JOIN runs r ON r.key = h.run"
        " WHERE r.tenant = ? AND r.id = ? ORDER BY h.id",
        ref,
    )
    return tuple(HistoryEntry(at=parse_time(at), type=type_, data=load_own(data)) for at, type_, data in rows)
