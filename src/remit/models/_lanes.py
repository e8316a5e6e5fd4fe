"""A connection for each request in flight, at a cost that doesn't grow with their number.

An HTTP client's pool walks all its connections and requests whenever a request starts or ends: 2 000
streams in flight cost it 20 s of CPU, 10 000 some minutes. Here every request has a lane, a transport
with one connection; idle lanes lie on a stack, so that the warmest is used again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import httpx2

_MOST_IDLE = 256
"""Idle lanes kept; a host's burst isn't kept open for good."""


@dataclass(slots=True, eq=False)
class _Lane:
    transport: httpx2.AsyncBaseTransport
    idle_since: float = 0.0


class LanedTransport(httpx2.AsyncBaseTransport):
    """Sends each request over a lane of its own.

    Args:
        make_lane: Makes a transport for one connection.
        keepalive_s: How long an idle lane may be used again.
    """

    def __init__(self, make_lane: Callable[[], httpx2.AsyncBaseTransport], *, keepalive_s: float) -> None:
        self._make_lane = make_lane
        self._keepalive_s = keepalive_s
        self._idle: deque[_Lane] = deque()
        self._busy: set[_Lane] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; its lane is free again once the response is closed."""
        lane = self._take()
        try:
            response = await lane.transport.handle_async_request(request)
        except BaseException:
            await self._discard(lane)
            raise
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_LaneStream(stream, self, lane),
            extensions=response.extensions,
        )

    def _take(self) -> _Lane:
        lane = self._idle.pop() if self._idle else _Lane(self._make_lane())
        self._busy.add(lane)
        return lane

    async def release(self, lane: _Lane) -> None:
        """The lane's request is over; close what has been idle for too long, or is too much."""
        now = asyncio.get_running_loop().time()
        self._busy.discard(lane)
        lane.idle_since = now
        self._idle.append(lane)
        while len(self._idle) > _MOST_IDLE or now - self._idle[0].idle_since > self._keepalive_s:
            await self._idle.popleft().transport.aclose()

    async def _discard(self, lane: _Lane) -> None:
        self._busy.discard(lane)
        await lane.transport.aclose()

    async def aclose(self) -> None:
        """Close all lanes, those in use too."""
        for lane in (*self._idle, *self._busy):
            await lane.transport.aclose()
        self._idle.clear()
        self._busy.clear()


class _LaneStream(httpx2.AsyncByteStream):
    """A response's body, which gives its lane back when it is closed."""

    def __init__(self, inner: httpx2.AsyncByteStream, lanes: LanedTransport, lane: _Lane) -> None:
        self._inner = inner
        self._lanes = lanes
        self._lane: _Lane | None = lane

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()  # when this fails the lane stays out of use, and is closed at the end
        lane, self._lane = self._lane, None
        if lane is not None:
            await self._lanes.release(lane)
