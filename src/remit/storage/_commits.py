"""A batch of operations becomes one transaction, unless one has to fail: then it fails alone.

An operation that is refused, because its generation is stale, say, is refused before it has added a row,
and the others go on. Should the database itself refuse what a batch adds, the batch is done again with a
savepoint for each operation; on a full disk, with a transaction for each.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from remit.errors import InternalError, RemitError, StorageFull
from remit.primitives import Clock
from remit.storage._audit import say_audited
from remit.storage._connections import Checkpoints
from remit.storage._epochs import Epochs
from remit.storage._faults import is_full, is_ones_own, is_sync_failure, storage_error
from remit.storage._folder import DataFolder
from remit.storage._foreign import ForeignChanges
from remit.storage._held import HeldRuns, RunRef
from remit.storage._hooks import Commit, CommitHook, CommitMoment
from remit.storage._patience import Patience
from remit.storage._reserve import Reserve
from remit.storage._transaction import Operation, Transaction

T = TypeVar("T")


class Reply(asyncio.Future[T]):
    """What a caller waits for, whoever cancels it meanwhile.

    It doesn't let itself be cancelled, so a task that waits for it gets its cancel when the reply is
    there: the write is settled by then.
    """

    def cancel(self, msg: Any = None) -> bool:
        """No."""
        return False

    def forget(self) -> None:
        """Nobody will look at the reply any more; an error in it isn't worth a warning."""
        if self.done():
            self.exception()


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """An operation, and who waits for its answer."""

    operation: Operation[Any]
    reply: Reply[Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request."""

    request: Request
    result: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class Stored:
    """What came of a batch."""

    answers: list[Answer] = field(default_factory=list[Answer])
    grown: dict[RunRef, int] = field(default_factory=dict[RunRef, int])
    """Runs with new events, whoever wrote them, and the last number of each."""


class StoreEnded(BaseException):
    """The store can't go on: a hook ended it, or the disk didn't make a write durable."""


class Commits:
    """Stores batches on one connection, in whichever thread calls it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        folder: DataFolder,
        *,
        epochs: Epochs,
        clock: Clock,
        hook: CommitHook | None,
        busy_wait_ms: int,
    ) -> None:
        self._connection = connection
        self._folder = folder
        self._epochs = epochs
        self._clock = clock
        self._hook = hook
        self._patience = Patience(connection, wait_ms=busy_wait_ms)
        self._held = HeldRuns()
        self._foreign = ForeignChanges(connection)
        self._checkpoints = Checkpoints(folder, connection, after=self._patience.look_again)
        self._reserve = Reserve(folder, clock=clock)
        self._reserve.make()
        self._number = 0
        self._closed = False

    def store(self, batch: Sequence[Request]) -> Stored:
        """Store what can be stored; every request gets its answer.

        Raises:
            StoreEnded: Nothing more can be stored, and what became of the batch isn't known.
        """
        stored = Stored()
        self._reserve.look_again()
        if self._reserve.spent:
            batch = self._turn_away(batch, stored)
        if batch:
            self._store_together(batch, stored)
            self._checkpoints.run_when_due()
        return stored

    def look_around(self) -> dict[RunRef, int]:
        """The runs that others have written to meanwhile."""
        try:
            grown = self._foreign.look()
        except (RemitError, sqlite3.OperationalError):
            return {}  # whoever writes next is told
        if grown is None:
            return {}
        self._held.forget_all()
        return grown

    def close(self) -> None:
        """Move the log into the database, as far as others allow it, and close the connection."""
        if not self._closed:
            self._checkpoints.run()
            self.abandon()

    def abandon(self) -> None:
        """Close the connection and leave all else as it is."""
        self._closed = True
        self._connection.close()

    def _turn_away(self, batch: Sequence[Request], stored: Stored) -> list[Request]:
        """With the reserve spent, only what ends things is stored."""
        for request in batch:
            if not request.operation.closing:
                error = StorageFull("the disk under the data folder is full; free some space")
                stored.answers.append(Answer(request, error=error))
        return [request for request in batch if request.operation.closing]

    def _store_together(self, batch: Sequence[Request], stored: Stored) -> None:
        try:
            self._transact(batch, stored)
        except RemitError as error:
            stored.answers.extend(Answer(request, error=error) for request in batch)
        except sqlite3.OperationalError as error:
            if is_full(error, self._folder):
                self._store_singly(batch, stored)
            else:
                self._fail(batch, error, stored)
        except Exception as error:  # noqa: BLE001 - it is told to whom it belongs
            if is_ones_own(error):
                self._store_guarded(batch, stored)
            else:
                self._fail(batch, error, stored)

    def _store_guarded(self, batch: Sequence[Request], stored: Stored) -> None:
        """The batch again, with a savepoint for each operation."""
        try:
            self._transact(batch, stored, guarded=True)
        except sqlite3.Error as error:
            self._fail(batch, error, stored)

    def _store_singly(self, batch: Sequence[Request], stored: Stored) -> None:
        """On a full disk each operation is tried by itself: one may be too large, and others not.

        What one took of the log in vain is there for the next.
        """
        for request in batch:
            error = self._try_alone(request, stored)
            if error is not None and request.operation.closing and not self._reserve.spent:
                self._reserve.release()
                error = self._try_alone(request, stored)
            if error is not None:
                self._fail([request], error, stored)

    def _try_alone(self, request: Request, stored: Stored) -> sqlite3.Error | None:
        """The error if there was no room for it; all others are answered with."""
        try:
            self._transact([request], stored, guarded=True)
        except sqlite3.Error as error:
            if is_full(error, self._folder):
                return error
            self._fail([request], error, stored)
        return None

    def _fail(self, batch: Sequence[Request], error: Exception, stored: Stored) -> None:
        assert isinstance(error, sqlite3.Error), "all others are an operation's own"
        if is_sync_failure(error):
            raise StoreEnded("the disk didn't make a write durable") from error
        for request in batch:
            failure = storage_error(error, self._folder)
            failure.__cause__ = error
            stored.answers.append(Answer(request, error=failure))

    def _transact(self, batch: Sequence[Request], stored: Stored, *, guarded: bool = False) -> None:
        """One transaction; on any error nothing of it is stored, and nothing of it is remembered."""
        transaction = Transaction(self._connection, held=self._held, epochs=self._epochs, clock=self._clock)
        try:
            self._begin(stored)
            run = self._run_guarded if guarded else self._run
            answers = [run(request, transaction) for request in batch]
            transaction.flush()
            self._foreign.pass_over()
            commit = self._announce(transaction)
            self._connection.execute("COMMIT")
        except BaseException:
            self._undo()
            raise
        for ref in transaction.done:
            self._held.forget(ref)
        self._held.trim()
        for tenant, fact in transaction.audited:
            say_audited(tenant, fact)
        self._call_hook("after", commit)
        stored.answers.extend(answers)
        stored.grown.update({ref: event.seq or 0 for ref, event in transaction.stored})

    def _begin(self, stored: Stored) -> None:
        """Get the write lock, and learn what others wrote."""
        self._patience.begin()
        grown = self._foreign.look()
        if grown is not None:
            self._held.forget_all()
            stored.grown.update(grown)

    def _undo(self) -> None:
        self._held.forget_all()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _announce(self, transaction: Transaction) -> Commit | None:
        if self._hook is None:
            return None
        self._number += 1
        commit = Commit(number=self._number, events=tuple(event for _, event in transaction.stored))
        self._call_hook("before", commit)
        return commit

    def _call_hook(self, moment: CommitMoment, commit: Commit | None) -> None:
        if self._hook is None or commit is None:
            return
        try:
            self._hook(moment, commit)
        except BaseException as error:
            if moment == "before" and isinstance(error, sqlite3.Error):
                raise
            raise StoreEnded(f"a hook ended the store {moment} commit {commit.number}") from error

    def _run(self, request: Request, transaction: Transaction) -> Answer:
        try:
            return Answer(request, request.operation.run(transaction))
        except RemitError as error:
            return Answer(request, error=error)

    def _run_guarded(self, request: Request, transaction: Transaction) -> Answer:
        self._connection.execute("SAVEPOINT one")
        mark, audited = len(transaction.stored), len(transaction.audited)
        try:
            answer = self._run(request, transaction)
            transaction.flush()
        except Exception as error:
            if not is_ones_own(error):
                raise
            self._connection.execute("ROLLBACK TO one")
            transaction.rows.clear()
            del transaction.stored[mark:], transaction.audited[audited:]
            self._held.forget_all()
            answer = Answer(request, error=_broken(error))
        self._connection.execute("RELEASE one")
        return answer


def _broken(error: Exception) -> InternalError:
    """What the tables, or nature, refused although the rules let it pass."""
    broken = InternalError(f"the facts break a rule of the log: {error}")
    broken.__cause__ = error
    return broken
