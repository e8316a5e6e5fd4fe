"""Counted, labelled reasons why a run or the host can't be settled."""

from __future__ import annotations

import asyncio

from remit.work import Residencies


async def _settled(task: asyncio.Task[None]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


def test_residencies_are_counted_by_label() -> None:
    """Several of one label count each; a release counts once."""
    residencies = Residencies()
    first = residencies.acquire("tool")
    second = residencies.acquire("tool")
    third = residencies.acquire("checkout")
    assert residencies.by_label() == {"checkout": 1, "tool": 2}
    assert first.release()
    assert not first.release()
    assert residencies.by_label() == {"checkout": 1, "tool": 1}
    assert second.held
    assert third.release()
    assert second.release()
    assert residencies.count == 0


async def test_all_residencies_barrier_waits_for_kept_ones_too() -> None:
    """M22, M35: after a cancel everything is awaited, also what the preserve policy keeps."""
    residencies = Residencies()
    kept = residencies.acquire("checkout", kept=True)
    async with asyncio.TaskGroup() as group:
        every = group.create_task(residencies.wait_all_drained())
        but_kept = group.create_task(residencies.wait_drained())
        assert await _settled(but_kept)
        assert not await _settled(every)
        kept.release()
        assert await _settled(every)


async def test_barrier_opens_with_the_last_release() -> None:
    """M2, M9: nothing is read while a residency is outstanding, one that came during the wait included."""
    residencies = Residencies()
    first = residencies.acquire("tool")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(residencies.wait_drained())
        assert not await _settled(waiting)
        second = residencies.acquire("attempt")
        first.release()
        assert not await _settled(waiting)
        second.release()
        assert await _settled(waiting)


def test_residency_is_released_by_its_block() -> None:
    """An error inside doesn't keep it."""
    residencies = Residencies()
    try:
        with residencies.acquire("delivery"):
            assert residencies.count == 1
            raise RuntimeError
    except RuntimeError:
        pass
    assert residencies.count == 0


def test_residency_of_a_run_holds_its_host_back_too() -> None:
    """Each counts in the run and in the host, and leaves both at once."""
    host = Residencies()
    one, other = Residencies(parent=host), Residencies(parent=host)
    residency = one.acquire("tool")
    other.acquire("tool")
    assert host.by_label() == {"tool": 2}
    residency.release()
    assert one.count == 0
    assert host.by_label() == {"tool": 1}


async def test_waiter_that_is_cancelled_leaves_nothing_behind() -> None:
    """Cancellation: the wait just ends."""
    residencies = Residencies()
    residency = residencies.acquire("tool")
    for _ in range(3):
        try:
            async with asyncio.timeout(0.001):
                await residencies.wait_drained()
        except TimeoutError:
            pass
    assert residencies._waiters == []
    residency.release()
    await residencies.wait_drained()
