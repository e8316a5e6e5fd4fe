"""Schemas: fresh, released, foreign, and from the future.

`python tests/integration/test_storage_migrations.py` writes the dump of the present schema. Before that
schema is released the dump may be written anew; after that never.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import tempfile
from pathlib import Path

import pytest

from remit.contract import RunStatus
from remit.errors import SchemaTooNew, StorageBusy, StorageError
from remit.primitives import SystemClock
from remit.storage import FileLock, SqliteStore, StoreSettings
from remit.storage._folder import DataFolder
from remit.storage._migrations import APPLICATION_ID, MIGRATIONS, Migration, migrate
from remit.testing._store_samples import reviewed_run, sample_submission, work_registered
from remit.testing._store_suite_harness import store_write

DUMPS = Path(__file__).parent / "data" / "storage"
RELEASED = sorted(DUMPS.glob("schema_v*.sql"))


def schema_of(connection: sqlite3.Connection) -> dict[str, str]:
    """Name -> statement of everything there is, in one spelling."""
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {name: re.sub(r"\s+", " ", sql).strip() for name, sql in rows}


def load_dump(dump: Path, folder: Path) -> None:
    """A data folder as the Remit of that schema left it."""
    data = DataFolder.prepare(folder)
    with contextlib.closing(sqlite3.connect(data.database)) as connection:
        connection.executescript(dump.read_text())


def fresh_schema() -> dict[str, str]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        return schema_of(connection)


def test_every_released_schema_has_its_dump() -> None:
    """A schema that is released is kept, so that the way from it is tested for ever."""
    assert [dump.stem for dump in RELEASED] == [f"schema_v{step.number}" for step in MIGRATIONS]


@pytest.mark.parametrize("dump", RELEASED, ids=lambda dump: dump.stem)
async def test_from_every_released_schema(dump: Path, tmp_path: Path) -> None:
    """What an older Remit stored is there and goes on; the tables are those of a fresh database."""
    load_dump(dump, tmp_path)
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        with contextlib.closing(sqlite3.connect(tmp_path / "remit.db")) as connection:
            assert schema_of(connection) == fresh_schema()
        assert await store.find_drift() == ()
        ended = await store.find_run("run_ended")
        assert ended is not None
        assert ended.view.status == RunStatus.COMPLETED
        assert ended.request.prompt == "Make the failing test pass."
        assert len(await store.read_events("run_ended")) == ended.last_seq == 36
        assert len(await store.read_attempts("run_ended")) == 4
        assert len(await store.read_transcript("run_ended", stage_id="work-1")) == 4
        assert await store.list_artifacts("run_ended") == ("patch", "plan")
        assert [line.type for line in await store.read_history("run_ended")] == ["webhook"]
        (left,) = await store.unfinished_of_dead_epochs()
        assert left.view.id == "run_queued"
        again = sample_submission("run_other", epoch="epoch_2", idempotency_key="key_1")
        assert (await store.submit(again)).run.view.id == "run_ended"
        with store.epochs.start() as epoch:
            run = await store.claim(epoch.id)
            assert run is not None
            await store.append("run_queued", run.generation, [work_registered("a")])


def add_a_column(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE runs ADD COLUMN colour TEXT")


def fail_half_way(connection: sqlite3.Connection) -> None:
    add_a_column(connection)
    connection.execute("INSERT INTO no_such_table VALUES (1)")


@pytest.fixture
def connection() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


def test_steps_are_done_once_and_in_order(connection: sqlite3.Connection) -> None:
    """Each step runs once; the number in the file says how far it is."""
    with contextlib.closing(connection):
        assert migrate(connection) == len(MIGRATIONS)
        assert migrate(connection) == 0
        newer = (*MIGRATIONS, Migration(number=len(MIGRATIONS) + 1, apply=add_a_column))
        assert migrate(connection, migrations=newer) == 1
        assert "colour" in schema_of(connection)["runs"]
        assert migrate(connection, migrations=newer) == 0


def test_a_step_that_fails_leaves_nothing(connection: sqlite3.Connection) -> None:
    """All or nothing: a failed migration leaves the schema, its number and the data as they were."""
    with contextlib.closing(connection):
        migrate(connection)
        before = schema_of(connection)
        broken = (*MIGRATIONS, Migration(number=len(MIGRATIONS) + 1, apply=fail_half_way))
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, migrations=broken)
        assert schema_of(connection) == before
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert not connection.in_transaction


async def test_a_schema_from_the_future_is_refused(tmp_path: Path) -> None:
    """It is refused with one clear sentence, and nothing in it is changed."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()):
        pass
    with contextlib.closing(sqlite3.connect(tmp_path / "remit.db")) as connection:
        connection.execute("PRAGMA user_version = 999")
    before = (tmp_path / "remit.db").read_bytes()
    with pytest.raises(SchemaTooNew, match="newer Remit") as raised:
        await SqliteStore.open(tmp_path, clock=SystemClock())
    assert raised.value.fields["schema"] == 999
    assert (tmp_path / "remit.db").read_bytes() == before


