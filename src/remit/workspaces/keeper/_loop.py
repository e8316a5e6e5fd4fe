"""A small event loop: readable and writable descriptors, and timers. One thread, no tasks.

asyncio isn't used here: its child watcher keeps a thread per child, the parent-death signal of a child hangs
on the thread that forked it, and a process that forks must have one thread only.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Callback = Callable[[], None]
_SHORT_S = 0.001
"""Waits below it are slept through: a selector counts whole milliseconds and would wait for longer."""


@dataclass(order=True, slots=True)
class Timer:
    """A callback that is due; `cancel` takes it back."""

    due_s: float
    order: int
    callback: Callback | None = field(compare=False)

    def cancel(self) -> None:
        """The callback won't be called any more."""
        self.callback = None


class Loop:
    """Calls back when a descriptor is ready or a timer is due."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._order = itertools.count()
        self._running = False

    def now(self) -> float:
        """Seconds of a clock that only goes forward."""
        return time.monotonic()

    def watch(self, fd: int, *, readable: Callback | None = None, writable: Callback | None = None) -> None:
        """Sets what is called for a descriptor; neither: it is no longer watched."""
        events = (selectors.EVENT_READ if readable else 0) | (selectors.EVENT_WRITE if writable else 0)
        known = fd in self._selector.get_map()
        if not events:
            if known:
                self._selector.unregister(fd)
        elif known:
            self._selector.modify(fd, events, (readable, writable))
        else:
            self._selector.register(fd, events, (readable, writable))

    def unwatch(self, fd: int) -> None:
        """Forgets a descriptor; call it before closing one."""
        self.watch(fd)

    def after(self, delay_s: float, callback: Callback) -> Timer:
        """Calls back once, `delay_s` seconds from now."""
        timer = Timer(self.now() + delay_s, next(self._order), callback)
        heapq.heappush(self._timers, timer)
        return timer

    def stop(self) -> None:
        """Makes `run` return after the callbacks of this round."""
        self._running = False

    def run(self) -> None:
        """Runs until `stop`."""
        self._running = True
        while self._running:
            self._wait_once()

    def _wait_once(self) -> None:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        timeout_s = max(0.0, self._timers[0].due_s - self.now()) if self._timers else None
        if timeout_s is not None and timeout_s < _SHORT_S:
            time.sleep(timeout_s)
            timeout_s = 0.0
        ready = self._selector.select(timeout_s)
        # Timers first: a descriptor that is always ready must not hold up what is due.
        self._call_due()
        for key, events in ready:
            self._call_ready(key, events)

    def _call_due(self) -> None:
        now = self.now()
        while self._timers and self._timers[0].due_s <= now:
            callback = heapq.heappop(self._timers).callback
            if callback is not None:
                callback()

    def _call_ready(self, key: selectors.SelectorKey, events: int) -> None:
        # An earlier callback of this round may have closed the descriptor, or watched a new one.
        if self._selector.get_map().get(key.fd) is not key:
            return
        readable, writable = key.data
        if events & selectors.EVENT_READ and readable is not None:
            readable()
        if events & selectors.EVENT_WRITE and writable is not None:
            current = self._selector.get_map().get(key.fd)
            if current is key:
                writable()
