"""The projections, made anew from the log; and whether they are as the log says."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from remit.contract import RunView
from remit.errors import InternalError
from remit.events import Event
from remit.runs import fold_event
from remit.storage._held import RunRef
from remit.storage._queries import EVENT_QUERY, event_of
from remit.storage._transaction import Transaction

_ATTEMPTS = """
SELECT s.run, json_extract(s.data, '$.attempt_id'), s.seq,
       (SELECT e.seq FROM events e WHERE e.run = s.run AND e.type IN ('attempt.completed', 'attempt.failed')
        AND json_extract(e.data, '$.attempt_id') = json_extract(s.data, '$.attempt_id'))
FROM events s WHERE s.type = 'attempt.started' AND s.run = ?
"""


def fold_log(events: Iterable[Event]) -> RunView:
    """The row that a run's log stands for.

    Raises:
        InternalError: There is no such log: it is empty, or doesn't begin with `run.queued`.
    """
    view: RunView | None = None
    for event in events:
        view = fold_event(view, event)
    if view is None:
        raise InternalError("a run without events")
    return view


@dataclass(frozen=True, slots=True, kw_only=True)
class Projections:
    """What follows from the log of one run."""

    key: int
    ref: RunRef
    view: RunView
    attempts: tuple[tuple[int, str, int, int | None], ...]

    def differs(self, connection: sqlite3.Connection) -> bool:
        """Whether the rows say something else."""
        status, view = connection.execute(
            "SELECT r.status, v.view FROM runs r LEFT JOIN run_views v ON v.run = r.key WHERE r.key = ?",
            (self.key,),
        ).fetchone()
        if status != self.view.status or _read_view(view) != self.view:
            return True
        rows = connection.execute(
            "SELECT run, attempt_id, started_seq, ended_seq FROM attempts WHERE run = ?", (self.key,)
        )
        return set(rows) != set(self.attempts)

    def write(self, connection: sqlite3.Connection) -> None:
        """Make the rows say it."""
        connection.execute("UPDATE runs SET status = ? WHERE key = ?", (str(self.view.status), self.key))
        connection.execute(
            "INSERT OR REPLACE INTO run_views (run, view) VALUES (?, ?)",
            (self.key, self.view.model_dump_json()),
        )
        connection.execute("DELETE FROM attempts WHERE run = ?", (self.key,))
        connection.executemany(
            "INSERT INTO attempts (run, attempt_id, started_seq, ended_seq) VALUES (?, ?, ?, ?)",
            self.attempts,
        )


def _read_view(text: str | None) -> RunView | None:
    try:
        return None if text is None else RunView.model_validate_json(text)
    except ValueError:
        return None


def from_logs(connection: sqlite3.Connection) -> Iterator[Projections]:
    """The projections of every run, as its log says, one at a time."""
    keys = connection.execute("SELECT key, tenant, id FROM runs ORDER BY key").fetchall()
    for key, tenant, run_id in keys:
        rows = connection.execute(f"{EVENT_QUERY} WHERE e.run = ? ORDER BY e.seq", (key,))
        yield Projections(
            key=key,
            ref=RunRef(tenant, run_id),
            view=fold_log(map(event_of, rows)),
            attempts=tuple(connection.execute(_ATTEMPTS, (key,))),
        )


def find_drift(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The ids of the runs whose rows aren't what their logs say. It should be none, at any time."""
    return tuple(found.ref.run_id for found in from_logs(connection) if found.differs(connection))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """Makes every run's rows anew from its log; the result is how many weren't right."""

    weight: int = 500
    closing: bool = False

    def run(self, transaction: Transaction) -> int:
        """Write the rows that differ."""
        transaction.flush()
        wrong = [
            found for found in from_logs(transaction.connection) if found.differs(transaction.connection)
        ]
        for found in wrong:
            found.write(transaction.connection)
            transaction.forget(found.ref)
        return len(wrong)
