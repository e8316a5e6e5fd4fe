"""Does a host leak? `python -m bench.soak [--seconds 600] [--at-once 200]`, or `make soak`.

A real `remit serve` and a provider, each a process of its own; so many clients at once that follow runs, hang
up, come back and cancel. Before and after, with nothing to do, the host's whole process tree is looked at:
asyncio tasks, threads, descriptors, processes, work, checkouts, files. Memory is looked at on the way: what
counts is its slope over the runs that have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx2
from bench.bench_runs import Provider, make_tree, provider, settings, toml
from bench.bench_server import Served, started
from bench.soak_actors import Crowd

WARM_RUNS = 30
MOST_KIB_A_RUN = 10.0
"""By how much a run may raise the memory, in the later half: caches that remember the last thousands of runs
fill, and the allocator has its holes (2 were found over ten minutes). A run whose objects stayed, be it only
until the collector looks at everything, would take some 20."""
MOST_MIB_MORE = 150.0
"""What a short soak may add in all, where a slope says nothing yet."""
LONG_RUNS = 2_000
"""From so many runs on the slope counts."""
DOCUMENTS = "runs"
"""What the node keeps of each run on purpose: its patch and its receipts, in folders below this one."""
QUIET_S = 60.0
"""How long the host may take to let go of everything, connections that it keeps for later included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a host holds at a moment."""

    tasks: int
    threads: int
    descriptors: int
    """Of the whole tree of processes."""
    processes: int
    streams: int
    runs: int
    """Queued or running."""
    work: int
    residencies: int
    folders: int
    """In the data folder (checkouts are there) and among temporary files, but not those of documents."""
    files: int


def tree_of(pid: int) -> list[int]:
    """A process and all that are below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return found


def resident_kib(pids: Sequence[int]) -> int:
    """Resident memory of processes: the host and those that last as long as it, not the keepers of runs."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return total


async def look_at(served: Served, home: Path) -> Look:
    """Look at a host."""
    async with served.client() as client:
        text = (await client.get("/metrics")).text
        work = (await client.get("/api/v1/work")).json()["data"]
    values: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[name.partition("{")[0]] = values.get(name.partition("{")[0], 0) + float(value)
    pids = tree_of(served.pid)
    descriptors = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            descriptors += len(os.listdir(f"/proc/{pid}/fd"))
    folders = files = 0
    for root in (home / "data", home / "tmp"):
        for _, names, found in os.walk(root):
            if DOCUMENTS in names:
                names.remove(DOCUMENTS)
            folders, files = folders + len(names), files + len(found)
    return Look(
        tasks=int(values["remit_tasks"]),
        threads=int(values["process_threads"]),
        descriptors=descriptors,
        processes=len(pids),
        streams=int(values["remit_streams_open"]),
        runs=int(values["remit_runs_running"] + values["remit_runs_queued"]),
        work=len(work),
        residencies=int(values.get("remit_residencies", 0)),
        folders=folders,
        files=files,
    )


async def quiet(served: Served, home: Path, *, like: Look | None, at_once: int = 0) -> Look:
    """Look again and again until nothing goes on, and no more is there than in what it is compared with.

    What an idle host holds goes down for a while: connections to providers, threads of pools.
    """
    ends = time.monotonic() + QUIET_S
    while True:
        found = await look_at(served, home)
        still = not (found.runs or found.work or found.streams or found.residencies)
        if (still and (like is None or not excess(found, like, at_once))) or time.monotonic() > ends:
            return found
        await asyncio.sleep(1)


def excess(found: Look, like: Look, at_once: int) -> list[str]:
    """What there is more of than there was, but for what is bounded and stays for the next use.

    That is: threads of pools, connections for reading, and connections to the provider, of which an idle one
    is closed when the next one is given back, at most 256 in all.
    """
    slack = {"threads": 8, "tasks": 2, "descriptors": 16 + min(256, at_once)}
    return [
        f"{name}: {getattr(found, name)}, at first {getattr(like, name)}"
        for name in Look.__dataclass_fields__
        if getattr(found, name) > getattr(like, name) + slack.get(name, 0)
    ]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Least squares: how much the second number rises for one of the first."""
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


