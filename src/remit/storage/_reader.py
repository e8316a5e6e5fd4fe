"""Reads a data folder without a host: nothing is made, migrated, swept or locked."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Self, TypeVar

from remit.errors import SchemaTooNew, StorageError
from remit.events import Artifact, Event
from remit.primitives import is_run_id
from remit.runs import AttemptRow, HistoryEntry, StoredRun
from remit.storage import _queries
from remit.storage._faults import storage_error
from remit.storage._folder import DataFolder
from remit.storage._held import RunRef
from remit.storage._locks import is_locked
from remit.storage._migrations import APPLICATION_ID, MIGRATIONS, OTHERS_DATABASE

T = TypeVar("T")
_BUSY_MS = 5_000


class StoreReader:
    """The runs of a data folder, for one thread, beside any hosts that write to it. Its methods block.

    Raises:
        StorageError: A method: the database can't be read.
    """

    def __init__(self, connection: sqlite3.Connection, folder: DataFolder) -> None:
        self._connection = connection
        self._folder = folder

    @classmethod
    def open(cls, path: Path) -> Self | None:
        """Open the database of a data folder; None: there is no folder, or nothing was ever stored in it.

        Raises:
            StorageError: It can't be read, or isn't ours; `SchemaTooNew` where a newer Remit has written it.
        """
        folder = DataFolder(path.absolute())
        try:
            if not folder.database.is_file() or not folder.database.stat().st_size:
                return None
        except OSError as error:
            raise StorageError(f"the data folder {path} can't be read: {error.strerror}") from error
        try:
            connection = sqlite3.connect(
                f"{folder.database.as_uri()}?mode=ro", uri=True, timeout=_BUSY_MS / 1000, isolation_level=None
            )
            try:
                is_empty = _check_schema(connection)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise storage_error(error, folder) from error
        if is_empty:
            connection.close()
            return None
        return cls(connection, folder)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def find_run(self, run_id: str, *, tenant: str = "local") -> StoredRun | None:
        """A run, or None."""
        return self._read(lambda connection: _queries.find_run(connection, RunRef(tenant, run_id)))

    def list_runs(
        self,
        *,
        tenant: str = "local",
        statuses: Sequence[str] = (),
        created_after: datetime | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> tuple[tuple[StoredRun, ...], str | None]:
        """Runs, newest first, and the cursor of the next page (None: this was the last)."""
        wanted = _queries.RunFilter(
            tenant=tenant,
            statuses=tuple(statuses),
            session_id=None,
            binding=None,
            created_after=created_after,
            after=after,
        )
        return self._read(lambda connection: _queries.list_runs(connection, wanted, limit))

    def read_events(self, run_id: str, *, tenant: str = "local") -> tuple[Event, ...]:
        """All stored events of a run, as of one moment."""
        return self._read(lambda connection: _all_events(connection, RunRef(tenant, run_id)))

    def read_attempts(self, run_id: str, *, tenant: str = "local") -> tuple[AttemptRow, ...]:
        """The run's ledger, in order of start."""
        return self._read(lambda connection: _queries.read_attempts(connection, RunRef(tenant, run_id)))

    def read_artifact(self, run_id: str, name: str, *, tenant: str = "local") -> Artifact | None:
        """A named text of the run."""
        return self._read(lambda connection: _queries.read_artifact(connection, RunRef(tenant, run_id), name))

    def read_history(self, run_id: str, *, tenant: str = "local") -> tuple[HistoryEntry, ...]:
        """The run's host log, in order."""
        return self._read(lambda connection: _queries.read_history(connection, RunRef(tenant, run_id)))

    def is_alive(self, epoch_id: str) -> bool:
        """Whether the host of an epoch still runs: an unfinished run of a dead one goes on no more."""
        return is_run_id(epoch_id) and is_locked(self._folder.epochs / f"{epoch_id}.lock")

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self._connection.execute("BEGIN")
            try:
                return query(self._connection)
            finally:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise storage_error(error, self._folder) from error


def _all_events(connection: sqlite3.Connection, ref: RunRef) -> tuple[Event, ...]:
    events: list[Event] = []
    while page := _queries.read_events(connection, ref, after=len(events), limit=_queries.MOST_EVENTS_A_PAGE):
        events += page
    return tuple(events)


def _check_schema(connection: sqlite3.Connection) -> bool:
    """Whether nothing is in it yet.

    Raises:
        StorageError: It isn't ours, or of another schema than this one.
    """
    connection.execute("PRAGMA trusted_schema = OFF")
    number = int(connection.execute("PRAGMA user_version").fetchone()[0])
    mark = int(connection.execute("PRAGMA application_id").fetchone()[0])
    if mark != APPLICATION_ID:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StorageError(OTHERS_DATABASE)
        return True
    newest = MIGRATIONS[-1].number
    if number > newest:
        raise SchemaTooNew(
            f"a newer Remit wrote the data folder (schema {number}; this one knows {newest}): install "
            "that one, or set REMIT_HOME to another folder",
            schema=number,
            known=newest,
        )
    if number < newest:
        raise StorageError(
            f"the data folder was written by an older Remit (schema {number}); "
            "`remit run` or `remit serve` brings it up to date"
        )
    return False
