"""A connection for each request in flight, and no more kept than is of use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from remit.models import _lanes
from remit.models._lanes import LanedTransport

REQUEST = httpx2.Request("POST", "http://127.0.0.1/x")


class Body(httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"x"

    async def aclose(self) -> None:
        pass


class Lane(httpx2.AsyncBaseTransport):
    def __init__(self) -> None:
        self.requests = 0
        self.closed = False
        self.fails = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests += 1
        if self.fails:
            raise httpx2.ConnectError("no")
        return httpx2.Response(200, stream=Body())

    async def aclose(self) -> None:
        self.closed = True


def lanes(keepalive_s: float = 60.0) -> tuple[LanedTransport, list[Lane]]:
    made: list[Lane] = []

    def make() -> Lane:
        made.append(Lane())
        return made[-1]

    return LanedTransport(make, keepalive_s=keepalive_s), made


async def test_a_lane_is_used_again() -> None:
    """One after the other, requests share a lane; at the same time, each has its own."""
    transport, made = lanes()
    for _ in range(3):
        response = await transport.handle_async_request(REQUEST)
        assert [piece async for piece in response.aiter_bytes()] == [b"x"]
        await response.aclose()
        await response.aclose()
    assert [lane.requests for lane in made] == [3]
    open_ones = [await transport.handle_async_request(REQUEST) for _ in range(3)]
    assert len(made) == 3
    for response in open_ones:
        await response.aclose()
    await transport.aclose()
    assert all(lane.closed for lane in made)


async def test_a_failed_lane_is_not_used_again() -> None:
    """What broke is closed."""
    transport, made = lanes()
    response = await transport.handle_async_request(REQUEST)
    await response.aclose()
    made[0].fails = True
    with pytest.raises(httpx2.ConnectError):
        await transport.handle_async_request(REQUEST)
    assert made[0].closed
    await (await transport.handle_async_request(REQUEST)).aclose()
    assert len(made) == 2


async def test_a_burst_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle lanes are closed when there are many, and when they are old."""
    monkeypatch.setattr(_lanes, "_MOST_IDLE", 2)
    transport, made = lanes()
    for response in [await transport.handle_async_request(REQUEST) for _ in range(5)]:
        await response.aclose()
    assert [lane.closed for lane in made] == [True, True, True, False, False]
    transport, made = lanes(keepalive_s=0.01)
    first, second = [await transport.handle_async_request(REQUEST) for _ in range(2)]
    await first.aclose()
    await asyncio.sleep(0.02)
    await second.aclose()
    assert [lane.closed for lane in made] == [True, False]
