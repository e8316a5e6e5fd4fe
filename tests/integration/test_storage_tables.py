"""What the tables themselves refuse, whoever writes to them; and who may read the files."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import stat
from typing import TYPE_CHECKING

import pytest

from remit.contract import RunStatus
from remit.errors import AlreadyDecided, InternalError
from remit.events import TranscriptEntry
from remit.primitives import SystemClock
from remit.runs import TRANSITIONS
from remit.storage import SqliteStore
from remit.storage._foreign import ForeignChanges
from remit.testing._store_samples import delivery_intent, settling, terminal, work_registered
from remit.testing._store_suite_harness import admit_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def tables(tmp_path: Path) -> AsyncIterator[sqlite3.Connection]:
    """The tables with one run in them that has everything once."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        run = await admit_on(store, "run_1")
        await store.append("run_1", run.generation, [delivery_intent(), settling()])
        await store.finish("run_1", run.generation, [terminal(run.view)])
    with contextlib.closing(sqlite3.connect(tmp_path / "remit.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection


INSERT = "INSERT INTO events (run, seq, type, version, at, data) VALUES (?, ?, ?, 1, '', '{}')"


@pytest.mark.parametrize(
    "once", ["run.settling", "delivery.intent", "run.failed", "run.cancelled", "run.queued"]
)
def test_what_stands_once_in_a_log(tables: sqlite3.Connection, once: str) -> None:
    """One decision, one delivery intent, one terminal of whatever kind, one admission."""
    with pytest.raises(sqlite3.IntegrityError, match=r"events\.run$"):
        tables.execute(INSERT, (1, 99, once))
    tables.execute(INSERT, (1, 99, "work.registered"))


def test_a_number_is_given_once(tables: sqlite3.Connection) -> None:
    """R66: and it belongs to a run that exists."""
    with pytest.raises(sqlite3.IntegrityError, match=r"events\.run, events\.seq"):
        tables.execute(INSERT, (1, 1, "work.registered"))
    for run, seq in ((1, 0), (2, 1)):
        with pytest.raises(sqlite3.IntegrityError):
            tables.execute(INSERT, (run, seq, "work.registered"))


def test_statuses_are_those_of_the_table(tables: sqlite3.Connection) -> None:
    """The CHECK has the words of the status table: all of them, and no other."""
    named = {status for status, _ in TRANSITIONS} | set(TRANSITIONS.values())
    assert named == set(RunStatus)
    for status in RunStatus:
        tables.execute("UPDATE runs SET status = ?", (str(status),))
    for other in ("resting", "", "QUEUED"):
        with pytest.raises(sqlite3.IntegrityError):
            tables.execute("UPDATE runs SET status = ?", (other,))


def test_a_run_is_claimed_with_a_generation(tables: sqlite3.Connection) -> None:
    """Nobody owns a run that was never claimed."""
    with pytest.raises(sqlite3.IntegrityError):
        tables.execute("UPDATE runs SET generation = 0, claimed = 1")
    with pytest.raises(sqlite3.IntegrityError):
        tables.execute("UPDATE runs SET generation = -1, claimed = 0")


async def test_the_tables_put_a_wrong_memory_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the writer's memory of a run ever wrong, the tables refuse what it wants, and it looks again."""
    monkeypatch.setattr(ForeignChanges, "look", lambda _: None)
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        run = await admit_on(store, "run_1")
        await store.append("run_1", run.generation, [work_registered("a")])
        with contextlib.closing(sqlite3.connect(tmp_path / "remit.db", isolation_level=None)) as other:
            other.execute(INSERT, (1, 3, "work.registered"))
            (event,) = await store.append("run_1", run.generation, [work_registered("b")])
            assert event.seq == 4
            other.execute(INSERT, (1, 99, "run.settling"))
        with pytest.raises(AlreadyDecided):
            await store.append("run_1", run.generation, [settling()])


async def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many runs are written to, the memory of them is bounded; what was forgotten is read anew."""
    monkeypatch.setattr("remit.storage._held._MOST_HELD", 3)
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        runs = [await admit_on(store, f"run_{place}") for place in range(10)]
        for place in range(3):
            async with asyncio.TaskGroup() as group:
                for run in runs:
                    group.create_task(
                        store.append(run.view.id, run.generation, [work_registered(str(place))])
                    )
        for run in runs:
            events = await store.read_events(run.view.id)
            assert [event.work_id for event in events[1:]] == ["0", "1", "2"]
        assert await store.find_drift() == ()


async def test_what_nobody_foresaw_fails_alone(tmp_path: Path) -> None:
    """A value that can't be stored at all fails its own append, and the others of the batch go on."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        run = await admit_on(store, "run_1")
        odd = TranscriptEntry(stage_id="plan", position=0, role="user", body={"x": object()})
        answers: list[str] = []

        async def append(name: str) -> None:
            try:
                entries = [odd] if name == "odd" else []
                await store.append("run_1", run.generation, [work_registered(name)], transcript=entries)
                answers.append(name)
            except InternalError:
                answers.append("refused")

        async with asyncio.TaskGroup() as group:
            for name in ("a", "odd", "b"):
                group.create_task(append(name))
        assert sorted(answers) == ["a", "b", "refused"]
        assert [event.work_id for event in await store.read_events("run_1", after=1)] == ["a", "b"]
        assert await store.find_drift() == ()


async def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    """Interfaces, section 9: 0700 for folders and 0600 for files, SQLite's own ones too."""
    async with SqliteStore.open(tmp_path / "data", clock=SystemClock()) as store:
        with store.epochs.start():
            await admit_on(store, "run_1")
            found = {
                path.relative_to(tmp_path): path.stat().st_mode for path in (tmp_path / "data").rglob("*")
            }
    assert len(found) == 7
    for path, mode in found.items():
        assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), path
