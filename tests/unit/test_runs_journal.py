"""A run's pen by itself: what is held goes along with what comes next, whole, in order, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from remit.contract import RunStatus
from remit.errors import StorageBusy, StorageFull
from remit.events import Artifact, Event, NewEvent, TranscriptEntry
from remit.primitives import SystemClock
from remit.runs import Feed
from remit.runs import _journal as journals
from remit.runs._journal import RunJournal
from remit.testing._memory_store import MemoryStore
from remit.testing._store_samples import (
    sample_submission,
    settling,
    stage_started,
    terminal,
    work_finished,
    work_registered,
)


class Store(MemoryStore):
    """Remembers each step, and can fail, or take its time and be cut off, as the real one can."""

    def __init__(self) -> None:
        super().__init__(clock=SystemClock())
        self.steps: list[tuple[list[str], int, list[str]]] = []
        self.errors: list[Exception] = []
        """Raised by the next steps, in order."""
        self.gate: asyncio.Event | None = None
        """The next step waits for it."""

    async def append(
        self,
        run_id: str,
        generation: int,
        events: Sequence[NewEvent],
        *,
        transcript: Sequence[TranscriptEntry] = (),
        artifacts: Sequence[Artifact] = (),
        tenant: str = "local",
    ) -> tuple[Event, ...]:
        gate, self.gate = self.gate, None
        cut: asyncio.CancelledError | None = None
        if gate is not None:
            try:
                await gate.wait()
            except asyncio.CancelledError as cancel:
                cut = cancel
        if self.errors:
            error = self.errors.pop(0)
            if cut is not None:
                raise cut from error
            raise error
        stored = await super().append(
            run_id, generation, events, transcript=transcript, artifacts=artifacts, tenant=tenant
        )
        labels = [event.work_id or event.type for event in events]
        self.steps.append((labels, len(transcript), [artifact.name for artifact in artifacts]))
        if cut is not None:
            raise cut
        return stored


async def pen(store: Store) -> RunJournal:
    """The pen of an admitted run."""
    submission = replace(sample_submission("run_1", epoch="ep"), claimed=True)
    submitted = await store.submit(submission)
    return RunJournal(store, submitted.run, Feed(store, SystemClock()))


def said(position: int) -> TranscriptEntry:
    return TranscriptEntry(stage_id="plan", position=position, role="user", body={"text": "x"})


def text(name: str) -> Artifact:
    return Artifact(name=name, text="x")


PLANNING = stage_started("plan", RunStatus.PLANNING)


async def test_what_is_held_goes_along_whole() -> None:
    """R57: facts, messages and texts that waited stand before those that they waited for."""
    store = Store()
    journal = await pen(store)
    journal.hold(PLANNING, transcript=[said(0)], artifacts=[text("one")])
    journal.hold(work_registered("a"), transcript=[said(1)], artifacts=[text("two")])
    assert journal.view.status is RunStatus.PLANNING
    assert store.steps == []
    await journal.append(work_registered("b"), transcript=[said(2)], artifacts=[text("three")])
    assert store.steps == [(["plan", "a", "b"], 3, ["one", "two", "three"])]
    await journal.append(work_registered("c"))
    assert store.steps[1:] == [(["c"], 0, [])]


@pytest.mark.parametrize(
    "held",
    [
        {"events": [work_registered("a")]},
        {"transcript": [said(0)]},
        {"artifacts": [text("one")]},
    ],
)
async def test_a_flush_stores_whatever_waits(held: dict[str, Any]) -> None:
    """R57: a message or a text alone is something, too; nothing is no step."""
    store = Store()
    journal = await pen(store)
    await journal.flush()
    assert store.steps == []
    journal.hold(*held.pop("events", ()), **held)
    await journal.flush()
    await journal.flush()
    assert len(store.steps) == 1


async def test_a_failure_puts_back_what_waited_before_what_came_meanwhile() -> None:
    """R59: nothing that was held is lost with the step it went along with, nor loses its place."""
    store = Store()
    journal = await pen(store)
    journal.hold(work_registered("a"), transcript=[said(0)], artifacts=[text("one")])
    gate = store.gate = asyncio.Event()
    store.errors = [StorageBusy("busy")]
    step = asyncio.get_running_loop().create_task(journal.append(PLANNING))
    await asyncio.sleep(0)
    journal.hold(work_registered("b"), transcript=[said(1)], artifacts=[text("two")])
    gate.set()
    with pytest.raises(StorageBusy):
        await step
    assert journal.view.status is RunStatus.QUEUED
    await journal.flush()
    assert store.steps == [(["a", "b"], 2, ["one", "two"])]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancel_tells_what_was_stored(fails: bool) -> None:
    """R57: a step that was cut off counts if it was stored; if not, what had waited waits on."""
    store = Store()
    journal = await pen(store)
    journal.hold(work_registered("a"), transcript=[said(0)], artifacts=[text("one")])
    store.gate = asyncio.Event()
    store.errors = [StorageFull("full")] if fails else []
    step = asyncio.get_running_loop().create_task(journal.append(PLANNING))
    await asyncio.sleep(0)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert journal.view.status is (RunStatus.QUEUED if fails else RunStatus.PLANNING)
    await journal.flush()
    assert store.steps == [(["a"] if fails else ["a", "plan"], 1, ["one"])]


async def test_what_waits_for_long_is_due_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R57: one call for all that waits; none where it was stored in time; and again for what comes later."""
    monkeypatch.setattr(journals, "HELD_AT_MOST_S", 0.02)
    journal, due = await pen(Store()), list[int]()
    journal.on_overdue = lambda: due.append(1)
    journal.hold(work_registered("a"))
    journal.hold(work_registered("b"))
    await journal.flush()
    await asyncio.sleep(0.06)
    assert due == []
    for count in (1, 2):
        journal.hold(work_registered(f"c{count}"))
        journal.hold(work_registered(f"d{count}"))
        await asyncio.sleep(0.06)
        assert len(due) == count


