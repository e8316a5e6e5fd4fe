"""A process that dies at any write, and one that ends in good order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from remit.errors import MisuseError, StorageError
from remit.primitives import SystemClock
from remit.storage import SqliteStore
from remit.testing._store_samples import reviewed_run, sample_submission, work_registered
from remit.testing._store_suite_harness import admit_on, store_write
from remit.testing._store_suite_log import fold_stored_log

if TYPE_CHECKING:
    from pathlib import Path

    from remit.storage import Commit, CommitMoment


class Death(Exception):
    """The process dies here."""


class DeathAt:
    """Ends the store at one moment of one commit."""

    def __init__(self, moment: CommitMoment, number: int) -> None:
        self.reached = False
        self._at = (moment, number)

    def __call__(self, moment: CommitMoment, commit: Commit) -> None:
        if (moment, commit.number) == self._at:
            self.reached = True
            raise Death


async def drive_until_death(folder: Path, death: DeathAt) -> tuple[int, bool]:
    """Store a reviewed run; how many events were acknowledged, and whether its store died on the way."""
    acknowledged = 0
    async with SqliteStore.open(folder, clock=SystemClock(), on_commit=death) as store:
        try:
            await store.submit(sample_submission("run_1", epoch="epoch_1"))
            acknowledged = 1
            run = await store.claim("epoch_1", run_id="run_1")
            assert run is not None
            writes = list(reviewed_run(run.view))
            for write in writes:
                await store_write(store, run, write, last=write is writes[-1])
                acknowledged += len(write.events)
        except StorageError:
            assert death.reached
            with pytest.raises(StorageError):
                await store.submit(sample_submission("run_2", epoch="epoch_1"))
            with pytest.raises(StorageError):
                await store.wait_for_events("run_1", after=99)
            return acknowledged, True
    return acknowledged, False


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_death_at_every_commit(tmp_path: Path, moment: CommitMoment) -> None:
    """Promise 1: what was acknowledged is stored, nothing is torn, and the next owner goes on from there."""
    number = 0
    died = True
    while died:
        number += 1
        folder = tmp_path / str(number)
        acknowledged, died = await drive_until_death(folder, DeathAt(moment, number))
        async with SqliteStore.open(folder, clock=SystemClock()) as store:
            events = await store.read_events("run_1")
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert len(events) >= acknowledged
            assert await store.find_drift() == ()
            found = await store.find_run("run_1")
            if found is None:
                assert acknowledged == 0
                continue
            assert found.view == await fold_stored_log(store, "run_1")
            run = await store.claim("epoch_2", run_id="run_1")
            assert (run is None) == found.view.status.ended
            if run is not None:
                (event,) = await store.append("run_1", run.generation, [work_registered("recovered")])
                assert event.seq == len(events) + 1
    assert number == 28, "27 writes, and one round in which nobody dies"


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from remit.primitives import SystemClock
from remit.storage import SqliteStore
from remit.testing._store_samples import work_registered
from remit.testing._store_suite_harness import admit_on

async def main(folder):
    store = await SqliteStore.open(Path(folder), clock=SystemClock())
    epoch = store.epochs.start()
    run = await admit_on(store, "run_1", epoch=epoch.id)

    async def write(place):
        while True:
            (event,) = await store.append("run_1", run.generation, [work_registered(str(place))])
            os.write(1, b"%d\\n" % event.seq)

    async with asyncio.TaskGroup() as group:
        for place in range(20):
            group.create_task(write(place))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow
async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """R57: after kill -9 amid writes the log is whole, and the run is found as one of a dead host."""
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        acknowledged = [int(process.stdout.readline()) for _ in range(300)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout.read().splitlines()]
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        events = await store.read_events("run_1", limit=5_000)
        while page := await store.read_events("run_1", after=len(events), limit=5_000):
            events += page
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert max(acknowledged) <= len(events)
        assert await store.find_drift() == ()
        (left,) = await store.unfinished_of_dead_epochs()
        assert left.view.id == "run_1"


class FailingDisk:
    """A disk that fails in one way, while it is told to."""

    def __init__(self) -> None:
        self.code: int | None = None

    def __call__(self, moment: CommitMoment, commit: Commit) -> None:
        if moment == "before" and self.code is not None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self.code
            raise error


async def test_a_disk_that_fails_for_a_while(tmp_path: Path) -> None:
    """What couldn't be written is refused as a whole, with a typed error; afterwards all goes on."""
    disk = FailingDisk()
    async with SqliteStore.open(tmp_path, clock=SystemClock(), on_commit=disk) as store:
        run = await admit_on(store, "run_1")
        disk.code = sqlite3.SQLITE_IOERR_WRITE
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_outcome(store.append("run_1", run.generation, [work_registered("a")])))
                for _ in range(3)
            ]
        assert [type(task.result()) for task in tasks] == [StorageError] * 3
        disk.code = None
        (event,) = await store.append("run_1", run.generation, [work_registered("b")])
        assert event.seq == 2


async def test_a_disk_that_cant_promise(tmp_path: Path) -> None:
    """After a write that may or may not be durable nobody knows what the disk holds: the store ends."""
    disk = FailingDisk()
    async with SqliteStore.open(tmp_path, clock=SystemClock(), on_commit=disk) as store:
        run = await admit_on(store, "run_1")
        disk.code = sqlite3.SQLITE_IOERR_FSYNC
        for _ in range(2):
            outcome = await _outcome(store.append("run_1", run.generation, [work_registered("a")]))
            assert isinstance(outcome, StorageError)
            disk.code = None
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        assert len(await store.read_events("run_1")) == 1


