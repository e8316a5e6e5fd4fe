"""A database that isn't ours stays as it is."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from remit.errors import SchemaTooNew, StorageError
from remit.primitives import SystemClock
from remit.storage import SqliteStore


async def test_another_programs_file_is_not_touched(tmp_path: Path) -> None:
    """The owner is looked at before anything is written: not a byte of the file changes."""
    file = tmp_path / "remit.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(StorageError, match="another program"):
        await SqliteStore.open(tmp_path, clock=SystemClock())
    assert file.read_bytes() == before


async def test_a_schema_of_the_future_is_not_touched(tmp_path: Path) -> None:
    """A newer Remit's data isn't changed by an older one."""
    store = await SqliteStore.open(tmp_path, clock=SystemClock())
    await store.aclose()
    file = tmp_path / "remit.db"
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 9999")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    with pytest.raises(SchemaTooNew):
        await SqliteStore.open(tmp_path, clock=SystemClock())
    assert file.read_bytes() == before
