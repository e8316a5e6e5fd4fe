"""Working time: the wall clock without the waits."""

from __future__ import annotations

import asyncio

from remit.usage import WorkingTime
from work_kit import StillClock


def test_waits_do_not_count() -> None:
    """R54: a queue, a rate limit."""
    clock = StillClock()
    working = WorkingTime(clock=clock)
    clock.pass_ms(100)
    with working.waiting():
        clock.pass_ms(400)
        assert (working.working_ms(), working.waited_ms(), working.wall_ms()) == (100, 400, 500)
    clock.pass_ms(50)
    assert (working.working_ms(), working.waited_ms(), working.wall_ms()) == (150, 400, 550)


def test_overlapping_waits_count_once() -> None:
    """R54: three calls that wait beside one another for 2 s have waited 2 s, not 6."""
    clock = StillClock()
    working = WorkingTime(clock=clock)
    waits = [working.waiting() for _ in range(3)]
    for wait in waits:
        wait.__enter__()
        clock.pass_ms(500)
    clock.pass_ms(1_000)
    for wait in waits:
        wait.__exit__(None, None, None)
        clock.pass_ms(100)
    assert working.waited_ms() == 3 * 500 + 1_000 + 2 * 100
    assert working.working_ms() == 100


def test_working_stays_between_0_and_the_wall() -> None:
    """R54: also when the clock goes back."""
    clock = StillClock()
    working = WorkingTime(clock=clock)
    with working.waiting():
        clock.pass_ms(-700)
    assert working.working_ms() == working.wall_ms() == working.waited_ms() == 0


async def test_limit_of_working_time_stands_still_during_waits() -> None:
    """R54: 3 s of work within a wall of more are reached after 3 s of work, however long was waited."""
    clock = StillClock()
    working = WorkingTime(clock=clock)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)
        clock.pass_ms(seconds * 1000)

    clock.sleep = sleep
    with working.waiting():
        clock.pass_ms(10_000)
    clock.pass_ms(1_000)
    await working.wait_until_worked(3_000)
    assert working.working_ms() >= 3_000
    assert sum(slept) < 2.1
    await working.wait_until_worked(3_000)
    assert len(slept) < 5
