"""The tools over this process's stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

import anyio
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server


@dataclass(frozen=True, slots=True)
class Wire:
    """The client's two pipes."""

    reads: IO[str]
    writes: IO[str]


@contextmanager
def claimed_wire() -> Generator[Wire]:
    """Keep stdin and stdout for the protocol: for all others stdin is empty, and stdout is stderr.

    Entered before anything is started that might inherit them.
    """
    sys.stdout.flush()
    reads, writes = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        # The reading end is left open: its thread may be waiting in it until the process ends.
        with open(writes, "w", encoding="utf-8", newline="\n", closefd=False) as out:
            yield Wire(open(reads, encoding="utf-8", errors="replace", closefd=False), out)  # noqa: SIM115 - see above: it stays open
    finally:
        os.dup2(reads, 0)
        os.dup2(writes, 1)
        os.close(nothing)


async def serve_streams(server: Server, wire: Wire, *, stop: asyncio.Event) -> None:
    """Serve the client at the other end until it leaves, or `stop` is set.

    Calls that go on then are cancelled, and their runs with them.
    """
    lines = _Lines(wire.reads)
    stdin, stdout = cast("Any", lines), anyio.wrap_file(wire.writes)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(_serve(server, stdin, stdout), name="MCP")
        stopping = group.create_task(stop.wait(), name="stop")
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        serving.cancel()


async def _serve(server: Server, stdin: Any, stdout: Any) -> None:
    async with stdio_server(stdin, stdout) as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


class _Lines:
    """Lines of a pipe, read on a thread that nobody waits for: a read can't be taken back."""

    def __init__(self, source: IO[str]) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._source:
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
            self._loop.call_soon_threadsafe(self._lines.put_nowait, None)
        except (OSError, RuntimeError, ValueError):
            return  # the loop has ended, or the pipe has

    async def __aiter__(self) -> AsyncIterator[str]:
        while (line := await self._lines.get()) is not None:
            yield line
