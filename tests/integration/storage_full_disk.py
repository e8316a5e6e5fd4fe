"""What `test_storage_full` runs in a mount namespace of its own: a store on 40 MB that get full."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from remit.contract import RunStatus
from remit.errors import StorageFull
from remit.events import Artifact
from remit.primitives import SystemClock
from remit.runs import StoredRun
from remit.storage import SqliteStore
from remit.testing._store_samples import sample_submission, settling, terminal, work_registered
from remit.testing._store_suite_harness import admit_on

RESERVE_BYTES = 4 * 1024 * 1024
BALLAST_BYTES = 16 * 1024 * 1024
OTHERS = 20


def fill(path: Path) -> None:
    """Write until there is no byte left."""
    block = b"x" * 65536
    with path.open("wb", buffering=0) as file:
        for size in (len(block), 4096, 512, 1):
            try:
                while file.write(block[:size]) == size:
                    pass
            except OSError:
                continue


async def store_until_full(store: SqliteStore, run: StoredRun) -> int:
    """Store large artifacts until one isn't taken; how many were."""
    for place in range(100):
        artifact = Artifact(name=f"output-{place}", text=f"{place} " * 400_000)
        try:
            await store.append("run_1", run.generation, [work_registered(str(place))], artifacts=[artifact])
        except StorageFull:
            return place
    raise AssertionError("a disk of 40 MB took 100 MB")


async def close_run(store: SqliteStore, run: StoredRun) -> None:
    """What the supervisor does with a run whose fact couldn't be stored."""
    await store.append(run.view.id, run.generation, [settling("failed")])
    await store.finish(run.view.id, run.generation, [terminal(run.view, "failed")])


async def append_until_full(store: SqliteStore, run: StoredRun) -> None:
    """Store ordinary facts, ever smaller ones, until none is taken; the one that isn't leaves no trace."""
    for size in (100_000, 1_000, 1):
        for _ in range(1_000):
            before = await store.read_events(run.view.id)
            try:
                await store.append(run.view.id, run.generation, [work_registered("x" * size)])
            except StorageFull:
                assert await store.read_events(run.view.id) == before
                break
        else:
            raise AssertionError("a full disk takes everything")


async def get_full(disk: Path) -> None:
    """The disk gets full under a running host: every run ends, old ones stay readable, then it goes on."""
    folder = disk / "data"
    (disk / "ballast").write_bytes(b"x" * BALLAST_BYTES)
    async with SqliteStore.open(folder, clock=SystemClock()) as store:
        old = await admit_on(store, "run_old")
        await close_run(store, old)
        run = await admit_on(store, "run_1")
        others = [await admit_on(store, f"run_other{place}") for place in range(OTHERS)]
        assert (folder / "reserve").stat().st_size == RESERVE_BYTES
        taken = await store_until_full(store, run)
        assert taken >= 10
        assert await store.list_artifacts("run_1") == tuple(
            sorted(f"output-{place}" for place in range(taken))
        )
        small = await store.append("run_1", run.generation, [work_registered("small")])
        assert small[0].seq == taken + 2, "one that was too large doesn't keep out those that aren't"
        fill(disk / "filler")
        await append_until_full(store, run)
        assert (folder / "reserve").exists()
        async with asyncio.TaskGroup() as group:
            for each in (run, *others):
                group.create_task(close_run(store, each))
        assert not (folder / "reserve").exists()
        ended, _ = await store.list_runs(statuses=[RunStatus.FAILED], limit=100)
        assert len(ended) == OTHERS + 2
        assert await store.read_artifact("run_1", "output-0") is not None
        assert len(await store.read_events("run_old")) == 3
        try:
            await store.submit(sample_submission("run_new", epoch="epoch_1"))
            raise AssertionError("a full disk took a new run")
        except StorageFull:
            pass
        (disk / "filler").unlink()
        (disk / "ballast").unlink()
        await asyncio.sleep(1.2)
        assert (await store.submit(sample_submission("run_new", epoch="epoch_1"))).created
        assert (folder / "reserve").stat().st_size == RESERVE_BYTES
        assert await store.find_drift() == ()


async def open_full(disk: Path) -> None:
    """A host that starts on a full disk: what is there can be read, and unfinished runs can be ended."""
    fill(disk / "filler")
    async with SqliteStore.open(disk / "data", clock=SystemClock()) as store:
        assert await store.find_drift() == ()
        assert len(await store.read_events("run_old")) == 3
        (left,) = await store.unfinished_of_dead_epochs()
        assert left.view.id == "run_new"
        run = await store.claim("epoch_2", run_id="run_new")
        assert run is not None
        await close_run(store, run)
    (disk / "filler").unlink()
    async with SqliteStore.open(disk / "data", clock=SystemClock()) as store:
        run = await admit_on(store, "run_after")
        await close_run(store, run)
        assert await store.find_drift() == ()


async def main(disk: Path) -> None:
    """Mount the disk, and go through it all."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(disk)], check=True)
    assert os.statvfs(disk).f_blocks * os.statvfs(disk).f_frsize == 40 * 1024 * 1024
    await get_full(disk)
    await open_full(disk)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
