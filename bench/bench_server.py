"""What a served host costs: its start, its memory, creating a run, the first byte of a stream, many streams.

`remit serve` as a process, on a scripted model, over loopback; the client shares the machine with it. The
figures of runs through the whole pipeline are in `bench_runs`.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

READY_S = 2.0
IDLE_MIB = 100e6 / 2**20
"""100 MB."""
CREATE_P99_MS = 10
FIRST_BYTE_MS = 100
STREAMS = 1_000
STREAMS_MIB = 150
CREATES = 200
REPLIES: list[dict[str, Any]] = [
    {
        "stage": "work",
        "json": {"completion": "Done.", "verification": "Looked."},
        "delay_ms": 120_000,
    }
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A host that is ready."""

    url: str
    key: str
    pid: int
    ready_s: float

    def client(self, *, timeout: float = 60, **more: Any) -> httpx2.AsyncClient:
        """A client with the first key."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx2.AsyncClient(
            base_url=self.url, headers=headers, timeout=timeout, trust_env=False, **more
        )

    def mib(self) -> float:
        """Resident memory of the host's process."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no VmRSS")

    def all_mib(self) -> float:
        """Memory of the host and everything below it, each page once.

        Not simply the proportional share: of libraries that other programs of this machine use too, it would
        count the less the more of them run.
        """
        waiting, written, files = [self.pid], 0, dict[tuple[str, str], int]()
        while waiting:
            process = Path(f"/proc/{waiting.pop()}")
            for line in (process / "smaps_rollup").read_text().splitlines():
                written += int(line.split()[1]) if line.startswith(("Pss_Anon:", "Pss_Shmem:")) else 0
            for place, kib in _file_pages((process / "smaps").read_text()):
                files[place] = max(files.get(place, 0), kib)
            for children in process.glob("task/*/children"):
                waiting += [int(pid) for pid in children.read_text().split()]
        return (written + sum(files.values())) / 1024


def _file_pages(smaps: str) -> Iterator[tuple[tuple[str, str], int]]:
    """Each piece of a file that a process has in memory, by inode and offset, and its KiB there."""
    place, resident = ("0", ""), 0
    for line in smaps.splitlines():
        words = line.split()
        if not words[0].endswith(":"):  # addresses, rights, offset, device, inode, path
            place = (words[4], words[2])
        elif words[0] == "Rss:":
            resident = int(words[1])
        elif words[0] == "Anonymous:" and place[0] != "0":
            yield place, resident - int(words[1])


def prepare(
    home: Path, *, replies: Sequence[Mapping[str, Any]] = REPLIES, max_running: int = 1, more: str = ""
) -> Path:
    """A folder to work in, a script, and a file with the settings, which is returned."""
    root = home / "app"
    root.mkdir(parents=True)
    (root / "readme.txt").write_text("A folder.\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (home / "script.json").write_text(json.dumps({"replies": list(replies)}))
    config = home / "remit.toml"
    config.write_text(
        f'[providers.demo]\nkind = "scripted"\nscript = "{home}/script.json"\n'
        '[pools.default]\nmembers = [{ model = "demo:m" }]\n'
        '[bindings.direct]\nworkspace = "app"\nprofile = "direct"\nrequire_evidence = false\n'
        f"[host]\nmax_running = {max_running}\nmax_queued = 100000\ndrain_ms = 0\n"
        f'[[nodes.local.workspaces]]\nref = "app"\nroot = "{root}"\nshell = true\nchecks = []\n{more}'
    )
    return config


@asynccontextmanager
async def serving(
    home: Path, *, replies: Sequence[Mapping[str, Any]] = REPLIES, max_running: int = 1
) -> AsyncGenerator[Served]:
    """A host in a process of its own."""
    config = await asyncio.to_thread(prepare, home, replies=replies, max_running=max_running)
    async with started(home, config) as served:
        yield served


@asynccontextmanager
async def started(home: Path, config: Path, **variables: str) -> AsyncGenerator[Served]:
    """A host with these settings, in a process of its own; its data is in `data` below its home."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "REMIT_HOME": str(home / "data")}
    environment |= variables
    begun = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "remit.cli", "serve", "--config", str(config),
        "--listen", "127.0.0.1:0", cwd=home, env=environment, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().strip()
        ready_s = time.monotonic() - begun
        key = (home / "data" / "api-key").read_text().strip()
        yield Served(url=url, key=key, pid=process.pid, ready_s=ready_s)
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def timed(call: Callable[[], Awaitable[object]], times: int) -> list[float]:
    """Milliseconds of each call, one after another, sorted."""
    took: list[float] = []
    for _ in range(times):
        begun = time.monotonic()
        await call()
        took.append((time.monotonic() - begun) * 1000)
    return sorted(took)


async def first_bytes(served: Served, run_id: str, times: int) -> list[float]:
    """Milliseconds to the first byte of a stream, each on a connection of its own."""

    async def first() -> None:
        async with (
            served.client() as client,
            client.stream("GET", f"/api/v1/runs/{run_id}/events") as stream,
        ):
            await anext(stream.aiter_bytes())

    return await timed(first, times)


async def open_streams(served: Served, run_id: str) -> float:
    """MiB that a thousand idle streams add."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    request = (
        f"GET /api/v1/runs/{run_id}/events HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Authorization: Bearer {served.key}\r\n\r\n"
    ).encode()
    before = served.mib()
    writers: list[asyncio.StreamWriter] = []
    for _ in range(STREAMS):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        await reader.readuntil(b"event: run.queued")
        writers.append(writer)
    await asyncio.sleep(1)
    added = served.mib() - before
    for writer in writers:
        writer.close()
    return added


