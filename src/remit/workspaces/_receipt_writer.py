"""The one thread that touches a node's receipt file: what has gathered is stored in one transaction."""

from __future__ import annotations

import asyncio
import errno
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from remit.errors import MisuseError, RemitError, SchemaTooNew, StorageBusy, StorageError, StorageFull
from remit.primitives import once_more
from remit.workspaces._outlasting import outlast

SCHEMA_VERSION: Final = 1
BUSY_TIMEOUT_MS: Final = 30_000

_MOST_AT_ONCE: Final = 256
_SCHEMA: Final = """
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,
    generation INTEGER NOT NULL  -- the highest seen; a lower one is refused
) WITHOUT ROWID;
CREATE TABLE tool_calls (
    run_id TEXT NOT NULL,
    stage_id TEXT NOT NULL,
    tool_call_id TEXT NOT NULL,
    receipt_id TEXT NOT NULL,
    name TEXT NOT NULL,
    effect TEXT NOT NULL CHECK (effect IN ('read', 'write', 'command')),
    arguments_sha256 TEXT NOT NULL,
    generation INTEGER NOT NULL,
    started_at TEXT NOT NULL,
    ended_at TEXT,
    outcome TEXT,  -- JSON; without one the call is going on, or its process died
    PRIMARY KEY (run_id, stage_id, tool_call_id),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITHOUT ROWID;
CREATE TABLE artifacts (
    run_id TEXT NOT NULL,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    text TEXT NOT NULL,
    stored_at TEXT NOT NULL,
    PRIMARY KEY (run_id, name)
) WITHOUT ROWID;
CREATE TABLE deliveries (
    run_id TEXT NOT NULL,
    patch_sha256 TEXT NOT NULL,
    started_at TEXT NOT NULL,
    ended_at TEXT,
    result TEXT,  -- JSON; without one the delivery is going on, or its process died
    PRIMARY KEY (run_id, patch_sha256),
    CHECK ((ended_at IS NULL) = (result IS NULL))
) WITHOUT ROWID;
"""

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], Any]
_Job = tuple[Operation, "Future[Any]"]


class ReceiptWriter:
    """Owns the thread, and in it the connection. Not a daemon: what was handed over is stored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._ready: Future[None] = Future()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="remit-receipts")
        self._thread.start()

    async def wait_ready(self) -> None:
        """Returns when the file is open; raises StorageError when it can't be opened."""
        try:
            await despite_cancels(asyncio.wrap_future(self._ready))
        except RemitError:
            self._thread.join()
            raise

    async def do(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Does an operation in a transaction; returns once that is on the disk.

        Cancellation: what was handed over is done, then the cancel is raised.
        """
        return await despite_cancels(asyncio.wrap_future(self.submit(operation)))

    def submit(self, operation: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Hands an operation over without waiting for it."""
        if self._closed:
            raise MisuseError("the receipts are closed")
        answer: Future[T] = Future()
        self._queue.put((operation, answer))
        return answer

    async def aclose(self) -> None:
        """Stores what was handed over and ends the thread. Safe to call twice."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await despite_cancels(asyncio.get_running_loop().run_in_executor(None, self._thread.join))

    def _work(self) -> None:
        try:
            connection = open_receipts(self._path)
        except BaseException as error:  # noqa: BLE001  whoever opened the file must hear of it
            self._ready.set_exception(storage_error(error))
            return
        self._ready.set_result(None)
        try:
            going_on = True
            while going_on:
                jobs = self._gather()
                going_on = jobs[-1] is not None
                store(connection, [job for job in jobs if job is not None])
        finally:
            connection.close()

    def _gather(self) -> list[_Job | None]:
        """Waits for an operation, and takes what else is there; None is the last of all."""
        jobs: list[_Job | None] = [self._queue.get()]
        while jobs[-1] is not None and len(jobs) < _MOST_AT_ONCE:
            try:
                jobs.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return jobs


def open_receipts(path: Path) -> sqlite3.Connection:
    """Opens the file, and makes or checks its tables.

    Raises:
        SchemaTooNew: a newer version wrote it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000)
    try:
        path.chmod(0o600)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise SchemaTooNew(
                f"{path.name} was written by a newer version; use that one, or set "
                "REMIT_HOME to another folder"
            )
        if version == 0:
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def store(connection: sqlite3.Connection, jobs: list[_Job]) -> None:
    """Does all operations in one transaction; one that fails alone takes back only its own changes."""
    answers: list[tuple[Future[Any], Any]] = []
    try:
        connection.execute("BEGIN IMMEDIATE")
        for operation, answer in jobs:
            answers.append((answer, _do(connection, operation)))
        connection.execute("COMMIT")
    except BaseException as error:  # noqa: BLE001  those who wait must hear of it
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        failure = storage_error(error)
        answers = [(answer, failure) for _, answer in jobs]
    for answer, value in answers:
        if isinstance(value, Exception):
            answer.set_exception(value)
        else:
            answer.set_result(value)


def _do(connection: sqlite3.Connection, operation: Operation) -> Any:
    connection.execute("SAVEPOINT operation")
    try:
        value = operation(connection)
    except sqlite3.OperationalError:
        raise  # the disk or the file, not the operation
    except Exception as error:  # noqa: BLE001  the others of the batch aren't to blame
        connection.execute("ROLLBACK TO operation")
        value = error
    connection.execute("RELEASE operation")
    return value


def storage_error(error: BaseException) -> RemitError:
    """The typed form of what SQLite said."""
    if isinstance(error, RemitError):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return StorageFull("the disk under the data folder is full; free some space and try again")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageBusy("another process holds the receipt file; try again")
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return StorageError(
            f"node/receipts.sqlite in the data folder is damaged or no database ({error}); move it away: "
            "what tool calls did before a crash isn't known then"
        )
    return StorageError(f"the receipt file can't be used: {error}")


async def despite_cancels(answer: asyncio.Future[T]) -> T:
    """Waits for an answer that is sure to come, also when cancelled meanwhile; then raises the cancel."""
    cancelled = await outlast(answer)
    if cancelled is not None:
        if not answer.cancelled():
            answer.exception()  # told to nobody: the cancel goes first
        raise once_more(cancelled)
    return answer.result()