async def test_a_newer_remit_takes_over_under_a_running_one(tmp_path: Path) -> None:
    """An older host that still runs when the schema is migrated writes nothing into what it doesn't know."""
    async with SqliteStore.open(tmp_path, clock=SystemClock()) as store:
        await store.submit(sample_submission("run_1", epoch="epoch_1"))
        with contextlib.closing(sqlite3.connect(tmp_path / "remit.db")) as connection:
            connection.execute("PRAGMA user_version = 999")
            connection.execute("CREATE TABLE newer (x)")
        for _ in range(2):
            with pytest.raises(SchemaTooNew):
                await store.submit(sample_submission("run_2", epoch="epoch_1"))
        assert await store.find_run("run_2") is None


@pytest.mark.parametrize("kind", ["other_tables", "other_mark", "no_database"])
async def test_another_programs_file_is_left_alone(tmp_path: Path, kind: str) -> None:
    """A file that isn't ours is refused and not touched."""
    path = tmp_path / "remit.db"
    if kind == "no_database":
        path.write_bytes(b"a letter to a friend\n" * 100)
    else:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            if kind == "other_mark":
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID + 1}")
            connection.execute("CREATE TABLE letters (x)")
    with pytest.raises(StorageError):
        await SqliteStore.open(tmp_path, clock=SystemClock())
    if kind == "no_database":
        assert path.read_bytes() == b"a letter to a friend\n" * 100
    else:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert list(schema_of(connection)) == ["letters"]


async def test_a_migration_by_another_is_waited_for(tmp_path: Path) -> None:
    """R59: hosts that start at once take turns; one that never gets its turn says so."""
    data = DataFolder.prepare(tmp_path)
    with FileLock.take(data.schema_lock, wait_ms=100), pytest.raises(StorageBusy):
        await SqliteStore.open(tmp_path, clock=SystemClock(), settings=StoreSettings(busy_wait_ms=200))
    async with SqliteStore.open(tmp_path, clock=SystemClock()):
        pass


async def write_dump(target: Path) -> None:
    """The present schema, with a run of each kind in it."""
    with tempfile.TemporaryDirectory() as folder:
        async with SqliteStore.open(Path(folder), clock=SystemClock()) as store:
            submission = sample_submission("run_ended", epoch="epoch_1", idempotency_key="key_1")
            await store.submit(submission)
            await store.submit(sample_submission("run_queued", epoch="epoch_1", tenant="local"))
            run = await store.claim("epoch_1", run_id="run_ended")
            assert run is not None
            writes = list(reviewed_run(run.view))
            for write in writes:
                await store_write(store, run, write, last=write is writes[-1])
            await store.log("run_ended", "webhook", {"status": 200})
        with contextlib.closing(sqlite3.connect(Path(folder) / "remit.db")) as connection:
            number = connection.execute("PRAGMA user_version").fetchone()[0]
            lines = [f"PRAGMA application_id = {APPLICATION_ID};", f"PRAGMA user_version = {number};"]
            target.mkdir(parents=True, exist_ok=True)
            (target / f"schema_v{number}.sql").write_text("\n".join([*lines, *connection.iterdump()]) + "\n")


if __name__ == "__main__":
    asyncio.run(write_dump(DUMPS))
