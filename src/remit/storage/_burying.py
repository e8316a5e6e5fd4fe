"""Dead ids: how one is made, and how it is found again."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import cast

from remit.errors import InvalidRequest
from remit.primitives import clean_text, format_time, is_run_id, parse_time
from remit.runs import CancelBy, Tombstone
from remit.storage._held import RunRef
from remit.storage._transaction import Transaction


def find_tombstone(connection: sqlite3.Connection, ref: RunRef) -> Tombstone | None:
    """The tombstone of an id, or None."""
    row = connection.execute(
        'SELECT id, "by", reason, at FROM tombstones WHERE tenant = ? AND id = ?', ref
    ).fetchone()
    if row is None:
        return None
    run_id, by, reason, at = row
    return Tombstone(run_id=run_id, by=cast("CancelBy", by), reason=reason, at=parse_time(at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bury:
    """`bury`."""

    ref: RunRef
    by: CancelBy
    reason: str | None
    weight: int = 1
    closing: bool = False

    def run(self, transaction: Transaction) -> Tombstone | None:
        """Make the id dead, unless it is a run's."""
        if not is_run_id(self.ref.run_id):
            raise InvalidRequest("an id is 1 to 128 of A-Z a-z 0-9 _ -", param="id")
        there = transaction.connection.execute("SELECT 1 FROM runs WHERE tenant = ? AND id = ?", self.ref)
        if there.fetchone() is not None:
            return None
        reason = None if self.reason is None else clean_text(self.reason)[0]
        transaction.connection.execute(
            'INSERT INTO tombstones (tenant, id, at, "by", reason) VALUES (?, ?, ?, ?, ?)'
            " ON CONFLICT DO NOTHING",
            (*self.ref, format_time(transaction.clock.now()), self.by, reason),
        )
        return find_tombstone(transaction.connection, self.ref)
