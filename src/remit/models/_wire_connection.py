"""One HTTP/1.1 connection to a provider, straight on the event loop.

An HTTP client's own stack (pool, locks, events, a parser in Python) costs 1 ms of CPU a request and 40 KiB
a stream. What an attempt needs of it is little: one request at a time, its answer in pieces, and to know
whether the connection may be used again. A parser in C reads the answer. Whatever needs a proxy goes through
the client's stack (`_sdk_http`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import select
import ssl
from asyncio import BaseEventLoop
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, cast

import httptools
import httpx2

_MOST_BUFFERED_BYTES = 256 * 1024
"""Beyond this nothing more is read until somebody takes it."""
_HAPPY_EYEBALLS_S = 0.25
_ILLEGAL = re.compile(rb"[\x00\r\n]")


class WireConnection(httpx2.AsyncBaseTransport):
    """A transport with one connection, made when it is needed and kept while it may be used again.

    Args:
        context: For https.
        keepalive_s: How long an idle connection is trusted.
    """

    def __init__(self, context: ssl.SSLContext, *, keepalive_s: float) -> None:
        self._context = context
        self._keepalive_s = keepalive_s
        self._wire: _Wire | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; the answer's body is still to be read.

        Raises:
            httpx2.TransportError: There is no connection, it broke, or what came is no HTTP.

        Cancellation: the connection is closed with the transport, by whoever called.
        """
        head = _head_of(request)
        timeouts = cast("dict[str, float | None]", request.extensions.get("timeout", {}))
        wire = await self._ready_wire(request.url, timeouts.get("connect"))
        await wire.send(head, request.content, timeouts.get("write"))
        status, headers = await wire.read_head()
        return httpx2.Response(status, headers=headers, stream=_Body(self, wire))

    async def _ready_wire(self, url: httpx2.URL, within_s: float | None) -> _Wire:
        if self._wire is not None and self._wire.is_usable(self._keepalive_s):
            return self._wire
        await self.aclose()
        secure = url.scheme == "https"
        host = url.raw_host.decode("ascii").strip("[]")
        loop = asyncio.get_running_loop()
        # A loop of another make, uvloop say, tries addresses in turn and takes no such wish. With one address
        # there is nothing to race for; and a race that is cancelled in the very moment in which it is won
        # loses the open socket of the winner.
        races = isinstance(loop, BaseEventLoop) and not _is_address(host)
        eyeballs: dict[str, Any] = {"happy_eyeballs_delay": _HAPPY_EYEBALLS_S} if races else {}
        try:
            async with asyncio.timeout(within_s):
                _, self._wire = await loop.create_connection(
                    _Wire,
                    host,
                    url.port or (443 if secure else 80),
                    ssl=self._context if secure else None,
                    server_hostname=host if secure else None,
                    **eyeballs,
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"no connection within {within_s:g} s") from error
        except OSError as error:  # also what speaks against a certificate
            raise httpx2.ConnectError(str(error)) from error
        return self._wire

    async def settle(self, wire: _Wire) -> None:
        """A response is closed: keep its connection, or, when the answer wasn't read to its end, drop it."""
        if not wire.is_reusable and self._wire is wire:
            await self.aclose()

    async def aclose(self) -> None:
        """Drop the connection."""
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.abort()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _Body(httpx2.AsyncByteStream):
    """The pieces of an answer, as they come."""

    def __init__(self, connection: WireConnection, wire: _Wire) -> None:
        self._connection = connection
        self._wire = wire
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self._wire.read_piece():
            yield piece

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._connection.settle(self._wire)


