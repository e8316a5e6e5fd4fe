"""What a run can be asked from outside, and clean-up that a cancel can't cut."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from remit.runs._control import CancelAsked, RunControl
from remit.runs._shield import despite_cancel

ASKED = CancelAsked(by="caller", reason=None, at=datetime(2026, 1, 1, tzinfo=UTC), at_monotonic=1.0)


def test_the_first_cancel_counts_and_later_ones_join() -> None:
    """Asking twice signals once."""
    told: list[CancelAsked] = []
    control = RunControl()
    control.on_cancel(told.append)
    assert control.ask(ASKED)
    assert not control.ask(ASKED)
    assert told == [ASKED]


def test_a_cancel_before_the_run_is_taken_up_is_told_at_once() -> None:
    """R7: a queued run that was cancelled hears of it when it begins."""
    told: list[CancelAsked] = []
    control = RunControl()
    control.ask(ASKED)
    control.on_cancel(told.append)
    assert told == [ASKED]


def test_after_the_commit_a_cancel_changes_nothing() -> None:
    """R5: from the delivery intent on a cancel is answered, and changes nothing."""
    control = RunControl()
    assert control.commit()
    assert not control.ask(ASKED)
    assert control.asked is None


def test_a_cancel_before_the_commit_wins() -> None:
    """R5: whoever is first wins."""
    control = RunControl()
    control.ask(ASKED)
    assert not control.commit()


async def test_work_is_finished_despite_cancels() -> None:
    """Clean-up runs to its end; the cancel is raised after it."""
    done = asyncio.Event()
    started = asyncio.Event()

    async def clean() -> str:
        started.set()
        await asyncio.sleep(0.02)
        done.set()
        return "ok"

    async with asyncio.TaskGroup() as group:
        task = group.create_task(despite_cancel(clean()))
        await started.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
    assert done.is_set()


async def test_its_errors_and_values_come_through() -> None:
    """Without a cancel it is a plain await."""

    async def fail() -> None:
        raise KeyError("x")

    async def value() -> int:
        return 7

    assert await despite_cancel(value()) == 7
    with pytest.raises(KeyError):
        await despite_cancel(fail())
