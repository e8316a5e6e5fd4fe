"""The one thread of a process that writes: takes what has gathered, stores it in one transaction, answers.

While a commit is on its way to the disk the next operations gather, so that many writers cost few
commits (group commit) and one alone waits for nobody.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from remit.errors import StorageError
from remit.storage._commits import Answer, Commits, Request
from remit.storage._held import RunRef

_MOST_EVENTS: Final = 500
_IDLE_SECONDS: Final = 1.0

Deliver = Callable[[Sequence[Answer], Mapping[RunRef, int]], None]
"""Takes answers, and the runs that have grown, to those who wait. Called in the writer's thread."""


class _Signal(Enum):
    LOOK = "look"
    STOP = "stop"


class Writer:
    """Owns the thread. It isn't a daemon: what was handed over is stored before the process ends."""

    def __init__(
        self,
        commits: Commits,
        *,
        deliver: Deliver,
        ended: Callable[[], None],
        watched: Callable[[], bool],
        poll_ms: int,
    ) -> None:
        self._commits = commits
        self._deliver = deliver
        self._ended = ended
        self._watched = watched
        self._poll_seconds = poll_ms / 1000
        self._queue: queue.SimpleQueue[Request | _Signal] = queue.SimpleQueue()
        self._stopping = False
        self._gone = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="remit-store-writer")
        self._thread.start()

    def put(self, request: Request) -> None:
        """Hand an operation over. After the end it is answered with an error."""
        self._queue.put(request)
        if self._gone:
            self._refuse_all()

    def nudge(self) -> None:
        """Look sooner at what others write: somebody has begun to wait."""
        self._queue.put(_Signal.LOOK)

    def stop(self) -> None:
        """Store what was handed over, then end. Blocks until the thread has ended."""
        self._queue.put(_Signal.STOP)
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._stopping:
                self._step()
        except BaseException as error:  # noqa: BLE001 - whatever it was: those who wait must hear of it
            self._failure = error
        finally:
            self._gone = True
            self._refuse_all()
            if self._failure is not None:
                self._commits.abandon()
            self._ended()

    def _step(self) -> None:
        batch = self._gather()
        if not batch:
            if self._watched():
                self._deliver((), self._commits.look_around())
            return
        try:
            stored = self._commits.store(batch)
        except BaseException as error:
            self._deliver([Answer(request, error=_ended(error)) for request in batch], {})
            raise
        self._deliver(stored.answers, stored.grown)

    def _gather(self) -> list[Request]:
        """The next operation and those that are there already, up to some number of events.

        None at all: it is time to look around.
        """
        batch: list[Request] = []
        weight = 0
        item = self._wait()
        while item is not None:
            if item is _Signal.STOP:
                self._stopping = True
                break
            if isinstance(item, Request):
                batch.append(item)
                weight += item.operation.weight
                if weight >= _MOST_EVENTS:
                    break
            item = self._take()
        return batch

    def _wait(self) -> Request | _Signal | None:
        try:
            return self._queue.get(timeout=self._poll_seconds if self._watched() else _IDLE_SECONDS)
        except queue.Empty:
            # A program that ends without closing its store must not hang in its own exit.
            return None if threading.main_thread().is_alive() else _Signal.STOP

    def _take(self) -> Request | _Signal | None:
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

    def _refuse_all(self) -> None:
        refused: list[Answer] = []
        while (item := self._take()) is not None:
            if isinstance(item, Request):
                refused.append(Answer(item, error=_ended(self._failure)))
        if refused:
            self._deliver(refused, {})


def _ended(cause: BaseException | None) -> StorageError:
    if cause is None:
        return StorageError("the store is closed")
    error = StorageError(f"the store has stopped: {cause}")
    error.__cause__ = cause
    return error
