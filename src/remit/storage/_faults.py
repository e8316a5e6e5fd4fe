"""SQLite's errors in our own words."""

from __future__ import annotations

import sqlite3

from remit.errors import StorageBusy, StorageError, StorageFull
from remit.storage._folder import DataFolder

_PRIMARY = 0xFF
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}
_NO_ROOM_BELOW_BYTES = 256 * 1024
"""An I/O error with less than this left is taken for a full disk: SQLite doesn't always say which it was."""


def primary_code(error: sqlite3.Error) -> int:
    """The error's kind without its details; 0 where SQLite wasn't even asked."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY


def is_ones_own(error: Exception) -> bool:
    """Whether it is about what one operation wanted to store, so that the others can go on without it."""
    mine = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
    return not isinstance(error, sqlite3.Error) or isinstance(error, mine)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection was in the way."""
    return primary_code(error) in _BUSY


def is_full(error: sqlite3.Error, folder: DataFolder) -> bool:
    """Whether there was no room for it."""
    code = primary_code(error)
    if code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}:
        return folder.free_bytes() < _NO_ROOM_BELOW_BYTES
    return code == sqlite3.SQLITE_FULL


def is_sync_failure(error: sqlite3.Error) -> bool:
    """Whether the disk refused to make a write durable: what is stored then can't be told any more."""
    return getattr(error, "sqlite_errorcode", 0) in {
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_DIR_FSYNC,
    }


def storage_error(error: sqlite3.Error, folder: DataFolder) -> StorageError:
    """The error that a caller sees."""
    if is_full(error, folder):
        return StorageFull("the disk under the data folder is full; free some space", folder=str(folder.path))
    if is_busy(error):
        return StorageBusy(
            "another process held the database for too long; try again later", folder=str(folder.path)
        )
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if primary_code(error) in _DAMAGED:
        return StorageError(
            f"{folder.database} is damaged or no database ({error}); move it away, which loses the runs "
            "in it, or set REMIT_HOME to another folder",
            sqlite=name,
            folder=str(folder.path),
        )
    return StorageError(f"the database failed: {error}", sqlite=name, folder=str(folder.path))