async def test_close_stores_what_was_handed_over(tmp_path: Path) -> None:
    """`aclose` waits for the writes that were begun; the file alone then holds everything."""
    store = await SqliteStore.open(tmp_path, clock=SystemClock())
    run = await admit_on(store, "run_1")
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(store.append("run_1", run.generation, [work_registered(str(place))]))
            for place in range(50)
        ]
        await asyncio.sleep(0)
        await store.aclose()
    assert all(task.result() for task in tasks)
    assert sorted(path.name for path in tmp_path.glob("remit.db*")) == ["remit.db"]
    with contextlib.closing(
        sqlite3.connect(f"file:{tmp_path / 'remit.db'}?mode=ro&immutable=1", uri=True)
    ) as db:
        assert db.execute("SELECT count(*) FROM events").fetchone() == (51,)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("remit-store")]


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """After the end every call gets a typed error, waiters too; closing twice is closing once."""
    store = await SqliteStore.open(tmp_path, clock=SystemClock())
    run = await admit_on(store, "run_1")
    async with asyncio.TaskGroup() as group:
        waiter = group.create_task(_outcome(store.wait_for_events("run_1", after=1)))
        await asyncio.sleep(0.05)
        await store.aclose()
        await store.aclose()
    assert isinstance(waiter.result(), StorageError)
    for call in (
        store.append("run_1", run.generation, [work_registered("a")]),
        store.find_run("run_1"),
        store.wait_for_events("run_1", after=0),
        store.list_runs(),
    ):
        assert isinstance(await _outcome(call), StorageError)


async def _outcome(call: object) -> object:
    try:
        return await call  # type: ignore[misc] - any coroutine
    except StorageError as error:
        return error


async def test_a_cancelled_close_closes(tmp_path: Path) -> None:
    """Who is cancelled while closing has closed when the cancel is raised."""
    store = await SqliteStore.open(tmp_path, clock=SystemClock())
    async with asyncio.TaskGroup() as group:
        closer = group.create_task(store.aclose())
        await asyncio.sleep(0)
        closer.cancel()
        await asyncio.wait([closer], timeout=20)
        assert closer.cancelled()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("remit-store")]


async def test_a_cancelled_open_leaves_nothing_open(tmp_path: Path) -> None:
    """Who is cancelled while opening holds no file and no thread afterwards."""
    async with asyncio.TaskGroup() as group:
        opener = group.create_task(_open(tmp_path))
        await asyncio.sleep(0)
        opener.cancel()
        await asyncio.wait([opener], timeout=20)
        assert opener.cancelled()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("remit-store")]
    opened = {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
    assert not [name for name in opened if name.startswith(str(tmp_path))]


async def _open(folder: Path) -> SqliteStore:
    return await SqliteStore.open(folder, clock=SystemClock())


async def test_a_store_belongs_to_its_loop(tmp_path: Path) -> None:
    """A call from another event loop is a clear error, not a hang."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:

        def elsewhere() -> None:
            asyncio.run(store.submit(sample_submission("run_1", epoch="epoch_1")))

        with pytest.raises(MisuseError):
            await asyncio.to_thread(elsewhere)


FORGETFUL = """
import asyncio, sys
from pathlib import Path
from remit.primitives import SystemClock
from remit.storage import SqliteStore

async def main():
    await SqliteStore.open(Path(sys.argv[1]), clock=SystemClock())

asyncio.run(main())
"""


def test_a_program_that_forgets_to_close_ends(tmp_path: Path) -> None:
    """R12: the writer isn't a daemon, and yet a program that ends without closing its store does end."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", FORGETFUL, str(tmp_path)], check=True, timeout=60)
    assert time.monotonic() - began < 30


async def test_rows_are_made_anew_from_the_log(tmp_path: Path) -> None:
    """The log is the truth: rows that somebody spoilt are found, and made anew from it."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        for run_id in ("run_1", "run_2", "run_3", "run_4"):
            run = await admit_on(store, run_id)
            for write in list(reviewed_run(run.view))[:-1]:
                await store_write(store, run, write)
        right = [await store.find_run(f"run_{place}") for place in range(1, 5)]
        ledger = await store.read_attempts("run_3")
        assert await store.find_drift() == ()
        assert await store.rebuild() == 0
        with contextlib.closing(sqlite3.connect(tmp_path / "remit.db", isolation_level=None)) as spoiler:
            spoiler.execute("UPDATE runs SET status = 'queued' WHERE id = 'run_1'")
            spoiler.execute("UPDATE run_views SET view = replace(view, 'reviewed', 'direct') WHERE run = 2")
            spoiler.execute("UPDATE attempts SET ended_seq = NULL WHERE run = 3")
            spoiler.execute("DELETE FROM run_views WHERE run = 4")
        assert await store.find_drift() == ("run_1", "run_2", "run_3", "run_4")
        assert await store.rebuild() == 4
        assert await store.find_drift() == ()
        assert [await store.find_run(f"run_{place}") for place in range(1, 5)] == right
        assert await store.read_attempts("run_3") == ledger


async def test_the_log_grows_and_is_moved(tmp_path: Path) -> None:
    """The write-ahead log is moved into the database as it grows, however much is written."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        run = await admit_on(store, "run_1")
        longest = 0
        for _ in range(40):
            await store.append("run_1", run.generation, [work_registered("x" * 400_000)])
            longest = max(longest, (tmp_path / "remit.db-wal").stat().st_size)
        assert longest < 8 * 1024 * 1024
        assert (tmp_path / "remit.db").stat().st_size > 8 * 1024 * 1024
