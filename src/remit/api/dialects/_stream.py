"""A run as a stream in a client's dialect: one writer, so that events keep their order and their numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

from remit.api._guard import Receive, Scope, Send
from remit.api._streams import HEADERS, Streams
from remit.api.dialects._faults import Fault, fault_of_run
from remit.api.dialects._telling import Over, Piece, Progress, Told, pieces_of
from remit.contract import RunView
from remit.errors import RemitError

_LINE: Final = 64


class Teller(Protocol):
    """Writes the frames of one dialect, in order. What it gives is sent as it is; nothing may be empty."""

    def begin(self) -> bytes:
        """Before all else."""
        ...

    def keep_alive(self) -> bytes:
        """A sign of life."""
        ...

    def progress(self, text: str) -> bytes:
        """What goes on."""
        ...

    def text(self, text: str) -> bytes:
        """A piece of the answer."""
        ...

    def complete(self, run: RunView) -> bytes:
        """The answer is whole."""
        ...

    def fail(self, fault: Fault, run: RunView | None) -> bytes:
        """There is no answer (R68)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """Where a stream's content comes from."""

    told: AsyncGenerator[Told]
    teller: Teller
    read_run: Callable[[], Awaitable[RunView]]
    """The run as it stands."""
    is_allowed: Callable[[], Awaitable[bool]]
    """Asked at each sign of life: a client whose key has ended is cut."""
    left: Callable[[bool], Awaitable[object]]
    """Told once, when the client is gone or has the end (true)."""
    headers: Mapping[str, str]


class RunStream:
    """One streamed answer."""

    def __init__(self, streams: Streams, source: StreamSource) -> None:
        self._streams = streams
        self._source = source
        self._comments: list[bytes] = []
        self._line: asyncio.Queue[Told | None] = asyncio.Queue(_LINE)
        """What is to be sent; None: look for something else to say."""
        self._closed = False
        self._ended = False
        self._sent = ""

    # ---- from outside

    def say(self, comment: bytes) -> None:
        """Put a comment between the frames, soon."""
        self._comments.append(comment)
        self._nudge()

    def close(self) -> None:
        """End it, soon."""
        self._closed = True
        self._nudge()

    def _nudge(self) -> None:
        if not self._line.full():
            self._line.put_nowait(None)

    # ---- the answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with it. The first bytes go out at once."""
        self._streams.add(self)
        try:
            with self._streams.counted():
                extra = [(name.encode(), value.encode()) for name, value in self._source.headers.items()]
                await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *extra]})
                await self._run(receive, send)
                await _write(send, b"", more=False)
        finally:
            self._streams.discard(self)
            await self._source.left(self._ended)

    async def _run(self, receive: Receive, send: Send) -> None:
        """The frames, their source, and the client's leaving: the first of the two ends to come ends all."""
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(self._read(), name="events")
            ends = {
                group.create_task(self._write_all(send), name="frames"),
                group.create_task(wait_gone(receive), name="client"),
            }
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for part in (reader, *ends):
                part.cancel()

    async def _read(self) -> None:
        try:
            async with aclosing(self._source.told) as told:
                async for one in told:
                    await self._line.put(one)
        except RemitError:
            await self._line.put(Over())  # the store is being closed

    async def _write_all(self, send: Send) -> None:
        teller = self._source.teller
        await _write(send, teller.begin())
        while not self._closed:
            try:
                async with asyncio.timeout(self._streams.keep_alive_s):
                    told = await self._line.get()
            except TimeoutError:
                if not await self._source.is_allowed():
                    return
                await _write(send, teller.keep_alive())
                continue
            while self._comments:
                await _write(send, self._comments.pop(0))
            for frame in await self._frames(told):
                await _write(send, frame)
            if self._ended:
                return

    async def _frames(self, told: Told | None) -> Iterator[bytes]:
        teller = self._source.teller
        match told:
            case None:
                return iter(())
            case Progress():
                return iter([teller.progress(told.text)])
            case Piece():
                self._sent += told.text
                return iter([teller.text(told.text)])
            case Over():
                run = await self._source.read_run()
                self._ended = True
                return self._last_frames(run)
            case _:
                assert_never(told)

    def _last_frames(self, run: RunView) -> Iterator[bytes]:
        teller, output = self._source.teller, run.output
        if run.terminal is None or run.terminal.kind != "completed" or output is None:
            yield teller.fail(fault_of_run(run), run)
        elif not output.startswith(self._sent):
            yield teller.fail(_begun_anew(run), run)
        else:
            for piece in pieces_of(output[len(self._sent) :]):
                yield teller.text(piece)
            yield teller.complete(run)


def _begun_anew(run: RunView) -> Fault:
    """Text that was shown can't be taken back: the answer is on the host, whole."""
    return Fault(
        status=502,
        code="provider/cut",
        message=f"The provider broke off and began anew; run {run.id} has the whole answer.",
        run_id=run.id,
    )


async def wait_gone(receive: Receive) -> None:
    """Return once the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        continue


async def _write(send: Send, data: bytes, *, more: bool = True) -> None:
    if data or not more:
        await send({"type": "http.response.body", "body": data, "more_body": more})
