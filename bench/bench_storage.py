"""What keeping a run costs: durable steps alone and together, beside the bare database on the same disk.

`python -m bench.bench_storage [--json]` prints one line per figure. A step is one acknowledged `append`; the
floor is the stdlib's `sqlite3` storing rows of the same size with the same durability, in one thread that
does nothing else: one row per commit for a step alone, fifty or five hundred for steps together.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from remit.primitives import SystemClock
from remit.runs import StoredRun
from remit.storage import SqliteStore
from remit.testing._store_samples import (
    attempt_started,
    reviewed_run,
    sample_submission,
    settling,
    terminal,
    work_finished,
    work_registered,
)
from remit.testing._store_suite_harness import admit_on, store_write

ALONE_STEPS = 300
STEPS_AT_ONCE = 6_000
REVIEWED_RUNS = 200
ONE_CALL_RUNS = 400
HELD_RUNS = 2_000
SHARE_OF_FLOOR = {50: 0.3, 500: 0.08}
"""Where the bare database is slow, we may be so too. By rows per commit of the floor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    """The same for the bare database, in the same unit."""
    budget: float | None = None
    """What we want at least (rates) or at most (lengths)."""

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.unit.endswith("/s")

    @property
    def kept(self) -> bool:
        """Whether the budget is kept."""
        if self.budget is None:
            return True
        return self.value >= self.budget if self.is_rate else self.value <= self.budget

    def __str__(self) -> str:
        parts = [f"{self.name:<44} {self.value:>10.3f} {self.unit:<8}"]
        if self.floor is not None:
            parts.append(f"floor {self.floor:>10.3f}")
        if self.budget is not None:
            sign = ">=" if self.is_rate else "<="
            parts.append(f"budget {sign} {self.budget:g} {'kept' if self.kept else 'MISSED'}")
        return "  ".join(parts)


Drive = Callable[[SqliteStore, str], Awaitable[None]]
"""Stores a whole run of that id."""