async def measure_streams(home: Path) -> list[tuple[str, float, float | None]]:
    """Start, memory, creating, first bytes, open streams: name, value, budget."""
    async with serving(home) as served, served.client() as client:
        idle, idle_in_all = served.mib(), served.all_mib()
        body = {"binding": "direct", "prompt": "x"}
        run_id = (await client.post("/api/v1/runs", json=body)).json()["id"]
        await asyncio.sleep(2)
        floor = await timed(lambda: client.get("/healthz"), CREATES)
        creates = await timed(lambda: client.post("/api/v1/runs", json=body), CREATES)
        reads = await timed(lambda: client.get(f"/api/v1/runs/{run_id}"), CREATES)
        first = await first_bytes(served, run_id, 50)
        added = await open_streams(served, run_id)
    return [
        ("ready (s)", served.ready_s, READY_S),
        ("idle, the host alone (MiB)", idle, IDLE_MIB),
        ("idle, node and keeper too (MiB)", idle_in_all, IDLE_MIB),
        ("POST /runs p50 (ms)", statistics.median(creates), None),
        ("POST /runs p99 (ms)", creates[int(CREATES * 0.99) - 1], CREATE_P99_MS),
        ("GET /runs/ID p50 (ms)", statistics.median(reads), None),
        ("GET /healthz p50 (floor, ms)", statistics.median(floor), None),
        ("first byte of a stream p99 (ms)", first[-1], FIRST_BYTE_MS),
        (f"{STREAMS} idle streams (MiB more)", added, STREAMS_MIB),
    ]


def shown(figures: list[tuple[str, float, float | None]]) -> list[tuple[str, float, float | None]]:
    """The same figures, printed."""
    for name, value, budget in figures:
        said = "" if budget is None else f"   budget {budget:.4g}{'' if value <= budget else '   OVER'}"
        print(f"{name:40} {value:8.2f}{said}", flush=True)
    return figures


async def measure(home: Path) -> int:
    """Print the figures; 1 when one of them passed its budget."""
    # Here, since they take the host from this module.
    from bench.server_hangups import HANGUP_P50_MS, measure_hangups  # noqa: PLC0415
    from bench.server_pages import measure_pages  # noqa: PLC0415
    from bench.server_peers import measure_peers  # noqa: PLC0415

    figures = shown(await measure_streams(home / "streams"))
    took, plain = await measure_hangups(home / "hangups")
    figures += shown(
        [
            ("hang-up to all processes dead p50 (ms)", statistics.median(took), HANGUP_P50_MS),
            ("the same, p90 (ms)", took[int(len(took) * 0.9)], None),
            ("a plain process killed p50 (floor, ms)", statistics.median(plain), None),
        ]
    )
    figures += shown(await measure_pages(home / "pages"))
    print(f"{'one answer, streamed, through':28} ready s  idle MiB  first byte ms  answers/s, 200 at once")
    async for one in measure_peers(home / "peers"):
        print(
            f"{one.name:28} {one.ready_s:7.1f} {one.idle_mib:9.0f} {one.first_p50_ms:14.1f} {one.rate:10.0f}",
            flush=True,
        )
    return int(any(budget is not None and value > budget for _, value, budget in figures))


def main() -> int:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        return asyncio.run(measure(Path(folder).resolve()))


if __name__ == "__main__":
    sys.exit(main())