async def test_on_a_full_disk_only_what_ends_something_is_kept() -> None:
    """R60: all else that waited is given up, and the work that was begun and ended stays whole."""
    store = Store()
    journal = await pen(store)
    journal.hold(work_registered("a"), work_finished("a"), work_registered("b"), transcript=[said(0)])
    assert journal.give_up_all_but_ends()
    await journal.append(settling())
    assert [(labels[:-1], *rest) for labels, *rest in store.steps] == [(["a", "a"], 0, [])]


@pytest.mark.parametrize("held", [{"transcript": [said(0)]}, {"artifacts": [text("one")]}])
async def test_a_message_or_a_text_can_be_missed(held: dict[str, Any]) -> None:
    """R60: they alone may be what the disk had no room for."""
    store = Store()
    journal = await pen(store)
    journal.hold(**held)
    assert journal.give_up_all_but_ends()
    await journal.append(settling())
    assert [rest for _, *rest in store.steps] == [[0, []]]


async def test_nothing_is_given_up_twice() -> None:
    """R60: where only ends wait, whoever decides learns that trying again is of no use."""
    journal = await pen(Store())
    journal.hold(work_registered("a"), work_finished("a"))
    assert not journal.give_up_all_but_ends()
    assert journal._held.waiting


async def test_the_last_step_takes_along_what_waits() -> None:
    """R11: what ended while the run was settled stands before its terminal; what comes after it, nowhere."""
    store = Store()
    journal = await pen(store)
    await journal.append(settling())
    journal.hold(work_registered("a"), work_finished("a"))
    await journal.finish(terminal(journal.view))
    journal.hold(work_finished("b"))
    await asyncio.sleep(0)
    log = await store.read_events("run_1")
    assert [event.type for event in log[-3:]] == ["work.registered", "work.finished", "run.completed"]
    assert not journal._held.waiting