@contextmanager
def bare_database() -> Generator[Callable[[int], None]]:
    """A function that stores some rows in one durable commit."""
    with (
        tempfile.TemporaryDirectory(prefix="remit-bench-") as folder,
        closing(sqlite3.connect(Path(folder) / "floor.db", isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, run INTEGER, seq INTEGER, data TEXT)")
        connection.execute("CREATE UNIQUE INDEX in_order ON log (run, seq)")
        row = json.dumps({"type": "work.registered", "data": {"kind": "node_call", "label": "x" * 120}})
        seq = iter(range(sys.maxsize))

        def commit(rows: int) -> None:
            connection.execute("BEGIN IMMEDIATE")
            values = [(place, next(seq), row) for place in range(rows)]
            connection.executemany("INSERT INTO log (run, seq, data) VALUES (?, ?, ?)", values)
            connection.execute("COMMIT")

        yield commit


@asynccontextmanager
async def fresh_store() -> AsyncGenerator[SqliteStore]:
    """A store on the same disk."""
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with SqliteStore.open(Path(folder) / "data", clock=SystemClock()) as store:
            yield store


def percentile(values: list[float], share: float) -> float:
    """The value below which that share of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def measure_alone() -> list[Figure]:
    """One run, one step after the other."""
    floor: list[float] = []
    with bare_database() as commit:
        for _ in range(ALONE_STEPS):
            began = time.perf_counter()
            commit(1)
            floor.append((time.perf_counter() - began) * 1000)
    steps: list[float] = []
    async with fresh_store() as store:
        run = await admit_on(store, "run_1")
        for place in range(ALONE_STEPS):
            began = time.perf_counter()
            await store.append("run_1", run.generation, [work_registered(str(place))])
            steps.append((time.perf_counter() - began) * 1000)
    bare = statistics.median(floor)
    half, most = statistics.median(steps), percentile(steps, 0.99)
    return [
        Figure(
            name="durable step alone, p50", value=half, unit="ms", floor=bare, budget=max(1.2, bare + 1.0)
        ),
        Figure(name="durable step alone, p99", value=most, unit="ms", floor=percentile(floor, 0.99)),
    ]


async def measure_together(runs: int, *, rows_a_commit: int) -> Figure:
    """Many runs, each one step after the other."""
    with bare_database() as commit:
        began = time.perf_counter()
        for _ in range(STEPS_AT_ONCE // rows_a_commit):
            commit(rows_a_commit)
        floor = STEPS_AT_ONCE / (time.perf_counter() - began)
    async with fresh_store() as store:
        claimed = [await admit_on(store, f"run_{place}") for place in range(runs)]
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for run in claimed:
                group.create_task(_append_steps(store, run, STEPS_AT_ONCE // runs))
        rate = STEPS_AT_ONCE / (time.perf_counter() - began)
    budget = min(9_000, floor * SHARE_OF_FLOOR[rows_a_commit])
    return Figure(
        name=f"durable steps at {runs} runs", value=rate, unit="steps/s", floor=floor, budget=budget
    )


async def _append_steps(store: SqliteStore, run: StoredRun, steps: int) -> None:
    for place in range(steps):
        await store.append(run.view.id, run.generation, [work_registered(str(place))])


async def measure_runs(name: str, drive: Drive, *, count: int, wanted: float) -> list[Figure]:
    """Whole runs, 200 at once: how many a second, and what CPU each costs."""
    async with fresh_store() as store:
        waiting = iter(range(count))

        async def work() -> None:
            for place in waiting:
                await drive(store, f"run_{place}")

        began, cpu = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(200, count)):
                group.create_task(work())
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return [
        Figure(
            name=f"{name}, storing alone, 200 at once", value=count / seconds, unit="runs/s", budget=wanted
        ),
        Figure(name=f"{name}, CPU of storing", value=cpu / count * 1000, unit="ms"),
    ]


async def store_reviewed(store: SqliteStore, run_id: str) -> None:
    """What the supervisor stores of a reviewed run."""
    run = await admit_on(store, run_id)
    writes = list(reviewed_run(run.view))
    for write in writes:
        await store_write(store, run, write, last=write is writes[-1])


async def store_one_call(store: SqliteStore, run_id: str) -> None:
    """What is stored of a run of one provider call."""
    run = await admit_on(store, run_id)
    await store.append(run_id, run.generation, [attempt_started("a1")])
    await store.append(run_id, run.generation, [work_registered("a"), work_finished("a")])
    await store.append(run_id, run.generation, [settling()])
    await store.finish(run_id, run.generation, [terminal(run.view)])


async def measure_wakes() -> Figure:
    """From the append that stores an event to the viewer that holds it."""
    waits: list[float] = []
    async with fresh_store() as store:
        run = await admit_on(store, "run_1")

        async def view(after: int) -> float:
            await store.wait_for_events("run_1", after=after)
            await store.read_events("run_1", after=after)
            return time.perf_counter()

        for place in range(200):
            async with asyncio.TaskGroup() as group:
                viewer = group.create_task(view(place + 1))
                await asyncio.sleep(0.001)
                await store.append("run_1", run.generation, [work_registered("a")])
                stored_at = time.perf_counter()
            waits.append((viewer.result() - stored_at) * 1000)
    return Figure(name="stored event to viewer, p50", value=statistics.median(waits), unit="ms")


async def measure_memory() -> Figure:
    """What the store remembers of a run that it writes to."""
    async with fresh_store() as store:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for place in range(HELD_RUNS):
            await store.submit(sample_submission(f"run_{place}", epoch="epoch_1"))
            run = await store.claim("epoch_1", run_id=f"run_{place}")
            assert run is not None
            await store.append(run.view.id, run.generation, [work_registered("a")])
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return Figure(name="memory per run that is written to", value=grown / HELD_RUNS, unit="KiB", budget=20)


async def measure() -> list[Figure]:
    """All figures."""
    memory = await measure_memory()  # first: it is a difference of peaks
    figures = await measure_alone()
    figures.append(await measure_together(50, rows_a_commit=50))
    figures.append(await measure_together(1_000, rows_a_commit=500))
    figures += await measure_runs("reviewed runs", store_reviewed, count=REVIEWED_RUNS, wanted=35)
    figures += await measure_runs("one-call runs", store_one_call, count=ONE_CALL_RUNS, wanted=100)
    return [*figures, await measure_wakes(), memory]


def main() -> int:
    """Print the figures; 1 if a budget is missed."""
    figures = asyncio.run(measure())
    for figure in figures:
        print(json.dumps(asdict(figure)) if "--json" in sys.argv else figure)
    return 0 if all(figure.kept for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
