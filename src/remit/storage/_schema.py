"""The tables, and what each invariant of the log is called in SQL.

The log is `events`; `runs`, `run_views` and `attempts` follow from it and are written in the same
transaction. `transcript`, `artifacts` and `idempotency_keys` are written beside the event that makes
them true; `history` is the host log. A run is named by `key`, its place in the order of admission, which
no caller ever sees; its own id is unique within its tenant only.

What is written here is what a *fresh* database gets. What was once released never changes: the way from there
to here is in `_migrations`, and a test holds both ways against each other.
"""

from __future__ import annotations

from typing import Final

from remit.contract import RunStatus
from remit.events import TERMINAL_TYPES


def _words(words: list[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


_STATUSES = _words([str(status) for status in RunStatus])
UNFINISHED: Final = f"status NOT IN ({_words([str(status) for status in RunStatus if status.ended])})"
"""A condition on `runs`, in the words of the index that answers it."""
_TERMINALS = _words(sorted(TERMINAL_TYPES))

SCHEMA_V1: Final = (
    f"""
    CREATE TABLE runs (
        key INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL,
        id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        binding TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN ({_STATUSES})),
        created_at TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        epoch TEXT NOT NULL,
        generation INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0),
        claimed INTEGER NOT NULL DEFAULT 0 CHECK (claimed IN (0, 1) AND (claimed = 0 OR generation > 0)),
        UNIQUE (tenant, id)
    )
    """,
    # Lists are read newest first within a tenant, or within one of its sessions.
    "CREATE INDEX runs_by_tenant ON runs (tenant)",
    "CREATE INDEX runs_by_session ON runs (tenant, session_id)",
    # The oldest queued run of an epoch is the first of its entries here.
    "CREATE INDEX runs_queued ON runs (epoch, claimed) WHERE status = 'queued'",
    # What a dead epoch left behind.
    f"CREATE INDEX runs_unfinished ON runs (epoch) WHERE {UNFINISHED}",
    """
    CREATE TABLE run_views (
        run INTEGER PRIMARY KEY REFERENCES runs (key),
        view TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (key),
        seq INTEGER NOT NULL CHECK (seq > 0),
        type TEXT NOT NULL,
        version INTEGER NOT NULL,
        at TEXT NOT NULL,
        work_id TEXT,
        parent_work_id TEXT,
        data TEXT NOT NULL
    )
    """,
    # A number names one event of a run.
    "CREATE UNIQUE INDEX events_in_order ON events (run, seq)",
    # A run is decided once: the first decision wins.
    "CREATE UNIQUE INDEX one_decision_per_run ON events (run) WHERE type = 'run.settling'",
    # A run reaches its commit point once: nothing is delivered twice.
    "CREATE UNIQUE INDEX one_delivery_intent_per_run ON events (run) WHERE type = 'delivery.intent'",
    # A run ends once.
    f"CREATE UNIQUE INDEX one_terminal_per_run ON events (run) WHERE type IN ({_TERMINALS})",
    # A run is admitted once.
    "CREATE UNIQUE INDEX one_admission_per_run ON events (run) WHERE type = 'run.queued'",
    # One line of the ledger per physical provider request, whatever is written about it.
    """
    CREATE TABLE attempts (
        run INTEGER NOT NULL REFERENCES runs (key),
        attempt_id TEXT NOT NULL,
        started_seq INTEGER NOT NULL,
        ended_seq INTEGER CHECK (ended_seq > started_seq),
        PRIMARY KEY (run, attempt_id)
    ) WITHOUT ROWID
    """,
    # (run, stage, position) is the identity of a message.
    """
    CREATE TABLE transcript (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (key),
        stage_id TEXT NOT NULL,
        position INTEGER NOT NULL CHECK (position >= 0),
        role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
        body TEXT NOT NULL,
        UNIQUE (run, stage_id, position)
    )
    """,
    # A name stands for the newest text that was stored under it.
    """
    CREATE TABLE artifacts (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (key),
        name TEXT NOT NULL,
        media_type TEXT NOT NULL,
        text TEXT NOT NULL,
        UNIQUE (run, name)
    )
    """,
    # A key stands for one run of its tenant, for ever.
    """
    CREATE TABLE idempotency_keys (
        tenant TEXT NOT NULL,
        key TEXT NOT NULL,
        run INTEGER NOT NULL REFERENCES runs (key),
        PRIMARY KEY (tenant, key)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE history (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (key),
        at TEXT NOT NULL,
        type TEXT NOT NULL,
        data TEXT NOT NULL
    )
    """,
    "CREATE INDEX history_by_run ON history (run)",
)
"""The statements of the first released schema."""

SCHEMA_V2: Final = (
    # An id that was made dead before a run had it, for ever; the first who did so is remembered.
    """
    CREATE TABLE tombstones (
        tenant TEXT NOT NULL,
        id TEXT NOT NULL,
        at TEXT NOT NULL,
        "by" TEXT NOT NULL,
        reason TEXT,
        PRIMARY KEY (tenant, id)
    ) WITHOUT ROWID
    """,
)
"""What the second one adds."""

SCHEMA_V3: Final = (
    # A caller's key, under its hash; `record` holds all of it but the moment of its end.
    """
    CREATE TABLE api_keys (
        id TEXT PRIMARY KEY,
        hash TEXT NOT NULL UNIQUE,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        created_at TEXT NOT NULL,
        revoked_at TEXT,
        record TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    # A name stands for one living key of its tenant.
    "CREATE UNIQUE INDEX one_living_key_per_name ON api_keys (tenant, name) WHERE revoked_at IS NULL",
)
"""What the third one adds."""

SCHEMA_V4: Final = (
    # The run that started this one as its child; none for nearly all.
    "ALTER TABLE runs ADD COLUMN parent_id TEXT",
    "UPDATE runs SET parent_id ="
    " (SELECT json_extract(v.view, '$.parent_run_id') FROM run_views v WHERE v.run = runs.key)",
    "CREATE INDEX runs_by_parent ON runs (tenant, parent_id) WHERE parent_id IS NOT NULL",
)
"""What the fourth one adds."""

SCHEMA_V5: Final = (
    # The key that it was asked with; none for the owner of the machine.
    "ALTER TABLE runs ADD COLUMN key_id TEXT",
    "UPDATE runs SET key_id ="
    " (SELECT json_extract(q.data, '$.key_id') FROM events q WHERE q.run = runs.key AND q.seq = 1)",
    "CREATE INDEX runs_by_key_id ON runs (tenant, key_id) WHERE key_id IS NOT NULL",
)
"""What the fifth one adds."""

SCHEMA_V6: Final = (
    # What an operator answers for: who did what, when, from where. `AUTOINCREMENT`: no id is ever used again.
    """
    CREATE TABLE audit (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant TEXT NOT NULL,
        at TEXT NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        subject TEXT NOT NULL,
        origin TEXT,
        outcome TEXT NOT NULL,
        data TEXT NOT NULL
    )
    """,
    "CREATE INDEX audit_by_tenant ON audit (tenant)",
    # It is only ever added to.
    """
    CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
    BEGIN SELECT RAISE (ABORT, 'the audit record is only added to'); END
    """,
    """
    CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
    BEGIN SELECT RAISE (ABORT, 'the audit record is only added to'); END
    """,
)
"""What the sixth one adds."""

SCHEMA_V7: Final = (
    "DROP TRIGGER audit_is_not_deleted",
    # What is old may go, by whoever counts it on the record; what is new never.
    """
    CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit
    WHEN julianday (OLD.at) > julianday ((SELECT at FROM audit ORDER BY id DESC LIMIT 1)) - 30
    BEGIN SELECT RAISE (ABORT, 'what is on the audit record stays there for thirty days at least'); END
    """,
)
"""What the seventh one changes."""
