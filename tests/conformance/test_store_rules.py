"""The rules of a run store, held by the fake and by every adapter."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from remit.primitives import SystemClock, SystemIds
from remit.storage import Epoch, Epochs, SqliteStore, StoreSettings
from remit.testing import MemoryStore, StoreSuite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from remit.runs import RunStore


class MemoryHarness:
    """Hosts in one memory."""

    def __init__(self) -> None:
        self._started = 0
        self._dead: set[str] = set()
        self.store: RunStore = MemoryStore(
            clock=SystemClock(), is_alive=lambda epoch: epoch not in self._dead
        )

    def start_epoch(self) -> str:
        self._started += 1
        return f"epoch_{self._started}"

    def kill_epoch(self, epoch: str) -> None:
        self._dead.add(epoch)

    async def another_host(self) -> RunStore:
        return self.store


class SqliteHarness:
    """Hosts on one file; `another_host` has its own writer, readers and idea of who is alive."""

    def __init__(self, folder: Path, store: SqliteStore, opened: AsyncExitStack) -> None:
        self._folder = folder
        self._opened = opened
        self._epochs: dict[str, Epoch] = {}
        self.store = store

    def start_epoch(self) -> str:
        epoch = self.store.epochs.start()
        self._epochs[epoch.id] = epoch
        return epoch.id

    def kill_epoch(self, epoch: str) -> None:
        self._epochs.pop(epoch).abandon()

    async def another_host(self) -> RunStore:
        settings = StoreSettings(poll_ms=20)
        epochs = Epochs(self._folder, clock=SystemClock(), ids=SystemIds())
        store = await SqliteStore.open(self._folder, clock=SystemClock(), epochs=epochs, settings=settings)
        return await self._opened.enter_async_context(store)

    def close(self) -> None:
        for epoch in self._epochs.values():
            epoch.close()


class TestMemoryStore(StoreSuite):
    """The fake keeps the rules, so that tests with it mean something."""

    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


class TestSqliteStore(StoreSuite):
    """SQLite keeps them; and whatever a test did, the rows are what the logs say."""

    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[SqliteHarness]:
        async with AsyncExitStack() as opened:
            store = await opened.enter_async_context(
                await SqliteStore.open(tmp_path / "data", clock=SystemClock())
            )
            harness = SqliteHarness(tmp_path / "data", store, opened)
            yield harness
            assert await store.find_drift() == ()
            harness.close()
