"""Rules of dead ids."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from remit.contract import RunStatus
from remit.errors import IdempotencyConflict, InvalidRequest, RemitError
from remit.runs import fold_event
from remit.testing._store_samples import sample_submission
from remit.testing._store_suite_harness import StoreHarness, admit

_STORY = ["run.queued", "run.cancel_requested", "run.settling", "usage.updated", "run.cancelled"]


class TombstoneRules:
    """`bury`, and what it does to `submit`."""

    async def test_a_dead_id_starts_cancelled(self, harness: StoreHarness) -> None:
        """R7: a start after its cancel gives a cancelled run: a whole log, no claim, nothing spent."""
        tombstone = await harness.store.bury("run_1", by="caller", reason="too late")
        assert tombstone is not None
        assert (tombstone.run_id, tombstone.by, tombstone.reason) == ("run_1", "caller", "too late")
        epoch = harness.start_epoch()
        submitted = await harness.store.submit(sample_submission("run_1", epoch=epoch))
        assert submitted.created
        view = submitted.run.view
        assert (view.status, view.cancel_requested, view.started_at) == (RunStatus.CANCELLED, True, None)
        assert view.terminal is not None
        assert (view.terminal.kind, view.terminal.code) == ("cancelled", "caller")
        assert view.cancel is not None
        assert (view.cancel.reason, view.cancel.requested_at) == ("too late", tombstone.at)
        assert view.usage is not None
        assert (view.usage.complete, view.usage.total_tokens, view.cost_usd) == (True, 0, 0)
        events = await harness.store.read_events("run_1")
        assert [event.type for event in events] == _STORY
        assert [event.seq for event in events] == [1, 2, 3, 4, 5]
        folded = None
        for event in events:
            folded = fold_event(folded, event)
        assert folded == view
        assert submitted.run == await harness.store.find_run("run_1")
        assert await harness.store.claim(epoch) is None
        assert await harness.store.claim(epoch, run_id="run_1") is None

    async def test_a_dead_id_is_claimed_by_nobody(self, harness: StoreHarness) -> None:
        """R7: nor by the host that would take it up as it is admitted."""
        await harness.store.bury("run_1", by="caller")
        submission = replace(sample_submission("run_1", epoch=harness.start_epoch()), claimed=True)
        submitted = await harness.store.submit(submission)
        assert (submitted.run.view.status, submitted.run.generation) == (RunStatus.CANCELLED, 0)
        with pytest.raises(RemitError):
            await harness.store.append("run_1", 0, [])

    async def test_a_dead_id_stays_so(self, harness: StoreHarness) -> None:
        """R5, R7: for ever: the same request, another one, another host: one log, the same end."""
        await harness.store.bury("run_1", by="caller")
        epoch = harness.start_epoch()
        first = await harness.store.submit(sample_submission("run_1", epoch=epoch))
        harness.kill_epoch(epoch)
        other = await harness.another_host()
        for prompt in ("Make the failing test pass.", "Other."):
            again = await other.submit(sample_submission("run_1", epoch=harness.start_epoch(), prompt=prompt))
            assert not again.created
            assert again.run == first.run
        assert await other.find_tombstone("run_1") is not None
        assert await harness.store.unfinished_of_dead_epochs() == ()

    async def test_the_first_tombstone_stays(self, harness: StoreHarness) -> None:
        """R5: a second one changes nothing, and is told the first."""
        first = await harness.store.bury("run_1", by="caller", reason="first")
        assert await harness.store.bury("run_1", by="operator", reason="second") == first
        assert await harness.store.find_tombstone("run_1") == first
        assert await harness.store.find_tombstone("run_2") is None

    async def test_a_run_cant_be_buried(self, harness: StoreHarness) -> None:
        """A run that is there, alive or ended, is cancelled in its own way: nothing is stored."""
        await admit(harness, "run_1")
        assert await harness.store.bury("run_1", by="caller") is None
        assert await harness.store.find_tombstone("run_1") is None
        with pytest.raises(IdempotencyConflict):
            await harness.store.submit(
                sample_submission("run_1", epoch=harness.start_epoch(), prompt="Other.")
            )

    async def test_burying_and_starting_at_once(self, harness: StoreHarness) -> None:
        """Whichever comes first: either there is no tombstone, or the run is cancelled."""
        epoch, store = harness.start_epoch(), harness.store
        for place in range(10):
            submission = sample_submission(f"run_{place}", epoch=epoch)
            async with asyncio.TaskGroup() as group:
                jobs = [store.submit(submission), store.bury(f"run_{place}", by="caller")]
                tasks = [group.create_task(job) for job in (jobs if place % 2 else jobs[::-1])]
            buried = any(task.result() is None for task in tasks) is False
            found = await store.find_run(f"run_{place}")
            assert found is not None
            assert (found.view.status is RunStatus.CANCELLED) == buried

    async def test_dead_ids_of_tenants_dont_meet(self, harness: StoreHarness) -> None:
        """R78: an id is dead in its own tenant only."""
        await harness.store.bury("run_1", by="caller", tenant="b")
        submitted = await harness.store.submit(sample_submission("run_1", epoch=harness.start_epoch()))
        assert submitted.run.view.status is RunStatus.QUEUED
        assert await harness.store.find_tombstone("run_1") is None

    async def test_what_isnt_an_id_cant_be_dead(self, harness: StoreHarness) -> None:
        """R44: nothing is changed on its way in, so what can't be an id is refused; a reason is cleaned."""
        with pytest.raises(InvalidRequest):
            await harness.store.bury("run\x00", by="caller")
        tombstone = await harness.store.bury("run_1", by="caller", reason="a\x00b")
        assert tombstone is not None
        assert tombstone.reason == "a\ufffdb"
        assert await harness.store.find_tombstone("run_1") == tombstone
