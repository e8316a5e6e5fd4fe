"""Several host processes on one file, and a lock that somebody else holds (R59)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from remit.contract import RunStatus
from remit.errors import StorageBusy
from remit.primitives import SystemClock
from remit.storage import SqliteStore, StoreSettings
from remit.storage._connections import connect
from remit.storage._folder import DataFolder
from remit.storage._migrations import check_owner, migrate
from remit.testing._store_samples import sample_submission, work_registered
from remit.testing._store_suite_harness import admit_on

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

HOST = """
import asyncio, sys
from pathlib import Path
from remit.primitives import SystemClock
from remit.storage import SqliteStore
from remit.testing._store_samples import reviewed_run, sample_submission
from remit.testing._store_suite_harness import store_write

async def drive(store, epoch, run_id):
    await store.submit(sample_submission(run_id, epoch=epoch.id))
    run = await store.claim(epoch.id, run_id=run_id)
    writes = list(reviewed_run(run.view))
    for write in writes:
        await store_write(store, run, write, last=write is writes[-1])

async def main(folder, name, runs):
    async with SqliteStore.open(Path(folder), clock=SystemClock()) as store:
        with store.epochs.start() as epoch:
            async with asyncio.TaskGroup() as group:
                for place in range(int(runs)):
                    group.create_task(drive(store, epoch, f"{name}_{place}"))

asyncio.run(main(*sys.argv[1:]))
"""


class Foreigner:
    """Another program that begins a transaction on the file, and keeps it."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)

    @contextlib.contextmanager
    def holding(self) -> Generator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def hold_in_background(self, seconds: float) -> threading.Thread:
        begun = threading.Event()

        def hold() -> None:
            with self.holding():
                begun.set()
                time.sleep(seconds)

        thread = threading.Thread(target=hold)
        thread.start()
        assert begun.wait(30)
        return thread

    def close(self) -> None:
        self._connection.close()


@pytest.mark.slow
async def test_eight_hosts_at_once_and_a_foreign_lock(tmp_path: Path) -> None:
    """R59: 8 processes at once on a fresh folder, and a lock held for 3 s, twice: all is stored."""
    hosts = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            HOST,
            str(tmp_path / "data"),
            f"host{number}",
            "20",
            stderr=asyncio.subprocess.PIPE,
        )
        for number in range(8)
    ]
    try:
        async with asyncio.timeout(90):
            while not (tmp_path / "data" / "remit.db").exists() or not await _has_runs(tmp_path / "data"):
                await asyncio.sleep(0.05)
            foreigner = Foreigner(tmp_path / "data" / "remit.db")
            for _ in range(2):
                thread = foreigner.hold_in_background(3)
                await asyncio.to_thread(thread.join)
            foreigner.close()
            answers = [await host.communicate() for host in hosts]
    finally:
        for host in hosts:
            with contextlib.suppress(ProcessLookupError):
                host.kill()
    assert [host.returncode for host in hosts] == [0] * 8, b"".join(error for _, error in answers).decode()
    async with SqliteStore.open(tmp_path / "data", clock=SystemClock()) as store:
        runs, _ = await store.list_runs(statuses=[RunStatus.COMPLETED], limit=200)
        assert len(runs) == 160
        assert {run.last_seq for run in runs} == {36}
        assert await store.find_drift() == ()


async def _has_runs(folder: Path) -> bool:
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(folder / "remit.db")) as db,
    ):
        return db.execute("SELECT count(*) FROM runs").fetchone()[0] > 0
    return False


