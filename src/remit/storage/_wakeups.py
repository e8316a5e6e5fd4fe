"""Who waits for events of which run. Lives on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Mapping
from typing import Final

from remit.errors import StorageError
from remit.storage._held import RunRef

_MOST_KNOWN: Final = 10_000


class Wakeups:
    """Waiters by run, and the last numbers that are known, so that few waits need the database."""

    def __init__(self, *, on_first: Callable[[], None]) -> None:
        self._waiters: dict[RunRef, set[asyncio.Future[None]]] = {}
        self._known: dict[RunRef, int] = {}
        self._on_first = on_first
        self._closed = False

    def anybody(self) -> bool:
        """Whether somebody waits. May be asked from any thread."""
        return bool(self._waiters)

    def known(self, ref: RunRef) -> int | None:
        """The number of the run's last event as far as this process has heard; None: it has heard nothing."""
        return self._known.get(ref)

    def grown(self, runs: Mapping[RunRef, int]) -> None:
        """Wake those who wait for one of these runs."""
        for ref, last_seq in runs.items():
            self._known.pop(ref, None)  # to the end: what was heard of last is forgotten last
            self._known[ref] = last_seq
            for waiter in self._waiters.get(ref, ()):
                if not waiter.done():
                    waiter.set_result(None)
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    @contextlib.contextmanager
    def waiting(self, ref: RunRef) -> Generator[asyncio.Future[None]]:
        """A waiter that is there from now on, so that nothing can come between looking and waiting."""
        if self._closed:
            raise StorageError("the store is closed")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        first = not self._waiters
        self._waiters.setdefault(ref, set()).add(waiter)
        if first:
            self._on_first()
        try:
            yield waiter
        finally:
            waiters = self._waiters[ref]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[ref]

    def close(self) -> None:
        """Let everybody go: nothing will be heard any more."""
        self._closed = True
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(StorageError("the store is closed"))