async def _stop_after(crowd: Crowd, runs: int, stop: asyncio.Event) -> None:
    while crowd.ended.total() < runs:  # noqa: ASYNC110 - a look now and then is all that it takes
        await asyncio.sleep(0.1)
    stop.set()


async def watch(
    pids: Sequence[int], crowd: Crowd, stop: asyncio.Event, seconds: float
) -> list[tuple[float, float]]:
    """Resident memory (KiB) over ended runs, until the time is over."""
    points: list[tuple[float, float]] = []
    ends, told = time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < ends:
        points.append((float(crowd.ended.total()), float(await asyncio.to_thread(resident_kib, pids))))
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(f"     {points[-1][0]:6.0f} runs  {points[-1][1] / 1024:6.0f} MiB", flush=True)
        await asyncio.sleep(seconds / 100)
    stop.set()
    return points


def write_config(home: Path, fake: Provider, root: Path, at_once: int) -> Path:
    """A file with the settings."""
    tables = settings(fake, root, at_once)
    tables["nodes"]["local"]["workspaces"][0]["preserve"] = "never"
    tables["host"] |= {"max_queued": 4 * at_once, "drain_ms": 0}
    path = home / "remit.toml"
    path.write_text("".join(f"{name} = {toml(value)}\n" for name, value in tables.items()))
    return path


async def soak(home: Path, fake: Provider, *, seconds: float, at_once: int, seed: int) -> list[str]:
    """Soak a host; what is wrong with it."""
    config = write_config(home, fake, make_tree(home / "app", files=40), at_once)
    (home / "tmp").mkdir()
    wrong: list[str] = []
    more = {"FAKE_KEY": fake.api_key, "TMPDIR": str(home / "tmp")}
    async with started(home, config, **more) as served:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=at_once)
        async with served.client(timeout=400, limits=limits) as client:
            crowd = Crowd(client, random.Random(seed))
            stop, warm = asyncio.Event(), Crowd(client, random.Random(seed))
            async with asyncio.TaskGroup() as group:
                group.create_task(warm.play_until(stop, 8))
                group.create_task(_stop_after(warm, WARM_RUNS, stop))
            before = await quiet(served, home, like=None)
            print(f"     at first: {before}", flush=True)
            lasting = tree_of(served.pid)
            stop, began, first = asyncio.Event(), time.monotonic(), resident_kib(lasting)
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch(lasting, crowd, stop, seconds))
                group.create_task(crowd.play_until(stop, at_once))
            took = time.monotonic() - began
        after = await quiet(served, home, like=before, at_once=at_once)
        print(f"     at last:  {after}", flush=True)
        wrong += excess(after, before, at_once)
        last, points = resident_kib(lasting), watching.result()
    print(f"     {crowd.ended.total()} runs in {took:.0f} s: {dict(crowd.ended)}")
    print(f"     {dict(crowd.acts)}")
    wrong += crowd.broken
    rise = slope(points[len(points) // 2 :])
    print(f"     memory {first / 1024:.0f} -> {last / 1024:.0f} MiB; later half {rise:+.2f} KiB a run")
    if crowd.ended.total() >= LONG_RUNS and rise > MOST_KIB_A_RUN:
        wrong.append(f"memory rises by {rise:.2f} KiB a run (at most {MOST_KIB_A_RUN})")
    if crowd.ended.total() < LONG_RUNS and (last - first) / 1024 > MOST_MIB_MORE:
        wrong.append(f"memory rose by {(last - first) / 1024:.0f} MiB (at most {MOST_MIB_MORE:.0f})")
    wrong += [f"left among temporary files: {path.name}" for path in (home / "tmp").iterdir()]
    return wrong


def main() -> int:
    """1 when something leaks, or a promise isn't kept."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="Does a host leak?")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="remit-soak-") as folder, provider("forget") as fake:
        home = Path(folder).resolve()
        wrong = asyncio.run(soak(home, fake, seconds=given.seconds, at_once=given.at_once, seed=given.seed))
    for line in wrong:
        print(f"WRONG {line}")
    print("nothing leaks" if not wrong else f"{len(wrong)} things are wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
