"""A run's events as they come, over server-sent events.

A viewer holds no store connection, holds up no run, and is bounded: what isn't taken within the server's
write timeout cuts it, and it resumes by the id that it saw last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing
from typing import Final, Protocol

from remit.api._guard import Receive, Scope, Send
from remit.api._traffic import Traffic
from remit.errors import QuotaExceeded, RemitError
from remit.events import Event
from remit.primitives import escape_separators

HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_KEEP_ALIVE: Final = b": keep-alive\n\n"
_RETRY_MS: Final = 1_000


def frame_of(event: Event) -> bytes:
    """One event as a frame. One line of data, whatever is in it: R70's characters are escaped."""
    number = "" if event.seq is None else f"id: {event.seq}\n"
    data = escape_separators(event.model_dump_json())
    return f"{number}event: {event.type}\ndata: {data}\n\n".encode()


class OpenStream(Protocol):
    """An answer that goes on."""

    def say(self, comment: bytes) -> None:
        """Put something between the events, soon."""
        ...

    def close(self) -> None:
        """End it, soon."""
        ...


class Streams:
    """The open streams of a host."""

    def __init__(self, traffic: Traffic, *, keep_alive_s: float, most: int) -> None:
        self._traffic = traffic
        self.keep_alive_s = keep_alive_s
        """Between two signs of life."""
        self._most = most
        self._open: set[OpenStream] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._open)

    def new(self, events: AsyncGenerator[Event], *, is_allowed: Callable[[], Awaitable[bool]]) -> EventStream:
        """A stream of these events, to be answered with.

        Args:
            events: They end with the run's terminal.
            is_allowed: Asked at each sign of life: a viewer whose key has ended is cut.

        Raises:
            QuotaExceeded: As many are open as may be.
        """
        self.check_room()
        return EventStream(
            self, events, traffic=self._traffic, keep_alive_s=self.keep_alive_s, is_allowed=is_allowed
        )

    def check_room(self) -> None:
        """Whether one more may be opened.

        Raises:
            QuotaExceeded: As many are open as may be.
        """
        if len(self._open) >= self._most:
            raise QuotaExceeded("too many streams are open", retry_after_ms=5_000)

    def counted(self) -> AbstractContextManager[None]:
        """Entered while a stream is open."""
        return self._traffic.stream()

    def tell_draining(self) -> None:
        """Say on every stream that the host takes no more work, and when to come back."""
        for stream in self._open:
            stream.say(b": draining\nretry: 5000\n\n")

    def close_all(self) -> None:
        """End every stream; their viewers resume elsewhere, or later."""
        for stream in tuple(self._open):
            stream.close()

    async def wait_empty(self, *, within_s: float) -> None:
        """Return once none is open, or the time has run out: their viewers still get what was last."""
        try:
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        except TimeoutError:
            return

    def add(self, stream: OpenStream) -> None:
        """It was begun."""
        self._open.add(stream)
        self._empty.clear()

    def discard(self, stream: OpenStream) -> None:
        """It has ended."""
        self._open.discard(stream)
        if not self._open:
            self._empty.set()


class EventStream:
    """One answer that goes on until the terminal, or until its viewer is gone."""

    def __init__(
        self,
        streams: Streams,
        events: AsyncGenerator[Event],
        *,
        traffic: Traffic,
        keep_alive_s: float,
        is_allowed: Callable[[], Awaitable[bool]],
    ) -> None:
        self._streams = streams
        self._events = events
        self._traffic = traffic
        self._keep_alive_s = keep_alive_s
        self._is_allowed = is_allowed
        self._scheduled: list[bytes] = []
        self._wake = asyncio.Event()
        self._closed = False

    def say(self, comment: bytes) -> None:
        """Put something between the events, soon."""
        self._scheduled.append(comment)
        self._wake.set()

    def close(self) -> None:
        """End it, soon."""
        self._closed = True
        self._wake.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with it. The first bytes go out at once."""
        self._streams.add(self)
        try:
            with self._traffic.stream():
                await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
                await _write(send, f": events of a run\nretry: {_RETRY_MS}\n\n".encode())
                await self._run(receive, send)
                await _write(send, b"", more=False)
        finally:
            self._streams.discard(self)

    async def _run(self, receive: Receive, send: Send) -> None:
        """The events, the signs of life, and the viewer's leaving: the first to end, ends all."""
        async with asyncio.TaskGroup() as group:
            parts = {
                group.create_task(self._pump(send), name="events"),
                group.create_task(self._keep_alive(send), name="keep-alive"),
                group.create_task(_wait_gone(receive), name="viewer"),
            }
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                part.cancel()

    async def _pump(self, send: Send) -> None:
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    await _write(send, frame_of(event))
        except RemitError:
            return  # the store is being closed: the viewer resumes by the id that it has

    async def _keep_alive(self, send: Send) -> None:
        while not self._closed:
            try:
                async with asyncio.timeout(self._keep_alive_s):
                    await self._wake.wait()
            except TimeoutError:
                if not await self._is_allowed():
                    return
                await _write(send, _KEEP_ALIVE)
            self._wake.clear()
            while self._scheduled:
                await _write(send, self._scheduled.pop(0))


async def _write(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def _wait_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
