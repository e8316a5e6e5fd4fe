"""The connection under a provider's client: every form of answer, and which connections are used again."""

from __future__ import annotations

import asyncio
import gc
import ssl
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2
import pytest

from remit.models._wire_connection import WireConnection

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Server:
    """Plays one answer per connection or request, and counts."""

    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list[bytes])

    def request(self, **headers: str) -> httpx2.Request:
        """A request to it."""
        extensions = {"timeout": {"connect": 5.0, "write": 5.0}}
        url = f"http://127.0.0.1:{self.port}/v1/x?y=1"
        return httpx2.Request("POST", url, headers=headers, content=b"body", extensions=extensions)


@asynccontextmanager
async def serving(*answers: bytes, closes: bool = False) -> AsyncGenerator[Server]:
    """A server that gives these answers, one a request, on as many connections as come."""
    told = Server()
    left = list(answers)
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.connections += 1
        writers.append(writer)
        while left:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                told.requests.append(head + await reader.readexactly(4))
            except asyncio.IncompleteReadError:
                break
            writer.write(left.pop(0))
            if closes:
                break
        if closes or not left:
            await writer.drain()
        if closes:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    told.port = server.sockets[0].getsockname()[1]
    try:
        yield told
    finally:
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def connection(keepalive_s: float = 60) -> AsyncGenerator[WireConnection]:
    wire = WireConnection(ssl.create_default_context(), keepalive_s=keepalive_s)
    try:
        yield wire
    finally:
        await wire.aclose()


async def fetch(wire: WireConnection, request: httpx2.Request) -> tuple[int, bytes]:
    response = await wire.handle_async_request(request)
    body = b"".join([piece async for piece in response.aiter_raw()])
    await response.aclose()
    return response.status_code, body


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + (
    b"3\r\nabc\r\n2\r\nde\r\n0\r\nX-After: 1\r\n\r\n"
)
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\n\r\nabcde"


@pytest.mark.parametrize(
    "answer",
    [CHUNKED, SIZED, b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + SIZED],
    ids=["chunked", "sized", "after early hints"],
)
async def test_a_connection_is_used_again(answer: bytes) -> None:
    """An answer that was read to its end leaves the connection for the next request."""
    async with serving(answer, answer) as server, connection() as wire:
        for _ in range(2):
            assert await fetch(wire, server.request(**{"X-Key": "k"})) == (200, b"abcde")
        assert server.connections == 1
        head = server.requests[1]
        assert head.startswith(b"POST /v1/x?y=1 HTTP/1.1\r\n")
        assert head.endswith(b"\r\n\r\nbody")
        assert f"Host: 127.0.0.1:{server.port}\r\n".encode() in head
        assert b"Content-Length: 4\r\n" in head


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    """A body that lasts until the server closes is whole then, and the next request connects anew."""
    answer = b"HTTP/1.1 200 OK\r\n\r\nabcde"
    async with serving(answer, answer, closes=True) as server, connection() as wire:
        for _ in range(2):
            assert await fetch(wire, server.request()) == (200, b"abcde")
        assert server.connections == 2


@pytest.mark.parametrize("answer", [SIZED, SIZED.replace(b"X-A: 1", b"Connection: close")])
async def test_a_connection_that_the_server_closed_isnt_used(answer: bytes) -> None:
    """Whether or not it said so before."""
    async with serving(answer, answer, closes=True) as server, connection() as wire:
        for _ in range(2):
            assert await fetch(wire, server.request()) == (200, b"abcde")
            await asyncio.sleep(0.05)
        assert server.connections == 2


async def test_an_old_or_talkative_connection_isnt_used() -> None:
    """What was idle for too long, or said something that nobody asked for, is dropped."""
    async with serving(SIZED, SIZED, SIZED + SIZED, SIZED) as server:
        async with connection(keepalive_s=0.01) as wire:
            await fetch(wire, server.request())
            await asyncio.sleep(0.05)
            await fetch(wire, server.request())
            assert server.connections == 2
        async with connection() as wire:
            assert await fetch(wire, server.request()) == (200, b"abcde")
            assert await fetch(wire, server.request()) == (200, b"abcde")
            assert server.connections == 4


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "before the end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", "before the end"),
        (b"SSH-2.0-x\r\n", "."),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "."),
    ],
    ids=["nothing", "short", "cut chunk", "no HTTP", "no chunk"],
)
async def test_a_broken_answer_is_an_error(answer: bytes, error: str) -> None:
    """What isn't whole is never taken for whole."""
    async with serving(answer, closes=True) as server, connection() as wire:
        with pytest.raises(httpx2.RemoteProtocolError, match=error):
            await fetch(wire, server.request())


async def test_nobody_listens() -> None:
    """A refused connection is a `ConnectError`, which the pool may ask again."""
    async with serving() as server:
        request = server.request()
    async with connection() as wire:
        with pytest.raises(httpx2.ConnectError):
            await wire.handle_async_request(request)


async def test_a_header_cant_end_its_line() -> None:
    """A key with a line break in it adds no header, and nothing is sent."""
    async with serving(SIZED) as server, connection() as wire:
        for value in ("a\r\nX-Evil: 1", "a\nb", "a\0b"):
            with pytest.raises(httpx2.LocalProtocolError):
                await wire.handle_async_request(server.request(Authorization=value))
        assert server.connections == 0


async def test_a_body_that_nobody_takes_is_held_back() -> None:
    """What comes faster than it is read waits at the server, and all of it comes in the end."""
    size = 32 * 1024 * 1024
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)
    async with serving(answer) as server, connection() as wire:
        response = await wire.handle_async_request(server.request())
        await asyncio.sleep(0.2)
        assert wire._wire is not None
        assert wire._wire._buffered < 2 * 1024 * 1024
        assert sum([len(piece) async for piece in response.aiter_raw()]) == size
        await response.aclose()


async def test_an_answer_that_is_left_closes_the_connection() -> None:
    """A reply that is broken off, or a request that is cancelled, leaves no connection with a rest in it."""
    async with serving(SIZED[:-2], SIZED[:9], SIZED) as server, connection() as wire:
        response = await wire.handle_async_request(server.request())
        await response.aclose()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await fetch(wire, server.request())
        await wire.aclose()
        assert await fetch(wire, server.request()) == (200, b"abcde")
        assert server.connections == 3


async def test_a_cancel_while_it_connects_leaves_no_socket() -> None:
    """R4: at whatever step of connecting it comes, also in the moment in which the connection is there."""
    context = ssl.create_default_context()
    async with serving() as server:
        for turns in range(12):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", ResourceWarning)
                wire = WireConnection(context, keepalive_s=60)
                task = asyncio.get_running_loop().create_task(wire.handle_async_request(server.request()))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await wire.aclose()
                for _ in range(3):
                    await asyncio.sleep(0)
                del task
                gc.collect()
            assert [str(one.message) for one in caught] == [], turns
