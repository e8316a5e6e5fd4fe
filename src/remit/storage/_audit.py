"""The audit record: written with what it tells of, in one transaction, and never changed."""

from __future__ import annotations

import json
import logging
import sqlite3
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from remit.contract import AuditEntry, AuditFact
from remit.primitives import dump_json, format_time, parse_time
from remit.runs import check_trim
from remit.storage._transaction import Transaction

MOST_ENTRIES_A_PAGE: Final = 1_000
_log = logging.getLogger("remit.audit")
_OLD: Final = (
    "at < ? AND id IS NOT (SELECT id FROM audit WHERE action = 'host.configured' ORDER BY id DESC LIMIT 1)"
)
_COLUMNS: Final = "id, tenant, at, actor, action, subject, origin, outcome, data"


def say_audited(tenant: str, fact: AuditFact) -> None:
    """The same as a line of JSON in the host's log, once it is stored."""
    _log.info("%s", dump_json({"tenant": tenant, **fact.model_dump(mode="json")}))


def read_audit(
    connection: sqlite3.Connection, *, tenant: str | None, before: int | None, limit: int
) -> tuple[AuditEntry, ...]:
    """A tenant's entries (None: all), the newest first, from below an id on."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM audit WHERE (? IS NULL OR tenant = ?) AND (? IS NULL OR id < ?)"  # noqa: S608 - names of our own columns
        " ORDER BY id DESC LIMIT ?",
        (tenant, tenant, before, before, max(1, min(limit, MOST_ENTRIES_A_PAGE))),
    )
    return tuple(map(_entry, rows))


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    id_, tenant, at, actor, action, subject, origin, outcome, data = row
    return AuditEntry(
        id=id_,
        tenant=tenant,
        at=parse_time(at),
        actor=actor,
        action=action,
        subject=subject,
        origin=origin,
        outcome=outcome,
        data=json.loads(data),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimAudit:
    """`trim_audit`."""

    before: datetime
    weight: int = 1
    closing: bool = True

    def run(self, transaction: Transaction) -> int:
        """Count what is old, and take it off; the last settings stay: the next are compared with them."""
        check_trim(self.before, now=transaction.clock.now())
        transaction.flush()
        connection, before = transaction.connection, format_time(self.before)
        (count,) = connection.execute(f"SELECT COUNT(*) FROM audit WHERE {_OLD}", (before,)).fetchone()  # noqa: S608 - a condition of our own
        if not count:
            return 0
        transaction.audit(
            "local",
            AuditFact(action="audit.trimmed", subject="audit", data={"acts": count, "before": before}),
        )
        transaction.flush()
        connection.execute(f"DELETE FROM audit WHERE {_OLD}", (before,))  # noqa: S608 - a condition of our own
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`record`."""

    tenant: str
    fact: AuditFact
    weight: int = 1
    closing: bool = False

    def run(self, transaction: Transaction) -> None:
        """Add it."""
        transaction.audit(self.tenant, self.fact)
