"""A small HTTP/1.1 server that can misbehave to the byte, which a well-behaved one can't.

One connection at a time is one coroutine; what the client sends is read by the protocol, so that its
hang-up is seen at any moment, also in the middle of a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

_HEAD_MAX_BYTES = 64 * 1024
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


class ClientLeftError(Exception):
    """The client closed its side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(
        self, serve: Callable[[Connection], Awaitable[None]], owner: set[asyncio.Task[None]]
    ) -> None:
        self._serve = serve
        self._owner = owner
        self._buffer = bytearray()
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._left = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve; the server waits for the task when it ends."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.get_running_loop().create_task(self._run())
        self._owner.add(task)
        task.add_done_callback(self._owner.discard)

    def data_received(self, data: bytes) -> None:
        """Keep what came."""
        self._buffer += data
        self._news.set()

    def eof_received(self) -> bool:
        """The client closed its side; nobody of ours half-closes on purpose."""
        self._left.set()
        self._news.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._left.set()
        self._news.set()
        self._writable.set()

    def pause_writing(self) -> None:
        """The client doesn't read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It reads again."""
        self._writable.set()

    @property
    def left(self) -> bool:
        """Whether the client closed its side."""
        return self._left.is_set()

    async def read_request(self) -> HttpRequest | None:
        """The next request, or None when the client is done.

        Raises:
            ValueError: It isn't HTTP as we take it.
        """
        head = await self._read_head()
        if head is None:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
        length = int(headers.get("content-length", "0"))
        while len(self._buffer) < length:
            await self._more()
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return HttpRequest(method=method, path=path, headers=headers, body=body)

    async def _read_head(self) -> bytes | None:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _HEAD_MAX_BYTES:
                raise ValueError("the head is too long")
            try:
                await self._more()
            except ClientLeftError:
                return None
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        return head

    async def _more(self) -> None:
        self._news.clear()
        if self.left:
            raise ClientLeftError
        await self._news.wait()

    async def pause(self, delay_ms: float) -> None:
        """Wait so long; ends at once when the client leaves.

        Raises:
            ClientLeftError: It left.
        """
        if delay_ms > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), delay_ms / 1000)
        if self.left:
            raise ClientLeftError

    async def send_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Status line and headers."""
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def send(self, data: bytes) -> None:
        """Bytes as they are."""
        if self.left or self._transport is None:
            raise ClientLeftError
        self._transport.write(data)
        if not self._writable.is_set():
            await self._writable.wait()

    def close(self) -> None:
        """Close after what was written."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Break the connection with a reset; what was written may be lost at the client."""
        if self._transport is None:
            return
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    async def _run(self) -> None:
        try:
            await self._serve(self)
        except (ClientLeftError, ValueError):
            pass
        finally:
            self.close()
