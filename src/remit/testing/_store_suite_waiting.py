"""Rules of waiting for events, and of cancelling who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from remit.events import Event
from remit.runs import RunStore
from remit.testing._store_samples import sample_submission, settling, terminal, work_registered
from remit.testing._store_suite_harness import StoreHarness, admit

_PATIENCE_SECONDS = 20
_MOMENT_SECONDS = 0.05


class WaitingRules:
    """`wait_for_events`, and the shield around what stores."""

    async def test_what_is_there_isnt_waited_for(self, harness: StoreHarness) -> None:
        """With events behind the number it returns at once."""
        run = await admit(harness, "run_1")
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await harness.store.wait_for_events("run_1", after=0)
            for place in range(5):
                await harness.store.append("run_1", run.generation, [work_registered(str(place))])
            await harness.store.wait_for_events("run_1", after=5)

    async def test_a_waiter_is_woken(self, harness: StoreHarness) -> None:
        """Nobody polls: who waits is woken by the write, and re-reads."""
        run = await admit(harness, "run_1")
        async with asyncio.timeout(_PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            waiters = [
                group.create_task(harness.store.wait_for_events("run_1", after=after)) for after in (1, 1, 2)
            ]
            await asyncio.sleep(_MOMENT_SECONDS)
            assert not any(waiter.done() for waiter in waiters)
            await harness.store.append("run_1", run.generation, [work_registered("a")])
            await asyncio.wait(waiters[:2])
            await harness.store.append("run_1", run.generation, [work_registered("b")])

    async def test_another_runs_events_wake_nobody_for_good(self, harness: StoreHarness) -> None:
        """A waiter of one run isn't let go by another's events."""
        epoch = harness.start_epoch()
        await admit(harness, "run_1", epoch=epoch)
        other = await admit(harness, "run_2", epoch=epoch)
        async with asyncio.timeout(_PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            waiter = group.create_task(harness.store.wait_for_events("run_1", after=1))
            await harness.store.append("run_2", other.generation, [work_registered("a")])
            await asyncio.wait([waiter], timeout=0.5)
            assert not waiter.done()
            waiter.cancel()

    async def test_a_run_may_be_waited_for_before_it_is_there(self, harness: StoreHarness) -> None:
        """Its admission wakes."""
        async with asyncio.timeout(_PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(harness.store.wait_for_events("run_1", after=0))
            await asyncio.sleep(_MOMENT_SECONDS)
            await harness.store.submit(sample_submission("run_1", epoch=harness.start_epoch()))

    async def test_another_hosts_events_wake(self, harness: StoreHarness) -> None:
        """A viewer on one host sees what another one stores, a little later."""
        run = await admit(harness, "run_1")
        other = await harness.another_host()
        async with asyncio.timeout(_PATIENCE_SECONDS):
            async with asyncio.TaskGroup() as group:
                group.create_task(other.wait_for_events("run_1", after=1))
                await asyncio.sleep(_MOMENT_SECONDS)
                await harness.store.append("run_1", run.generation, [work_registered("a")])
            async with asyncio.TaskGroup() as group:
                group.create_task(other.wait_for_events("run_1", after=2))
                await asyncio.sleep(_MOMENT_SECONDS)
                await harness.store.append("run_1", run.generation, [work_registered("b")])
        assert len(await other.read_events("run_1")) == 3

    async def test_no_event_is_missed(self, harness: StoreHarness) -> None:
        """R66: a reader that waits and re-reads sees every event once, however the writes fall."""
        run = await admit(harness, "run_1")

        async def follow() -> list[Event]:
            seen: list[Event] = []
            while not seen or seen[-1].type != "run.completed":
                await harness.store.wait_for_events("run_1", after=len(seen))
                seen += await harness.store.read_events("run_1", after=len(seen), limit=7)
            return seen

        async with asyncio.timeout(_PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            viewers = [group.create_task(follow()) for _ in range(5)]
            for place in range(60):
                await harness.store.append("run_1", run.generation, [work_registered(str(place))])
                if place % 7 == 0:
                    await asyncio.sleep(0)
            await harness.store.finish("run_1", run.generation, [settling(), terminal(run.view)])
        for viewer in viewers:
            assert [event.seq for event in viewer.result()] == list(range(1, 64))

    async def test_a_cancelled_waiter_leaves_the_others(self, harness: StoreHarness) -> None:
        """A viewer that goes away takes nobody along."""
        run = await admit(harness, "run_1")
        async with asyncio.timeout(_PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            leaving = group.create_task(harness.store.wait_for_events("run_1", after=1))
            staying = group.create_task(harness.store.wait_for_events("run_1", after=1))
            await asyncio.sleep(_MOMENT_SECONDS)
            leaving.cancel()
            await asyncio.wait([leaving])
            assert leaving.cancelled()
            assert not staying.done()
            await harness.store.append("run_1", run.generation, [work_registered("a")])

    @pytest.mark.parametrize("cancels", [1, 3])
    async def test_a_cancelled_append_is_settled_first(self, harness: StoreHarness, cancels: int) -> None:
        """Who is cancelled while an append is under way hears of it when it is stored, or never will be."""
        run = await admit(harness, "run_1")
        append = harness.store.append("run_1", run.generation, [work_registered("a")])
        settled = await _events_after_cancel(append, harness.store, cancels=cancels)
        (event,) = await harness.store.append("run_1", run.generation, [work_registered("b")])
        assert event.seq == settled + 1

    async def test_a_cancelled_finish_is_settled_first(self, harness: StoreHarness) -> None:
        """The same for the terminal: it is never stored behind the back of the one who was cancelled."""
        run = await admit(harness, "run_1")
        finish = harness.store.finish("run_1", run.generation, [settling(), terminal(run.view)])
        settled = await _events_after_cancel(finish, harness.store, cancels=2)
        assert settled in {1, 3}


async def _events_after_cancel(
    write: Coroutine[Any, Any, tuple[Event, ...]], store: RunStore, *, cancels: int
) -> int:
    """Cancel a write that has just begun; how many events there are once it says that it was cancelled."""
    async with asyncio.timeout(_PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        writer = group.create_task(write)
        for _ in range(cancels):
            await asyncio.sleep(0)
            writer.cancel()
        await asyncio.wait([writer])
    settled = len(await store.read_events("run_1"))
    await asyncio.sleep(_MOMENT_SECONDS)
    assert len(await store.read_events("run_1")) == settled, (
        "something was stored after the cancel was raised"
    )
    return settled
