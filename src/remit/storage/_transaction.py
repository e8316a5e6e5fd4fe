"""One transaction of the writer: what its operations share."""

from __future__ import annotations

import sqlite3
from typing import Protocol, TypeVar

from remit.contract import AuditFact
from remit.events import Event
from remit.primitives import Clock
from remit.storage._epochs import Epochs
from remit.storage._held import HeldRun, HeldRuns, RunRef
from remit.storage._rows import Rows, audit_row

ResultT_co = TypeVar("ResultT_co", covariant=True)


class Operation(Protocol[ResultT_co]):
    """Something to store. It is all or nothing, and raises before it has added anything."""

    @property
    def weight(self) -> int:
        """How many events it counts for in a batch."""
        ...

    @property
    def closing(self) -> bool:
        """Whether it only ends what has begun, so that it may use the reserve."""
        ...

    def run(self, transaction: Transaction) -> ResultT_co:
        """Decide, and add the rows.

        Raises:
            RemitError: It is refused, alone; the others of the batch go on.
            sqlite3.Error: The batch has to be given up, and tried again one by one.
        """
        ...


class Transaction:
    """What the operations of a batch read and add."""

    def __init__(
        self, connection: sqlite3.Connection, *, held: HeldRuns, epochs: Epochs, clock: Clock
    ) -> None:
        self.connection = connection
        self.epochs = epochs
        self.clock = clock
        self.rows = Rows()
        self.stored: list[tuple[RunRef, Event]] = []
        """The new events, in order."""
        self.audited: list[tuple[str, AuditFact]] = []
        """The new entries of the audit record, each with its tenant."""
        self.done: set[RunRef] = set()
        """The runs that nothing more is expected of; their states needn't be remembered."""
        self._held = held

    def find(self, ref: RunRef) -> HeldRun | None:
        """A run's state, this transaction's changes included."""
        return self._held.find(self.connection, ref)

    def forget(self, ref: RunRef) -> None:
        """Read the run's rows anew next time: they were changed past its remembered state."""
        self._held.forget(ref)

    def flush(self) -> None:
        """Make what was added visible to statements; whoever reads rows calls it first."""
        rows = self.rows
        if rows.events or rows.transcript or rows.artifacts or rows.audit:
            rows.flush(self.connection)

    def audit(self, tenant: str, fact: AuditFact) -> None:
        """Put an act on the audit record, with what else this transaction stores."""
        self.rows.audit.append(audit_row(tenant, self.clock.now(), fact))
        self.audited.append((tenant, fact))
