"""From a client's hang-up to the death of every process of its run, beside what killing a process costs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.bench_server import Served, serving

TIMES = 30
HANGUP_P50_MS = 50
REPLIES: list[dict[str, Any]] = [
    {"stage": "work", "tool_calls": [{"name": "run_shell", "arguments": {"command": "sleep 86399"}}]}
]


def find_pids(words: bytes, below: int) -> list[int]:
    """Processes below a process that carry words in their command line: the tool, its shell, its sandbox."""
    parents: dict[int, int] = {}
    carrying: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                pid = int(entry.name)
                parents[pid] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if words in (entry / "cmdline").read_bytes().replace(b"\0", b" "):
                    carrying.append(pid)
    return [pid for pid in carrying if below in _above(pid, parents)]


def _above(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while pid in parents and pid not in found:
        found.add(pid)
        pid = parents[pid]
    return found


async def gone(handles: list[int]) -> None:
    """Return once every process has ended, and close their handles."""
    loop = asyncio.get_running_loop()
    for handle in handles:
        ended: asyncio.Future[None] = loop.create_future()
        loop.add_reader(handle, lambda done=ended: done.done() or done.set_result(None))
        try:
            await ended
        finally:
            loop.remove_reader(handle)
            os.close(handle)


async def hang_up(served: Served) -> float:
    """Milliseconds from closing the connection to the last process's end."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    body = json.dumps(
        {"model": "direct", "stream": True, "messages": [{"role": "user", "content": "Sleep."}]}
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {served.key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head.encode() + body)
    await reader.readuntil(b"\r\n\r\n")
    pids: list[int] = []
    # The tool itself has to be there, not only the sandbox that will start it.
    while not any(_is_tool(pid) for pid in pids):
        await asyncio.sleep(0.02)
        pids = await asyncio.to_thread(find_pids, b"sleep 86399", served.pid)
    await asyncio.sleep(0.05)
    handles = [os.pidfd_open(pid) for pid in pids]
    begun = time.perf_counter()
    writer.close()
    await gone(handles)
    return (time.perf_counter() - begun) * 1000


def _is_tool(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x0086399\0"
    return False


async def kill_plain() -> float:
    """Milliseconds from a signal to the end of a plain process: the floor."""
    process = await asyncio.to_thread(subprocess.Popen, ["sleep", "86399"])
    handle = os.pidfd_open(process.pid)
    begun = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    await gone([handle])
    took = (time.perf_counter() - begun) * 1000
    process.wait()
    return took


async def measure_hangups(home: Path) -> tuple[list[float], list[float]]:
    """Milliseconds of hang-ups and of plain kills, each sorted."""
    async with serving(home, replies=REPLIES, max_running=100) as served:
        await hang_up(served)
        took = [await hang_up(served) for _ in range(TIMES)]
    return sorted(took), sorted([await kill_plain() for _ in range(TIMES)])
