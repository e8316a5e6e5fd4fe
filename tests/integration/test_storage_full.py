"""A full disk (R60): nothing is torn, every run gets its terminal, and what was stored stays readable."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remit.contract import RunStatus
from remit.errors import StorageFull
from remit.primitives import SystemClock
from remit.storage import SqliteStore
from remit.testing._store_samples import (
    sample_submission,
    settling,
    stage_started,
    terminal,
    work_finished,
    work_registered,
)
from remit.testing._store_suite_harness import admit_on

if TYPE_CHECKING:
    from remit.storage import Commit, CommitMoment

SCENARIO = Path(__file__).with_name("storage_full_disk.py")


def mount_command() -> list[str]:
    """How to start a program that may mount a disk without anybody else seeing it."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no `unshare`, so no disk of 40 MB can be mounted")
    command = [unshare, "--mount"] if os.geteuid() == 0 else [unshare, "--user", "--map-root-user", "--mount"]
    mount = [*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a disk in a namespace of their own")
    return command


@pytest.mark.slow
def test_a_disk_that_gets_full(tmp_path: Path) -> None:
    """R60: on 40 MB: typed errors, atomic writes, terminals from the reserve, reading, and going on."""
    process = subprocess.run(
        [*mount_command(), sys.executable, str(SCENARIO), str(tmp_path)],
        capture_output=True,
        check=False,
        text=True,
        timeout=100,
    )
    assert process.returncode == 0, process.stdout + process.stderr


class SmallDisk:
    """A disk that is full as long as the reserve takes its room, or for good."""

    def __init__(self, folder: Path) -> None:
        self.full = False
        self.for_good = False
        self._reserve = folder / "reserve"

    def on_commit(self, moment: CommitMoment, commit: Commit) -> None:
        if moment == "before" and self.full and (self.for_good or self._reserve.exists()):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error


async def test_the_reserve_is_for_what_ends_things(tmp_path: Path) -> None:
    """R60: facts that end something are stored from the reserve; ones that begin something aren't."""
    disk = SmallDisk(tmp_path)
    async with SqliteStore.open(tmp_path, clock=SystemClock(), on_commit=disk.on_commit) as store:
        run = await admit_on(store, "run_1")
        peer = await admit_on(store, "run_2")
        disk.full = True
        for events in (
            [work_registered("a")],
            [stage_started("plan", RunStatus.PLANNING), settling("failed")],
        ):
            with pytest.raises(StorageFull):
                await store.append("run_1", run.generation, events)
        assert (tmp_path / "reserve").exists(), "nobody has needed it yet"
        # A piece of work is noted when it is over, and waits for the next fact: that may be the decision.
        over = [work_registered("call"), work_finished("call")]
        await store.append("run_1", run.generation, [*over, settling("failed")])
        assert not (tmp_path / "reserve").exists()
        with pytest.raises(StorageFull):
            await store.append("run_2", peer.generation, [work_registered("a")])
        await store.finish("run_1", run.generation, [terminal(run.view, "failed")])
        found = await store.find_run("run_1")
        assert found is not None
        assert found.view.status == RunStatus.FAILED
        assert await store.claim("epoch_1", run_id="run_2") is not None, (
            "what is to be ended has to be claimed"
        )
        assert await store.find_drift() == ()


async def test_a_disk_that_is_full_for_good(tmp_path: Path) -> None:
    """R60: when even the reserve doesn't help, that is said, and the run is there to be ended later."""
    disk = SmallDisk(tmp_path)
    async with SqliteStore.open(tmp_path, clock=SystemClock(), on_commit=disk.on_commit) as store:
        run = await admit_on(store, "run_1")
        disk.full = disk.for_good = True
        for _ in range(2):
            with pytest.raises(StorageFull) as raised:
                await store.finish(
                    "run_1", run.generation, [settling("failed"), terminal(run.view, "failed")]
                )
            assert raised.value.code == "storage_full"
        with pytest.raises(StorageFull):
            await store.submit(sample_submission("run_2", epoch="epoch_1"))
        disk.full = False
        await store.finish("run_1", run.generation, [settling("failed"), terminal(run.view, "failed")])
        assert len(await store.read_events("run_1")) == 3


async def test_one_too_large_for_the_disk_fails_alone(tmp_path: Path) -> None:
    """R60: of facts that are stored together only the one that has no room is refused."""
    large = "large"

    def on_commit(moment: CommitMoment, commit: Commit) -> None:
        if moment == "before" and any(event.work_id == large for event in commit.events):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    async with SqliteStore.open(tmp_path, clock=SystemClock(), on_commit=on_commit) as store:
        run = await admit_on(store, "run_1")
        names = ["a", "b", large, "c", "d"]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_append(store, run.generation, name)) for name in names]
        assert [task.result() for task in tasks] == ["stored", "stored", "full", "stored", "stored"]
        events = await store.read_events("run_1", after=1)
        assert [event.work_id for event in events] == ["a", "b", "c", "d"]
        assert [event.seq for event in events] == [2, 3, 4, 5]


async def _append(store: SqliteStore, generation: int, name: str) -> str:
    try:
        await store.append("run_1", generation, [work_registered(name)])
    except StorageFull:
        return "full"
    return "stored"
