"""What the writer remembers of the runs it writes to, so that an append needs no look-up."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final, NamedTuple

from remit.contract import RunView

_MOST_HELD: Final = 20_000


class RunRef(NamedTuple):
    """What names a run."""

    tenant: str
    run_id: str


@dataclass(slots=True, kw_only=True)
class HeldRun:
    """The state of a run as of its last event."""

    key: int
    ref: RunRef
    generation: int
    claimed: bool
    last_seq: int
    view: RunView
    settled: bool
    """`run.settling` is stored."""
    intended: bool
    """`delivery.intent` is stored."""
    key_id: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the terminal is stored."""
        return self.view.status.ended


class HeldRuns:
    """The runs that were written to lately. It is right as long as no other connection has written."""

    def __init__(self) -> None:
        self._runs: dict[RunRef, HeldRun] = {}

    def find(self, connection: sqlite3.Connection, ref: RunRef) -> HeldRun | None:
        """The run's state, from memory or from its rows."""
        held = self._runs.get(ref)
        if held is None:
            held = _load(connection, ref)
            if held is not None:
                self._runs[ref] = held
        return held

    def forget(self, ref: RunRef) -> None:
        """Look at the rows next time."""
        self._runs.pop(ref, None)

    def forget_all(self) -> None:
        """Look at the rows next time, whatever the run."""
        self._runs.clear()

    def trim(self) -> None:
        """Forget those that were held longest, where there are too many; it costs each a look-up.

        Only between transactions: what a transaction has changed isn't in the rows yet.
        """
        if len(self._runs) > _MOST_HELD:
            for ref in list(self._runs)[: len(self._runs) - _MOST_HELD]:
                del self._runs[ref]


_LOAD = """
SELECT r.key, r.generation, r.claimed, v.view,
       (SELECT max(seq) FROM events WHERE run = r.key),
       EXISTS (SELECT 1 FROM events WHERE run = r.key AND type = 'run.settling'),
       EXISTS (SELECT 1 FROM events WHERE run = r.key AND type = 'delivery.intent'),
       r.key_id
FROM runs r JOIN run_views v ON v.run = r.key
WHERE r.tenant = ? AND r.id = ?
"""


def _load(connection: sqlite3.Connection, ref: RunRef) -> HeldRun | None:
    row = connection.execute(_LOAD, ref).fetchone()
    if row is None:
        return None
    key, generation, claimed, view, last_seq, settled, intended, key_id = row
    return HeldRun(
        key=key,
        ref=ref,
        generation=generation,
        claimed=bool(claimed),
        last_seq=last_seq,
        view=RunView.model_validate_json(view),
        settled=bool(settled),
        intended=bool(intended),
        key_id=key_id,
    )
