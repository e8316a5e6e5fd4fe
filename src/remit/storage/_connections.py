"""How a connection to the database is set up, and what keeps its write-ahead log short."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from remit.errors import StorageError
from remit.storage._folder import DataFolder

OLDEST_SQLITE: Final = (3, 32, 0)
"""Upserts, partial indexes, and statements of more than 999 values."""
_CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
_ROOM_TO_SPARE_BYTES: Final = 256 * 1024
_CHECKPOINT_WAIT_MS: Final = 50


def connect(folder: DataFolder, *, busy_ms: int) -> sqlite3.Connection:
    """A connection for one thread at a time; transactions are begun by hand.

    `synchronous = FULL` makes every commit durable before it is reported. SQLite's own checkpoints are off:
    see `Checkpoints`.

    Raises:
        StorageError: The SQLite that this Python was built with is too old.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise StorageError(f"this Python has SQLite {sqlite3.sqlite_version}; Remit needs {oldest} or newer")
    connection = sqlite3.connect(
        folder.database,
        timeout=busy_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        for pragma in (
            "synchronous = FULL",
            "foreign_keys = ON",
            "temp_store = MEMORY",
            "wal_autocheckpoint = 0",
            "trusted_schema = OFF",
        ):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def turn_on_wal(connection: sqlite3.Connection) -> None:
    """Readers and the writer don't wait for each other from here on; it stays so for the file.

    Raises:
        StorageError: The file system can't do it.
    """
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StorageError(f"the data folder's file system allows no write-ahead log (it gives {mode!r})")


class Checkpoints:
    """Moves the write-ahead log into the database when it has grown.

    Not left to SQLite, whose automatic checkpoint doesn't hold the write lock: before 3.51.3 one that
    runs while another connection starts the log anew may lose pages. TRUNCATE holds the write lock all
    the while, and makes the file's size say how much there is to do.
    """

    def __init__(
        self, folder: DataFolder, connection: sqlite3.Connection, *, after: Callable[[], None]
    ) -> None:
        """`after` puts back how long the connection's other statements wait."""
        self._folder = folder
        self._log = folder.database.with_name(folder.database.name + "-wal")
        self._connection = connection
        self._after = after
        self._due_bytes = _CHECKPOINT_BYTES

    def run_when_due(self) -> None:
        """Checkpoint if the log is long. Readers in the way: it is tried again when the log has grown on."""
        size = _size_of(self._log)
        if size >= self._due_bytes:
            done = self.run()
            self._due_bytes = _CHECKPOINT_BYTES if done else size + _CHECKPOINT_BYTES // 2

    def run(self) -> bool:
        """Checkpoint now, waiting only briefly; whether all of it was moved.

        Where the database has no room to grow it isn't begun: half of it would take what room there is.
        """
        try:
            if not self._has_room():
                return False
            self._connection.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_WAIT_MS}")
            busy, *_ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy
        except sqlite3.OperationalError:
            return False  # in use by others: what was committed is safe in the log
        finally:
            with contextlib.suppress(sqlite3.Error):
                self._after()

    def _has_room(self) -> bool:
        pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
        page_bytes = self._connection.execute("PRAGMA page_size").fetchone()[0]
        growth = pages * page_bytes - _size_of(self._folder.database)
        return self._folder.free_bytes() >= growth + _ROOM_TO_SPARE_BYTES


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
