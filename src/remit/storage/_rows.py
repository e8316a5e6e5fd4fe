"""Rows on their way into the database, gathered over the operations of a batch and written together."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from remit.contract import AuditFact, RunView
from remit.primitives import clean_text, format_time
from remit.storage._texts import dump_clean

_EVENT = """
INSERT INTO events (run, seq, type, version, at, work_id, parent_work_id, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_VIEW = "INSERT INTO run_views (run, view) VALUES (?, ?) ON CONFLICT (run) DO UPDATE SET view = excluded.view"
_STATUS = "UPDATE runs SET status = ? WHERE key = ?"
_RELEASE = "UPDATE runs SET claimed = 0 WHERE key = ?"
_ATTEMPT_STARTED = "INSERT INTO attempts (run, attempt_id, started_seq) VALUES (?, ?, ?)"
_ATTEMPT_ENDED = "UPDATE attempts SET ended_seq = ? WHERE run = ? AND attempt_id = ? AND ended_seq IS NULL"
_TRANSCRIPT = "INSERT INTO transcript (run, stage_id, position, role, body) VALUES (?, ?, ?, ?, ?)"
_ARTIFACT = """
INSERT INTO artifacts (run, name, media_type, text) VALUES (?, ?, ?, ?)
ON CONFLICT (run, name) DO UPDATE SET media_type = excluded.media_type, text = excluded.text
"""

_AUDIT = """
INSERT INTO audit (tenant, at, actor, action, subject, origin, outcome, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

Row = tuple[Any, ...]


class BrokenRule(Exception):
    """What is to be stored contradicts what is stored; no constraint of the tables can see it."""


@dataclass(slots=True)
class Rows:
    """What a batch adds. Nothing of it is in the database before `flush`."""

    events: list[Row] = field(default_factory=list[Row])
    views: dict[int, RunView] = field(default_factory=dict[int, RunView])
    """Run key -> its newest view: however many events of a batch change it, it is written once."""
    statuses: dict[int, str] = field(default_factory=dict[int, str])
    released: list[Row] = field(default_factory=list[Row])
    attempts_started: list[Row] = field(default_factory=list[Row])
    attempts_ended: list[Row] = field(default_factory=list[Row])
    transcript: list[Row] = field(default_factory=list[Row])
    artifacts: list[Row] = field(default_factory=list[Row])

    audit: list[Row] = field(default_factory=list[Row])

    def flush(self, connection: sqlite3.Connection) -> None:
        """Write all of it.

        Raises:
            BrokenRule, sqlite3.Error: One of the rows can't be; the transaction has to be given up.
        """
        many = connection.executemany
        many(_EVENT, self.events)
        if self.views:
            many(_VIEW, [(key, view.model_dump_json()) for key, view in self.views.items()])
        if self.statuses:
            many(_STATUS, [(status, key) for key, status in self.statuses.items()])
        if self.released:
            many(_RELEASE, self.released)
        if self.attempts_started:
            many(_ATTEMPT_STARTED, self.attempts_started)
        if self.attempts_ended:
            ended = many(_ATTEMPT_ENDED, self.attempts_ended).rowcount
            if ended != len(self.attempts_ended):
                raise BrokenRule("an attempt ended that hadn't started, or had ended")
        if self.transcript:
            many(_TRANSCRIPT, self.transcript)
        if self.artifacts:
            many(_ARTIFACT, self.artifacts)
        if self.audit:
            many(_AUDIT, self.audit)
        self.clear()

    def clear(self) -> None:
        """Forget what wasn't written."""
        for gathered in (
            self.events,
            self.views,
            self.statuses,
            self.released,
            self.attempts_started,
            self.attempts_ended,
            self.transcript,
            self.artifacts,
            self.audit,
        ):
            gathered.clear()


def audit_row(tenant: str, at: datetime, fact: AuditFact) -> tuple[Any, ...]:
    """The row of a fact."""
    words = (fact.actor, fact.action, fact.subject, fact.origin, fact.outcome)
    cleaned = [None if word is None else clean_text(word)[0] for word in words]
    return (tenant, format_time(at), *cleaned, dump_clean(fact.data)[0])