class _Wire(asyncio.Protocol):
    """The connection as the event loop sees it; reads one answer after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._parser: Any = None
        self._poll = select.poll()
        self._lost = False
        self._lost_by: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._pieces: deque[bytes] = deque()
        self._buffered = 0
        self._paused_reading = False
        self._may_write: asyncio.Future[None] | None = None
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._has_head = False
        self._complete = True
        self._keeps_alive = True
        self._until_close = False
        self._fault: Exception | None = None
        self._idle_since = 0.0

    # ---- what the connection does

    @property
    def is_reusable(self) -> bool:
        """Whether the answer was read to its end and the server said that it will listen on."""
        return self._complete and self._keeps_alive and not self._lost and self._fault is None

    def is_usable(self, keepalive_s: float) -> bool:
        """Whether a request may be sent over this connection: it is idle, young, and the server is silent."""
        age_s = asyncio.get_running_loop().time() - self._idle_since
        return self.is_reusable and age_s <= keepalive_s and not self._poll.poll(0)

    async def send(self, head: bytes, body: bytes, within_s: float | None) -> None:
        """Send a request.

        Raises:
            httpx2.WriteTimeout: The server doesn't take it.
        """
        self._parser = httptools.HttpResponseParser(self)
        self._status, self._headers, self._has_head = 0, [], False
        self._pieces.clear()
        self._buffered = 0
        self._complete, self._keeps_alive, self._until_close = False, False, False
        self._transport.write(head + body)
        if self._may_write is not None:
            try:
                async with asyncio.timeout(within_s):
                    await self._may_write
            except TimeoutError:
                raise httpx2.WriteTimeout(f"the request wasn't taken within {within_s:g} s") from None

    async def read_head(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Status and headers of the answer.

        Raises:
            httpx2.TransportError: None came.
        """
        while not self._has_head:
            self._check("the server closed the connection without an answer")
            await self._wait()
        return self._status, self._headers

    async def read_piece(self) -> bytes:
        """What has come of the body; empty: its end.

        Raises:
            httpx2.TransportError: It broke off.
        """
        while not self._pieces:
            if self._complete:
                return b""
            self._check("the server closed the connection before the end of its answer")
            await self._wait()
        piece = self._pieces.popleft() if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._buffered = 0
        if self._paused_reading:
            self._paused_reading = False
            self._transport.resume_reading()
        return piece

    async def abort(self) -> None:
        """Close without goodbye; returns once the loop has let go of it."""
        self._transport.abort()
        while not self._lost:
            await self._wait()

    def _check(self, closed: str) -> None:
        if self._fault is not None:
            raise httpx2.RemoteProtocolError(str(self._fault) or "what came is no HTTP")
        if self._lost:
            if self._lost_by is None:
                raise httpx2.RemoteProtocolError(closed)
            raise httpx2.ReadError(str(self._lost_by) or closed)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._idle_since = asyncio.get_running_loop().time()

    def data_received(self, data: bytes) -> None:
        if self._complete:  # nobody asked: whatever that is, nothing more is sent over this connection
            self._keeps_alive = False
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fault = error
        if self._buffered > _MOST_BUFFERED_BYTES and not self._paused_reading:
            self._paused_reading = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._lost, self._lost_by = True, exc
        if self._has_head and self._until_close and exc is None:
            self._complete = True
        if self._may_write is not None and not self._may_write.done():
            self._may_write.set_result(None)
        self._wake()

    def pause_writing(self) -> None:
        self._may_write = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        waiter, self._may_write = self._may_write, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # ---- what the parser calls

    def on_message_begin(self) -> None:
        """An answer begins, or one that says nothing yet (1xx) came before it."""
        if self._complete:
            raise httptools.HttpParserError("a second answer to one request")
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which nobody reads."""
        if not self._has_head:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Status and headers are there."""
        self._status = self._parser.get_status_code()
        if self._status < 200:
            return
        self._has_head = True
        names = {name.lower() for name, _ in self._headers}
        self._until_close = not names & {b"content-length", b"transfer-encoding"}

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(body)
        self._buffered += len(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if not self._has_head:
            return
        self._complete = True
        self._keeps_alive = self._parser.should_keep_alive()
        self._idle_since = asyncio.get_running_loop().time()


def _head_of(request: httpx2.Request) -> bytes:
    """The request's head.

    Raises:
        httpx2.LocalProtocolError: A header that would end the line, such as a key with a line break in it.
    """
    lines = [request.method.encode("ascii") + b" " + request.url.raw_path + b" HTTP/1.1"]
    lines += [name + b": " + value.strip(b" \t") for name, value in request.headers.raw]
    if any(map(_ILLEGAL.search, lines)):
        raise httpx2.LocalProtocolError("a header with a line break or a NUL in it")
    return b"\r\n".join((*lines, b"", b""))
