"""What the store suite needs from the one who runs it."""

from __future__ import annotations

from typing import Protocol

from remit.runs import RunStore, StoredRun
from remit.testing._store_samples import Write, sample_submission


class StoreHarness(Protocol):
    """A fresh store, and the hosts that use it."""

    store: RunStore

    def start_epoch(self) -> str:
        """A host comes to life; its epoch's id."""
        ...

    def kill_epoch(self, epoch: str) -> None:
        """That host dies."""
        ...

    async def another_host(self) -> RunStore:
        """The same data as another host process has it before it. The harness closes it."""
        ...


async def admit(harness: StoreHarness, run_id: str, *, epoch: str | None = None) -> StoredRun:
    """A run that is admitted and claimed."""
    return await admit_on(harness.store, run_id, epoch=epoch or harness.start_epoch())


async def admit_on(store: RunStore, run_id: str, *, epoch: str = "epoch_1") -> StoredRun:
    """The same where there is but one host."""
    await store.submit(sample_submission(run_id, epoch=epoch))
    claimed = await store.claim(epoch, run_id=run_id)
    assert claimed is not None
    return claimed


async def store_write(store: RunStore, run: StoredRun, write: Write, *, last: bool = False) -> None:
    """Append it, or finish with it."""
    if last:
        await store.finish(run.view.id, run.generation, write.events, artifacts=write.artifacts)
    else:
        await store.append(
            run.view.id,
            run.generation,
            write.events,
            transcript=write.transcript,
            artifacts=write.artifacts,
        )
