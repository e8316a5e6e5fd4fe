"""A host that dies at any write, as far as that can be had without recovery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from remit.contract import RunStatus
from remit.errors import OwnershipError, StaleGeneration
from remit.events import TERMINAL_TYPES, Event
from remit.primitives import SystemClock
from remit.runs import fold_event, sweep_dead_runs
from remit.testing._fake_node import FakeNode
from remit.testing._memory_store import MemoryStore
from remit.testing._run_world import good_replies, run_world

MOST_WRITES = 24
CLOCK = SystemClock()


class MortalStore(MemoryStore):
    """A store whose host dies at its n-th write, just before it is kept or just after."""

    def __init__(self, dies_at: int, *, after: bool) -> None:
        self.dead = False
        super().__init__(clock=CLOCK, is_alive=lambda _: not self.dead)
        self._left = dies_at
        self._after = after

    async def append(self, *args: Any, **more: Any) -> tuple[Event, ...]:
        return await self._write(super().append, args, more)

    async def finish(self, *args: Any, **more: Any) -> tuple[Event, ...]:
        return await self._write(super().finish, args, more)

    async def _write(self, write: Any, args: Sequence[Any], more: dict[str, Any]) -> tuple[Event, ...]:
        if self.dead:
            raise StaleGeneration("the host is dead")
        self._left -= 1
        if self._left > 0:
            return await write(*args, **more)
        if self._after:
            await write(*args, **more)
        self.dead = True
        raise StaleGeneration("the host died")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", range(1, MOST_WRITES))
async def test_the_log_is_whole_wherever_the_host_dies(dies_at: int, after: bool) -> None:
    """R57: one terminal, last, after the sweep; the tree is the base, or the result after its intent."""
    store = MortalStore(dies_at, after=after)
    node = FakeNode({"a.txt": "old\n"})
    async with run_world(*good_replies(), store=store, node=node) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        try:
            view = await world.supervise(supervisor)
        except OwnershipError:
            view = None
        assert world.registry.active_count() == 0
        assert world.link.pending_count() == 0
    if view is not None:
        assert not store.dead
        assert view.status is RunStatus.COMPLETED
        return
    assert store.dead
    survivor = store
    before = await survivor.read_events(run_id, limit=1_000)
    survivor.append = MemoryStore.append.__get__(store)
    survivor.finish = MemoryStore.finish.__get__(store)
    swept = await sweep_dead_runs(survivor, "ep_next", CLOCK)
    events = await survivor.read_events(run_id, limit=1_000)
    assert events[: len(before)] == before, "what was stored before isn't touched"
    ends = [event for event in events if event.type in TERMINAL_TYPES]
    assert ends == [events[-1]]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    kinds = [event.type for event in events]
    assert kinds.count("run.settling") == 1
    if before[-1].type in TERMINAL_TYPES:
        assert swept == ()
    else:
        (ended,) = swept
        assert ended.terminal is not None
        assert (ended.terminal.class_, ended.terminal.code) == ("lost", "unproven")
        assert ended.usage is not None
        assert ended.usage.coverage.attempts == kinds.count("attempt.started")
    assert node.tree["a.txt"] == "old\n" or "delivery.intent" in kinds
    folded = None
    for event in events:
        folded = fold_event(folded, event)
    stored = await survivor.find_run(run_id)
    assert stored is not None
    assert stored.view == folded
    assert await sweep_dead_runs(survivor, "ep_third", CLOCK) == (), "a second sweep finds nothing"


async def test_every_write_was_killed() -> None:
    """The range above covers a whole run: one more write and the host lives."""
    store = MortalStore(MOST_WRITES, after=True)
    async with run_world(*good_replies(), store=store) as world:
        assert (await world.drive()).status is RunStatus.COMPLETED
    assert not store.dead
