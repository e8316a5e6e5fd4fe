"""Reads, in a bounded number of threads with a connection each; they never wait for the writer."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from remit.errors import StorageError
from remit.primitives import once_more
from remit.storage._connections import connect
from remit.storage._faults import storage_error
from remit.storage._folder import DataFolder

T = TypeVar("T")


class Readers:
    """The threads that read, and do what blocks when a store is opened and closed."""

    def __init__(self, folder: DataFolder, *, size: int, busy_ms: int) -> None:
        self._folder = folder
        self._busy_ms = busy_ms
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="remit-store-reader")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._connections: list[sqlite3.Connection] = []
        self._closed = False

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """What the query finds, all of it as of one moment.

        Cancellation: the query goes on in its thread, and nobody sees what it finds.

        Raises:
            StorageError: The database can't be read, or the store is closed.
        """
        if self._closed:
            raise StorageError("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._query, query)

    def start(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Begin something that blocks in one of the threads."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Let the reads that are under way finish, then close the connections."""
        self._closed = True
        self._threads.shutdown(wait=True)
        for connection in self._connections:
            connection.close()

    def _query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                return query(connection)
            finally:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise storage_error(error, self._folder) from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = connect(self._folder, busy_ms=self._busy_ms)
            connection.execute("PRAGMA query_only = ON")
            self._own.connection = connection
            with self._lock:
                self._connections.append(connection)
        return connection


async def settled(future: asyncio.Future[T]) -> T:
    """What comes of the future, waited for in any case; a cancel that came meanwhile is raised after it."""
    cancel: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancel = error
    if cancel is not None:
        raise once_more(cancel) from (None if future.cancelled() else future.exception())
    return future.result()
