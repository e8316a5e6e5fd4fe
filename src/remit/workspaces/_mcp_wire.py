"""The byte streams of an MCP server's process, as the streams of messages that the SDK works with.

Lines that hold no message are skipped (a banner, a log line on the wrong stream). A message is written whole
or not at all, whoever gives up waiting for it meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

import mcp.types
from mcp.shared.message import SessionMessage

from remit.workspaces._failures import KeeperLost, WorkspaceOperationError

__all__ = ["ByteStreams", "Wire"]

MAX_LINE_BYTES: Final = 8_388_608
"""The longest message that is taken; a server that sends a longer one is given up."""
_STRAY_CHARS: Final = 400
_AHEAD: Final = 16


class ByteStreams(Protocol):
    """What is needed of a running program."""

    async def hear(self) -> bytes:
        """What it says next; empty: it says no more."""
        ...

    async def say(self, data: bytes) -> None:
        """Writes to it."""
        ...


@dataclass(frozen=True, slots=True)
class _Outgoing:
    data: bytes
    written: asyncio.Future[None]


class _Stream:
    """What the SDK expects of a stream beside its messages: a block that may be left."""

    async def aclose(self) -> None:
        """Nothing is held."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class Incoming(_Stream):
    """Messages of the server, in their order."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[SessionMessage | None] = asyncio.Queue(_AHEAD)

    async def put(self, message: SessionMessage | None) -> None:
        """Hand a message over; None: there are no more."""
        await self._queue.put(message)

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        return await self.__anext__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        message = await self._queue.get()
        if message is None:
            raise StopAsyncIteration
        return message


class Outgoing(_Stream):
    """Messages to the server."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[_Outgoing] = asyncio.Queue(_AHEAD)
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message; returns once it is in the pipe, or nobody reads any more.

        Cancellation: the message goes out whole all the same, once it was taken.
        """
        if self._closed:
            return  # whoever waits for an answer is told by the other stream's end
        body = item.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
        # ASCII: the arguments may hold lone surrogates, which no UTF-8 can.
        data = json.dumps(body, separators=(",", ":")).encode("ascii") + b"\n"
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._queue.put(_Outgoing(data, written))
        await asyncio.shield(written)

    async def next(self) -> _Outgoing:
        """The next message to write."""
        return await self._queue.get()

    def close(self) -> None:
        """Nothing is written any more; what waits is dropped."""
        self._closed = True
        while not self._queue.empty():
            _tell(self._queue.get_nowait())


class Wire:
    """Both directions of one server. `listen` and `speak` run beside the SDK's session, until its end."""

    def __init__(self, streams: ByteStreams) -> None:
        self._streams = streams
        self._line = bytearray()
        self.incoming = Incoming()
        self.outgoing = Outgoing()
        self.problem: str | None = None
        """What is wrong with what the server says."""
        self.stray = 0
        """Lines that held no message."""
        self.last_stray = ""

    async def listen(self) -> None:
        """Take in what the server says, until it says no more, or it can't be followed."""
        try:
            while self.problem is None and (data := await self._streams.hear()):
                await self._feed(data)
        except KeeperLost:
            self.problem = "its checkout is gone"
        finally:
            self.outgoing.close()
        await self.incoming.put(None)

    async def _feed(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line += line
            if len(self._line) > MAX_LINE_BYTES:
                break
            whole, self._line = bytes(self._line), bytearray()
            await self._take(whole)
        else:
            self._line += rest
        if len(self._line) > MAX_LINE_BYTES:
            self.problem = f"it sent a message of more than {MAX_LINE_BYTES} bytes"

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = mcp.types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self.stray += 1
            self.last_stray = line[:_STRAY_CHARS].decode("utf-8", "replace")
            return
        await self.incoming.put(SessionMessage(message))

    async def speak(self) -> None:
        """Write what is to be said, one message after the other; ends by being cancelled."""
        while True:
            item = await self.outgoing.next()
            try:
                await self._streams.say(item.data)
            except (WorkspaceOperationError, KeeperLost):
                self.outgoing.close()
            finally:
                _tell(item)


def _tell(item: _Outgoing) -> None:
    if not item.written.done():
        item.written.set_result(None)
