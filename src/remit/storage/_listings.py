"""What is read over many runs of a tenant: its sessions, and its whole ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from remit.contract import AttemptEnded, AttemptStarted
from remit.errors import InvalidRequest
from remit.events import upcast_data
from remit.primitives import clean_text, format_time, parse_time
from remit.runs import AttemptRow, BilledAttempt, SessionRow, StoredRun
from remit.storage._queries import load_run
from remit.storage._schema import UNFINISHED
from remit.storage._texts import load_own

_MOST_SESSIONS_A_PAGE: Final = 500

_LEDGER: Final = """
SELECT r.id, r.session_id, r.binding, r.key_id,
       s.type, s.version, s.at, s.data, f.type, f.version, f.at, f.data
FROM runs r
JOIN attempts a ON a.run = r.key
JOIN events s ON s.run = a.run AND s.seq = a.started_seq
LEFT JOIN events f ON f.run = a.run AND f.seq = a.ended_seq
WHERE r.tenant = :tenant AND (:start IS NULL OR s.at >= :start) AND (:end IS NULL OR s.at < :end)
ORDER BY r.key, a.started_seq
"""

_ASKED: Final = """
SELECT r.key FROM runs r JOIN events q ON q.run = r.key AND q.seq = 1
WHERE r.tenant = :tenant AND r.created_at >= :since AND json_extract(q.data, '$.ask') = :ask
ORDER BY r.key DESC LIMIT 1
"""

_SPENT: Final = """
SELECT r.key_id, sum(CASE
    WHEN json_extract(f.data, '$.usage.coverage') = 'refused' THEN 0
    WHEN json_extract(f.data, '$.usage.coverage') = 'reported'
        AND json_extract(f.data, '$.cost_micros') IS NOT NULL THEN json_extract(f.data, '$.cost_micros')
    ELSE max(coalesce(json_extract(s.data, '$.reserved_micros'), 0),
             coalesce(json_extract(f.data, '$.cost_micros'), 0))
    END)
FROM runs r
JOIN attempts a ON a.run = r.key
JOIN events s ON s.run = a.run AND s.seq = a.started_seq
LEFT JOIN events f ON f.run = a.run AND f.seq = a.ended_seq
WHERE r.tenant = :tenant AND r.key_id IS NOT NULL AND (:key_id IS NULL OR r.key_id = :key_id)
GROUP BY r.key_id
"""
# As `LedgerRow.most_micros` counts one attempt.

_SESSIONS: Final = f"""
SELECT s.session_id, s.runs, s.active, s.created_at, s.last_run_at, r.id
FROM (
    SELECT session_id, count(*) AS runs, sum({UNFINISHED}) AS active, min(created_at) AS created_at,
           max(created_at) AS last_run_at, max(key) AS newest
    FROM runs WHERE tenant = :tenant AND (:session IS NULL OR session_id = :session)
    GROUP BY session_id
) s JOIN runs r ON r.key = s.newest
WHERE :before IS NULL OR s.newest < :before
ORDER BY s.newest DESC LIMIT :limit
"""  # noqa: S608 - a condition of our own


def read_ledger(
    connection: sqlite3.Connection, *, tenant: str, start: datetime | None, end: datetime | None
) -> tuple[BilledAttempt, ...]:
    """The attempts that started in `[start, end)`."""
    moments = {
        name: None if moment is None else format_time(moment)
        for name, moment in (("start", start), ("end", end))
    }
    return tuple(_billed(row) for row in connection.execute(_LEDGER, {"tenant": tenant, **moments}))


def _billed(row: Sequence[Any]) -> BilledAttempt:
    run_id, session_id, binding, key_id, *events = row
    started_type, started_version, started_at, started = events[:4]
    ended_type, ended_version, ended_at, ended = events[4:]
    begun = upcast_data(started_type, load_own(started), version=started_version)
    done = None if ended is None else upcast_data(ended_type, load_own(ended), version=ended_version)
    attempt = AttemptRow(
        run_id=run_id,
        started=AttemptStarted.model_validate(begun),
        started_at=parse_time(started_at),
        ended=None if done is None else AttemptEnded.model_validate(done),
        ended_at=None if ended_at is None else parse_time(ended_at),
    )
    return BilledAttempt(attempt=attempt, session_id=session_id, binding=binding, key_id=key_id)


def find_asked(connection: sqlite3.Connection, ask: str, *, tenant: str, since: datetime) -> StoredRun | None:
    """The newest run that this call asked for since a moment; None: it asked for none."""
    values = {"ask": ask, "tenant": tenant, "since": format_time(since)}
    row = connection.execute(_ASKED, values).fetchone()
    return None if row is None else load_run(connection, row[0])


def read_spent(connection: sqlite3.Connection, *, tenant: str, key_id: str | None) -> dict[str, int]:
    """Key -> micro-USD that its runs have cost at most; None: all keys of the tenant that spent any."""
    return dict(connection.execute(_SPENT, {"tenant": tenant, "key_id": key_id}).fetchall())


def list_sessions(
    connection: sqlite3.Connection, *, tenant: str, after: str | None, limit: int
) -> tuple[tuple[SessionRow, ...], str | None]:
    """A page of sessions, and where the next one begins."""
    limit = max(1, min(limit, _MOST_SESSIONS_A_PAGE))
    before = None if after is None else _key_of_cursor(connection, tenant, after)
    values = {"tenant": tenant, "session": None, "before": before, "limit": limit + 1}
    sessions = tuple(map(_session, connection.execute(_SESSIONS, values)))
    if len(sessions) <= limit:
        return sessions, None
    return sessions[:limit], sessions[limit - 1].last_run_id


def find_session(connection: sqlite3.Connection, *, tenant: str, session_id: str) -> SessionRow | None:
    """A session, or None."""
    values = {"tenant": tenant, "session": session_id, "before": None, "limit": 1}
    row = connection.execute(_SESSIONS, values).fetchone()
    return None if row is None else _session(row)


def _key_of_cursor(connection: sqlite3.Connection, tenant: str, cursor: str) -> int:
    place = (tenant, clean_text(cursor)[0])
    row = connection.execute("SELECT key FROM runs WHERE tenant = ? AND id = ?", place).fetchone()
    if row is None:
        raise InvalidRequest("there is no such place in the list", param="cursor")
    return row[0]


def _session(row: Sequence[Any]) -> SessionRow:
    session_id, runs, active, created_at, last_run_at, last_run_id = row
    return SessionRow(
        id=session_id,
        runs=runs,
        active_runs=active,
        created_at=parse_time(created_at),
        last_run_at=parse_time(last_run_at),
        last_run_id=last_run_id,
    )
