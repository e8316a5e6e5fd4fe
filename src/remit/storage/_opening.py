"""From a path to a database that can be written to: made, migrated, with a reserve beside it."""

from __future__ import annotations

import errno
import sqlite3
from dataclasses import dataclass
from functools import partial

from remit.errors import StorageError, StorageFull
from remit.primitives import Clock
from remit.storage._commits import Commits
from remit.storage._connections import connect, turn_on_wal
from remit.storage._epochs import Epochs
from remit.storage._faults import is_full, storage_error
from remit.storage._folder import DataFolder
from remit.storage._hooks import CommitHook
from remit.storage._locks import FileLock
from remit.storage._migrations import check_owner, migrate


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How patient and how wide a store is."""

    busy_wait_ms: int = 15_000
    """How long another process may hold the database before an operation fails with `StorageBusy`.

    Where several take turns at it, each commit of theirs starts the wait anew, up to three times as long.
    """
    poll_ms: int = 200
    """How often to look for what other processes have written, while somebody waits for events."""
    readers: int = 4
    """Threads that read, each with a connection."""


def open_database(
    folder: DataFolder, *, epochs: Epochs, clock: Clock, on_commit: CommitHook | None, settings: StoreSettings
) -> Commits:
    """The database, up to date, with a connection to write on. Blocks."""
    opened = partial(_connect_up_to_date, folder, busy_wait_ms=settings.busy_wait_ms)
    try:
        try:
            connection = opened()
        except sqlite3.Error as error:
            if not is_full(error, folder):
                raise
            folder.reserve.unlink(missing_ok=True)
            connection = opened()
    except sqlite3.Error as error:
        raise storage_error(error, folder) from error
    except OSError as error:
        kind = StorageFull if error.errno in {errno.ENOSPC, errno.EDQUOT} else StorageError
        raise kind(f"the database can't be opened: {error.strerror}", folder=str(folder.path)) from error
    return Commits(
        connection,
        folder,
        epochs=epochs,
        clock=clock,
        hook=on_commit,
        busy_wait_ms=settings.busy_wait_ms,
    )


def _connect_up_to_date(folder: DataFolder, *, busy_wait_ms: int) -> sqlite3.Connection:
    # Hosts that start at once on a fresh folder take turns: turning the log on can't be waited for otherwise.
    with FileLock.take(folder.schema_lock, wait_ms=busy_wait_ms):
        folder.touch_database()
        connection = connect(folder, busy_ms=busy_wait_ms)
        try:
            check_owner(connection)  # before anything is written: another program's file stays as it is
            turn_on_wal(connection)
            migrate(connection)
        except BaseException:
            connection.close()
            raise
    return connection
