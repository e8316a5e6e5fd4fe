"""The HTTP transport under every SDK: bounds the waits, and lets an exchange see each reply first.

One client serves all attempts with one key. Which attempt a request belongs to is told by a context
variable, since SDKs have no place to carry it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import httpx2

_MAX_ERROR_BYTES = 64 * 1024
_MAX_WHOLE_BYTES = 64 * 1024 * 1024
_TAIL_S = 0.5
"""How long the end of a connection's reply is awaited once the end mark was seen."""
_FRAMING_HEADERS = ("content-length", "content-encoding", "transfer-encoding", "content-type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How long a reply may keep us waiting, in seconds."""

    first_byte_s: float
    idle_s: float


class WireRecord(Protocol):
    """What the transport tells of, and asks, as a reply comes."""

    waits: Waits

    @property
    def lines_of_json(self) -> bool:
        """Whether a body that begins as JSON is a stream all the same."""
        ...

    def sends(self, request: httpx2.Request) -> None:
        """A request is about to go out. May raise, and it won't."""
        ...

    def answered(self, status: int, headers: httpx2.Headers) -> None:
        """Status and headers came."""
        ...

    def opened(self, body: httpx2.AsyncByteStream) -> None:
        """The body of a reply is about to be read; whoever owns the attempt closes it at its end."""
        ...

    def refused(self, body: bytes) -> None:
        """The body of an answer that isn't a success, its start."""
        ...

    def failed(self, error: Exception, *, connected: bool) -> None:
        """The connection broke, or took too long."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Bytes of a stream came; what an SDK is to see instead."""
        ...

    def feed_whole(self, body: bytes) -> bytes:
        """The reply came as one body; what an SDK is to see instead."""
        ...

    def finish(self) -> bytes:
        """The stream ended."""
        ...

    def note_tail(self, data: bytes | None) -> None:
        """Bytes after the end mark; None: the connection broke there."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the end mark was seen."""
        ...

    @property
    def complete(self) -> bool:
        """Whether what came so far is a whole reply."""
        ...


CURRENT: ContextVar[WireRecord] = ContextVar("remit_model_exchange")


class ObservingTransport(httpx2.AsyncBaseTransport):
    """Sends requests through another transport, under the eyes of the current exchange."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; a reply's body is observed while it is read."""
        record = CURRENT.get()
        record.sends(request)
        first_byte_at = asyncio.get_running_loop().time() + record.waits.first_byte_s
        try:
            async with asyncio.timeout_at(first_byte_at):
                response = await self._inner.handle_async_request(request)
        except TimeoutError:
            error = httpx2.ReadTimeout(f"no answer within {record.waits.first_byte_s:g} s", request=request)
            record.failed(error, connected=True)
            raise error from None
        except httpx2.TransportError as error:
            unconnected = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
            record.failed(error, connected=not isinstance(error, unconnected))
            raise
        record.answered(response.status_code, response.headers)
        body = _Body(_decoded(response), record, first_byte_at)
        if response.status_code != 200:
            return await self._refused(response, body, record)
        headers = [(name, value) for name, value in response.headers.raw if _kept(name)]
        headers.append((b"content-type", b"text/event-stream"))
        stream = _ObservedStream(body, record)
        record.opened(stream)
        return httpx2.Response(200, headers=headers, stream=stream)

    async def _refused(self, response: httpx2.Response, body: _Body, record: WireRecord) -> httpx2.Response:
        start = b""
        try:
            async for piece in body:
                start += piece
                if len(start) >= _MAX_ERROR_BYTES:
                    break
        except httpx2.TransportError:
            pass  # the status says enough
        finally:
            await response.aclose()
        record.refused(start[:_MAX_ERROR_BYTES])
        headers = [(name, value) for name, value in response.headers.raw if _kept(name)]
        return httpx2.Response(response.status_code, headers=headers, content=start[:_MAX_ERROR_BYTES])

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


def _kept(name: bytes) -> bool:
    return name.decode("latin-1").lower() not in _FRAMING_HEADERS


@dataclass(frozen=True, slots=True)
class _Source:
    """A response's bytes, decompressed where the server compressed against our wish."""

    pieces: AsyncIterator[bytes]
    response: httpx2.Response


def _decoded(response: httpx2.Response) -> _Source:
    if response.headers.get("content-encoding", "identity").lower() == "identity":
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        return _Source(aiter(stream), response)
    return _Source(response.aiter_bytes(), response)


class _Body:
    """The pieces of a body, each within its time."""

    def __init__(self, source: _Source, record: WireRecord, first_byte_at: float) -> None:
        self._source = source
        self._record = record
        self._first_byte_at = first_byte_at
        self._read_at: float | None = None

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        # Asked anew for each piece: what came may have made the record patient, or impatient.
        waits = self._record.waits
        bound_s = waits.first_byte_s if self._read_at is None else waits.idle_s
        until = self._first_byte_at if self._read_at is None else self._read_at + bound_s
        try:
            async with asyncio.timeout_at(until):
                piece = await anext(self._source.pieces)
        except TimeoutError:
            error = httpx2.ReadTimeout(f"silent for {bound_s:g} s")
            self._record.failed(error, connected=True)
            raise error from None
        except httpx2.TransportError as error:
            self._record.failed(error, connected=True)
            raise
        self._read_at = asyncio.get_running_loop().time()
        return piece

    async def read_tail(self) -> None:
        """Read what follows the end mark, so that the connection can be used again."""
        try:
            async with asyncio.timeout(_TAIL_S):
                async for piece in self._source.pieces:
                    self._record.note_tail(piece)
        except (TimeoutError, httpx2.TransportError):
            self._record.note_tail(None)

    async def aclose(self) -> None:
        await self._source.response.aclose()


class _Intake:
    """Gives the record what comes, in the form that it turns out to have."""

    def __init__(self, record: WireRecord) -> None:
        self._record = record
        self._head = b""
        self._form = "unknown"

    @property
    def full(self) -> bool:
        """Whether reading on makes no sense."""
        return self._form == "markup" or len(self._head) > _MAX_WHOLE_BYTES

    def feed(self, piece: bytes) -> bytes:
        """A piece of the body; what the SDK is to see of it."""
        if self._form == "stream":
            return self._record.feed(piece)
        self._head += piece
        if self._form == "unknown":
            self._form = _form(self._head)
            if self._form == "json" and self._record.lines_of_json:
                self._form = "stream"
        if self._form != "stream":
            return b""
        head, self._head = self._head, b""
        return self._record.feed(head)

    def finish(self, *, broken: bool) -> bytes:
        """The body ended, or broke off; what the SDK is still to see."""
        if self._form == "stream":
            return self._record.finish()  # a record may lack only the blank line after it
        return b"" if broken or not self._head.strip() else self._record.feed_whole(self._head)


class _ObservedStream(httpx2.AsyncByteStream):
    """A reply's body as the SDK is to see it."""

    def __init__(self, body: _Body, record: WireRecord) -> None:
        self._body = body
        self._record = record
        self._intake = _Intake(record)
        self._ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._ended:
            return  # the SDK drains what it has read to the end
        failure: httpx2.TransportError | None = None
        try:
            async for piece in self._body:
                shown = self._intake.feed(piece)
                if self._record.ended:
                    # Before the last piece is given on, since nobody asks for more after it.
                    self._ended = True
                    await self._body.read_tail()
                if shown:
                    yield shown
                if self._ended:
                    return
                if self._intake.full:
                    break
        except httpx2.TransportError as error:
            failure = error
        self._ended = True
        if last := self._intake.finish(broken=failure is not None):
            yield last
        if failure is not None:
            if not self._record.complete:
                raise failure
            self._record.note_tail(None)

    async def aclose(self) -> None:
        await self._body.aclose()


def _form(head: bytes) -> str:
    """What kind of body begins so: a stream, one JSON value, markup, or not to be told yet."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start:
        return "unknown"
    if start[:1] in b"{[":
        return "json"
    return "markup" if start[:1] == b"<" else "stream"