@pytest.mark.slow
async def test_a_lock_that_is_held_for_3_s_is_waited_out(tmp_path: Path) -> None:
    """R59: with the settings that a host has, a foreign transaction of 3 s costs time and nothing else."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        run = await admit_on(store, "run_1")
        foreigner = Foreigner(tmp_path / "remit.db")
        began = time.monotonic()
        thread = foreigner.hold_in_background(3)
        (event,) = await store.append("run_1", run.generation, [work_registered("a")])
        assert event.seq == 2
        assert 2.5 < time.monotonic() - began < 15
        thread.join()
        foreigner.close()


async def test_a_lock_that_is_held_too_long_fails_loud(tmp_path: Path) -> None:
    """R59: who can't store says so, in bounded time; nothing is half stored, and afterwards all goes on."""
    assert StoreSettings().busy_wait_ms < 60_000 / 2, (
        "a lock held for 60 s is a failure, also for who came second"
    )
    settings = StoreSettings(busy_wait_ms=700)
    async with SqliteStore.open(tmp_path, clock=SystemClock(), settings=settings) as store:
        run = await admit_on(store, "run_1")
        foreigner = Foreigner(tmp_path / "remit.db")
        with foreigner.holding():
            began = time.monotonic()
            answers: list[object] = []

            async def append() -> None:
                try:
                    await store.append("run_1", run.generation, [work_registered("a")])
                except StorageBusy as error:
                    answers.append(error)

            async with asyncio.TaskGroup() as group:
                for _ in range(5):
                    group.create_task(append())
            assert time.monotonic() - began < 10
            assert len(answers) == 5
            with pytest.raises(StorageBusy):
                await store.submit(sample_submission("run_2", epoch=run.epoch))
            assert len(await store.read_events("run_1")) == 1, "reading waits for nobody"
        foreigner.close()
        (event,) = await store.append("run_1", run.generation, [work_registered("b")])
        assert event.seq == 2
        assert await store.find_run("run_2") is None


async def test_a_lock_that_changes_hands_is_waited_for(tmp_path: Path) -> None:
    """R59: writers who leave the database free for moments only starve nobody, however long they go on."""
    settings = StoreSettings(busy_wait_ms=1_000)
    async with SqliteStore.open(tmp_path, clock=SystemClock(), settings=settings) as store:
        run = await admit_on(store, "run_1")
        enough = threading.Event()
        crowd = threading.Thread(target=write_without_pause, args=(tmp_path / "remit.db", enough))
        crowd.start()
        try:
            for number in range(20):
                await store.append("run_1", run.generation, [work_registered(f"item{number}")])
        finally:
            enough.set()
            crowd.join()
        assert len(await store.read_events("run_1")) == 21


def write_without_pause(path: Path, enough: threading.Event) -> None:
    """Commit again and again, holding the lock for 150 ms each time and letting go of it for 3 ms."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
        while not enough.is_set():
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE events SET id = id WHERE id = (SELECT min(id) FROM events)")
            time.sleep(0.15)
            connection.execute("COMMIT")
            time.sleep(0.003)


async def test_opening_what_is_up_to_date_waits_for_nobody(tmp_path: Path) -> None:
    """R59: a database that needs no new tables is opened while another program holds its lock."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()):
        pass
    foreigner = Foreigner(tmp_path / "remit.db")
    folder = DataFolder.prepare(tmp_path)
    with foreigner.holding():
        connection = connect(folder, busy_ms=0)
        check_owner(connection)
        assert migrate(connection) == 0
        connection.close()
    foreigner.close()


async def test_a_cancelled_waiter_waits_for_the_lock_too(tmp_path: Path) -> None:
    """A cancel while the lock is held by others is raised when it is known that the fact is stored."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        run = await admit_on(store, "run_1")
        foreigner = Foreigner(tmp_path / "remit.db")
        async with asyncio.TaskGroup() as group:
            with foreigner.holding():
                writer = group.create_task(store.append("run_1", run.generation, [work_registered("a")]))
                await asyncio.sleep(0.1)
                writer.cancel()
                await asyncio.sleep(0.1)
                writer.cancel()
                await asyncio.sleep(0.1)
                assert not writer.done()
            await asyncio.wait([writer], timeout=30)
            assert writer.cancelled()
        foreigner.close()
        assert len(await store.read_events("run_1")) == 2


async def test_writers_of_two_hosts_interleave(tmp_path: Path) -> None:
    """Two hosts that write without pause both get on, and each one's log is whole."""
    settings = StoreSettings(poll_ms=20)
    async with (
        SqliteStore.open(tmp_path, clock=SystemClock(), settings=settings) as one,
        SqliteStore.open(tmp_path, clock=SystemClock(), settings=settings) as two,
    ):

        async def write(store: SqliteStore, run_id: str) -> None:
            run = await admit_on(store, run_id)
            for place in range(100):
                await store.append(run_id, run.generation, [work_registered(str(place))])

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(write(one, "run_1"))
            group.create_task(write(two, "run_2"))
        for run_id in ("run_1", "run_2"):
            events = await one.read_events(run_id)
            assert [event.seq for event in events] == list(range(1, 102))
        assert await two.find_drift() == ()
