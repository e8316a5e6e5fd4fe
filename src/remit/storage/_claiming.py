"""Which run a host may take up."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from remit.contract import RunStatus
from remit.storage._epochs import Epochs
from remit.storage._held import RunRef
from remit.storage._schema import UNFINISHED

_OWNERS = "SELECT DISTINCT epoch FROM runs WHERE " + UNFINISHED  # noqa: S608 - words of our own
_UNFINISHED_OF = "SELECT key FROM runs WHERE epoch = ? AND " + UNFINISHED  # noqa: S608 - the same


def choose_run(connection: sqlite3.Connection, epochs: Epochs, epoch: str, ref: RunRef | None) -> int | None:
    """The key of the run to give to this epoch: the named one, or the oldest queued one; None: none."""
    if ref is not None:
        return _named(connection, epochs, epoch, ref)
    candidates: list[int] = []
    for owner, claimed in _queued_owners(connection):
        # Its own runs while nobody has taken them up; a dead host's in any case.
        if (owner == epoch and not claimed) or (owner != epoch and not epochs.is_alive(owner)):
            candidates.append(_oldest_queued(connection, owner, claimed))
    return min(candidates, default=None)


def _named(connection: sqlite3.Connection, epochs: Epochs, epoch: str, ref: RunRef) -> int | None:
    row = connection.execute(
        "SELECT key, status, epoch FROM runs WHERE tenant = ? AND id = ?", ref
    ).fetchone()
    if row is None or RunStatus(row[1]).ended:
        return None
    key, _, owner = row
    return key if owner == epoch or not epochs.is_alive(owner) else None


def _queued_owners(connection: sqlite3.Connection) -> Iterator[tuple[str, int]]:
    """Each (epoch, claimed) that has queued runs: one step in the index each, however many runs there are."""
    step = "SELECT epoch, claimed FROM runs WHERE status = 'queued'"
    order = " ORDER BY epoch, claimed LIMIT 1"
    row = connection.execute(step + order).fetchone()
    while row is not None:
        yield row
        row = connection.execute(step + " AND (epoch, claimed) > (?, ?)" + order, row).fetchone()


def _oldest_queued(connection: sqlite3.Connection, owner: str, claimed: int) -> int:
    return connection.execute(
        "SELECT min(key) FROM runs WHERE status = 'queued' AND epoch = ? AND claimed = ?", (owner, claimed)
    ).fetchone()[0]


def unfinished_of_dead(connection: sqlite3.Connection, epochs: Epochs) -> list[int]:
    """The keys of the unfinished runs whose host is dead, oldest first."""
    owners = connection.execute(_OWNERS).fetchall()
    dead = [owner for (owner,) in owners if not epochs.is_alive(owner)]
    return sorted(key for owner in dead for (key,) in connection.execute(_UNFINISHED_OF, (owner,)))
