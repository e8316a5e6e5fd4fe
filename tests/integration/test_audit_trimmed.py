"""Old acts go off the audit record, and only they; a look that is made every minute fills it with nothing."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import pytest

from remit.contract import AuditFact
from remit.errors import MisuseError, StorageError
from remit.host import keep_audit_short
from remit.storage import SqliteStore
from remit.testing._memory_store import MemoryStore

Store: TypeAlias = SqliteStore | MemoryStore


class MovedClock:
    """Stands still until it is moved, and says how long it was asked to wait."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)
        self.waits: list[float] = []

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.moment.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        if len(self.waits) >= 3:
            await asyncio.Event().wait()
        self.moment += timedelta(seconds=seconds)


@asynccontextmanager
async def opened(kind: str, folder: Path, clock: MovedClock) -> AsyncGenerator[Store]:
    if kind == "memory":
        yield MemoryStore(clock=clock)
    else:
        async with SqliteStore.open(folder, clock=clock) as store:
            yield store


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_old_acts_go_and_are_counted(kind: str, tmp_path: Path) -> None:
    """Of all tenants; the last settings stay, what went is itself on record, and no id is used again."""
    clock = MovedClock()
    async with opened(kind, tmp_path, clock) as store:
        for subject in ("old settings", "settings"):
            await store.record(AuditFact(action="host.configured", subject=subject))
        await store.record(AuditFact(action="admin.called", subject="old"))
        await store.record(AuditFact(action="admin.called", subject="old too"), tenant="b")
        clock.moment += timedelta(days=31)
        await store.record(AuditFact(action="admin.called", subject="new"))
        now = clock.now()
        assert await store.trim_audit(before=now - timedelta(days=40)) == 0
        with pytest.raises(MisuseError):
            await store.trim_audit(before=now - timedelta(days=29))
        assert len(await store.read_audit(tenant=None)) == 5
        assert await store.trim_audit(before=now - timedelta(days=30)) == 3
        entries = await store.read_audit(tenant=None)
        assert [(entry.id, entry.subject) for entry in entries] == [(6, "audit"), (5, "new"), (2, "settings")]
        assert (entries[0].action, entries[0].tenant, entries[0].data["acts"]) == (
            "audit.trimmed",
            "local",
            3,
        )
        assert await store.trim_audit(before=now - timedelta(days=30)) == 0
        assert len(await store.read_audit(tenant=None)) == 3


async def test_nothing_new_can_be_taken_off_by_any_statement(tmp_path: Path) -> None:
    """The table itself refuses it, whoever asks."""
    clock = MovedClock()
    async with opened("sqlite", tmp_path, clock) as store:
        await store.record(AuditFact(action="admin.called", subject="old"))
        clock.moment += timedelta(days=29)
        await store.record(AuditFact(action="admin.called", subject="new"))
    with contextlib.closing(sqlite3.connect(tmp_path / "remit.db")) as connection:
        for condition in ("subject = 'old'", "subject = 'new'", "1"):
            with pytest.raises(sqlite3.IntegrityError, match="thirty days"):
                connection.execute(f"DELETE FROM audit WHERE {condition}")


class _Full:
    """A record whose disk has no room at first."""

    def __init__(self) -> None:
        self.asked: list[datetime] = []

    async def trim_audit(self, *, before: datetime) -> int:
        self.asked.append(before)
        if len(self.asked) == 1:
            raise StorageError("the disk is full")
        return 0


async def test_a_served_host_looks_once_a_day() -> None:
    """At its start too; a store that can't do it now is asked again tomorrow."""
    clock, record = MovedClock(), _Full()
    began = clock.now()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        looking = group.create_task(keep_audit_short(record, clock, days=400))
        while len(clock.waits) < 3:
            await asyncio.sleep(0)
        looking.cancel()
    day = timedelta(days=1)
    assert record.asked == [began + number * day - timedelta(days=400) for number in range(3)]
