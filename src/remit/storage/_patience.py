"""How the writer waits for the database while other processes write to it.

SQLite's own wait looks again every 100 ms in the end, which starves whoever meets several busy writers on a
slow disk: the lock is free for a millisecond between two of them. So it is asked for every few milliseconds.
And a lock that changes hands is no lock that is stuck: each commit of another starts the wait anew, within a
bound.
"""

from __future__ import annotations

import random
import sqlite3
import time
from typing import Final

from remit.storage._faults import is_busy

_LOOK_MS: Final = 4
"""How long SQLite looks, in steps of 1 to 2 ms, before we look at the clock."""
_PAUSE_SECONDS: Final = 0.002
_CROWDED: Final = 3
"""How many times the wait others may take together, as long as they get on."""


class Patience:
    """Takes the write lock of one connection, waiting no longer than is sensible."""

    def __init__(self, connection: sqlite3.Connection, *, wait_ms: int) -> None:
        self._connection = connection
        self._wait_seconds = wait_ms / 1000
        self.look_again()

    def look_again(self) -> None:
        """Set what this connection's statements wait by themselves; anew after somebody changed it."""
        self._connection.execute(f"PRAGMA busy_timeout = {_LOOK_MS:d}")

    def begin(self) -> None:
        """Begin a transaction that writes. Blocks the thread.

        Raises:
            sqlite3.OperationalError: One other held the lock for the whole wait, or several three times as
                long; or the database can't be written at all.
        """
        now = time.monotonic()
        last, until = now + self._wait_seconds * _CROWDED, now + self._wait_seconds
        seen: int | None = None
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                now = time.monotonic()
                if not is_busy(error):
                    raise
                version = self._version(seen)
                if seen is not None and version != seen:
                    until = now + self._wait_seconds
                seen = version
                if now >= min(until, last):
                    raise
                time.sleep(_PAUSE_SECONDS * random.random())  # noqa: S311 - two that wait mustn't keep step
            else:
                return

    def _version(self, seen: int | None) -> int | None:
        """What changes with each commit of another; the old value where it can't be read just now."""
        try:
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.OperationalError:
            return seen
