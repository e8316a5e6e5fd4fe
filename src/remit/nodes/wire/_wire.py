"""One end of a link's socket: records in, records out."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Final, Self

from remit.errors import NodeError
from remit.nodes.wire._frames import (
    MAX_FRAME_BYTES,
    MAX_RECORD_BYTES,
    FrameDecoder,
    Oversized,
    Record,
    frames_of,
)

__all__ = ["RecordTooLarge", "Wire"]

_READ_BYTES: Final = 4 * MAX_FRAME_BYTES


class RecordTooLarge(NodeError):
    """More than the other side takes; nothing was sent."""


class Wire:
    """A connected socket that carries records. Used by `async with`, by the loop that opened it.

    Args:
        end: The socket; it is closed with the wire.
        max_record_bytes: Of one record, in both directions.
    """

    def __init__(self, end: socket.socket, *, max_record_bytes: int = MAX_RECORD_BYTES) -> None:
        self._end = end
        self._max_record_bytes = max_record_bytes
        self._decoder = FrameDecoder(max_record_bytes=max_record_bytes)
        self._found: deque[Record | Oversized] = deque()
        self._sending: set[asyncio.Task[None]] = set()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._group: asyncio.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._end.setblocking(False)
        self._reader, self._writer = await asyncio.open_connection(sock=self._end, limit=_READ_BYTES)
        self._writer.transport.set_write_buffer_limits(high=MAX_FRAME_BYTES)
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        group, self._group = self._group, None
        if group is not None:
            for task in self._sending:
                task.cancel()  # nobody is left to read it
            await group.__aexit__(None, None, None)

    def close(self) -> None:
        """Let the other side read the end; what wasn't written yet is dropped."""
        if self._writer is not None and not self._writer.transport.is_closing():
            self._writer.transport.abort()

    def send(self, number: int, payload: bytes) -> None:
        """Send a record; a large one goes on by itself. Never waits.

        Raises:
            RecordTooLarge: It is larger than is taken; nothing was sent.
            NodeError: The wire is closed, reason `lost`.
        """
        if self._writer is None or self._group is None or self._writer.transport.is_closing():
            raise NodeError("the link to the node is closed", reason="lost")
        if len(payload) > self._max_record_bytes:
            raise RecordTooLarge(
                f"{len(payload)} bytes are more than a link takes at once ({self._max_record_bytes})",
                reason="refused",
            )
        if len(payload) <= MAX_FRAME_BYTES:
            self._writer.write(next(frames_of(number, payload)))
            return
        task = self._group.create_task(
            _send_parts(self._writer, number, payload), name=f"record {number} of a node's link"
        )
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def flush(self) -> None:
        """Return once everything has been handed to the other side's socket, or it is gone."""
        while self._sending:
            await asyncio.wait(set(self._sending))
        if self._writer is not None:
            self._writer.transport.set_write_buffer_limits(high=0)
            try:
                await self._writer.drain()
            except ConnectionError:
                return

    async def records(self) -> AsyncGenerator[Record | Oversized]:
        """What comes, up to the end of the stream; who asks again goes on where this was left.

        Raises:
            BrokenFrames: What comes can't be frames.
        """
        reader = self._reader
        if reader is None:
            return
        while True:
            while self._found:
                yield self._found.popleft()
            try:
                data = await reader.read(_READ_BYTES)
            except ConnectionError:
                return
            if not data:
                return
            self._found += self._decoder.feed(data)


async def _send_parts(writer: asyncio.StreamWriter, number: int, payload: bytes) -> None:
    """A frame at a time, so that what is small, and what others send, goes between."""
    try:
        for frame in frames_of(number, payload):
            writer.write(frame)
            await writer.drain()
            await asyncio.sleep(0)
    except ConnectionError:
        return
