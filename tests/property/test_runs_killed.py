"""A host that dies at any write, as far as that can be had without recovery."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from remit.admission import Binding
from remit.contract import RunStatus
from remit.errors import OwnershipError, StaleGeneration
from remit.events import TERMINAL_TYPES, Event
from remit.primitives import SystemClock
from remit.runs import fold_event, sweep_dead_runs
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import FakePool, PoolReply
from remit.testing._memory_store import MemoryStore
from remit.testing._run_world import PASS, PLAN, WORK, good_replies, run_world

MOST_WRITES = 12
BEGINNINGS = {"attempt.started", "tool.started", "stage.started", "work.registered"}
ENDINGS = {"completed", "failed", "finished"}
CLOCK = SystemClock()


class MortalStore(MemoryStore):
    """A store whose host dies at its n-th write, or at an event's, just before it is kept or just after."""

    def __init__(self, dies_at: int | str, *, after: bool) -> None:
        self.dead = False
        super().__init__(clock=CLOCK, is_alive=lambda _: not self.dead)
        self._left = dies_at if isinstance(dies_at, int) else 1_000
        self._fatal = dies_at
        self._after = after

    async def append(self, *args: Any, **more: Any) -> tuple[Event, ...]:
        return await self._write(super().append, args, more)

    async def finish(self, *args: Any, **more: Any) -> tuple[Event, ...]:
        return await self._write(super().finish, args, more)

    async def _write(self, write: Any, args: Sequence[Any], more: dict[str, Any]) -> tuple[Event, ...]:
        if self.dead:
            raise StaleGeneration("the host is dead")
        self._left -= 1
        if self._left > 0 and all(event.type != self._fatal for event in args[2]):
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
        assert dies_at == MOST_WRITES - 1, "each write but the last of these was one of the run's"
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
    check_log(events)
    if before[-1].type in TERMINAL_TYPES:
        assert swept == ()
    else:
        (ended,) = swept
        assert ended.terminal is not None
        assert (ended.terminal.class_, ended.terminal.code) == ("lost", "unproven")
        assert ended.usage is not None
        assert ended.usage.coverage.attempts == kinds.count("attempt.started")
        check_what_was_added(before, events[len(before) :])
    assert node.tree["a.txt"] == "old\n" or "delivery.intent" in kinds
    folded = None
    for event in events:
        folded = fold_event(folded, event)
    stored = await survivor.find_run(run_id)
    assert stored is not None
    assert stored.view == folded
    assert await sweep_dead_runs(survivor, "ep_third", CLOCK) == (), "a second sweep finds nothing"


async def test_a_session_goes_on_after_its_host_was_killed() -> None:
    """R27: a host dies in the middle of a tool call; the session's next run has its history, made whole."""
    store = MortalStore("tool.started", after=True)
    async with run_world(*good_replies(), store=store) as world:
        supervisor = await world.admit(session_id="talk", prompt="Mind the robins.")
        killed = next(iter(world.controls))
        with contextlib.suppress(OwnershipError):
            await world.supervise(supervisor)
    assert [event.type for event in await store.read_events(killed, limit=1_000)][-1] == "tool.started"
    store.append = MemoryStore.append.__get__(store)
    store.finish = MemoryStore.finish.__get__(store)
    await sweep_dead_runs(store, "ep_next", CLOCK)
    async with run_world(*good_replies(), store=store) as world:
        view = await world.drive(session_id="talk")
        assert isinstance(world.pool, FakePool)
        told = str(world.pool.requests[0].messages)
    assert view.status is RunStatus.COMPLETED
    assert "robins" in told
    assert "It can't be proven how the run ended." in told


def check_what_was_added(before: Sequence[Event], added: Sequence[Event]) -> None:
    """A true story: the log says when its host was last heard, and makes up no length of time."""
    for event in added:
        match event.type:
            case "run.settling":
                assert (
                    f"its host died; the last thing that it stored was {before[-1].type}"
                    in event.data["detail"]
                )
            case "tool.completed" | "attempt.failed":
                assert event.data["duration_ms"] is None
            case _:
                pass


MOST_TREE_WRITES = 42
DELEGATING = Binding(name="reviewed", workspace="tree", delivery="apply", delegate=True)


def tree_replies() -> list[PoolReply]:
    """A run that has one child, which writes a file."""
    child = (PLAN, ("c1", "write_file", {"relative_path": "b.txt", "content": "x"}), WORK, PASS)
    parent = (PLAN, ("d1", "delegate", {"prompt": "Write b.txt."}), *child, WORK, PASS)
    return [
        PoolReply(text=one)
        if isinstance(one, str)
        else PoolReply(calls=[(one[0], one[1], json.dumps(one[2]))], finish="tool_calls")
        for one in parent
    ]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", range(1, MOST_TREE_WRITES))
async def test_a_tree_is_settled_whole_wherever_its_host_dies(dies_at: int, after: bool) -> None:
    """R25, R57: the parent's bill is that of its tree, also then; a call that was cut is named as it is."""
    store = MortalStore(dies_at, after=after)
    async with run_world(*tree_replies(), store=store) as world:
        supervisor = await world.admit(binding=DELEGATING)
        run_id = next(iter(world.controls))
        with contextlib.suppress(OwnershipError):
            await world.supervise(supervisor)
    survivor = store
    survivor.append = MemoryStore.append.__get__(store)
    survivor.finish = MemoryStore.finish.__get__(store)
    swept = await sweep_dead_runs(survivor, "ep_next", CLOCK)
    logs = {run_id: await survivor.read_events(run_id, limit=1_000)}
    children = await survivor.children_of(run_id)
    for child in children:
        logs[child.view.id] = await survivor.read_events(child.view.id, limit=1_000)
    assert len(children) <= 1
    assert [view.id for view in swept] == [name for name in logs if name in {view.id for view in swept}]
    for events in logs.values():
        check_log(events)
    stored = await survivor.find_run(run_id)
    assert stored is not None
    usage = stored.view.usage
    assert usage is not None
    assert usage.coverage.attempts == sum(count(events, "attempt.started") for events in logs.values())
    known = {name: 15 * count(events, "attempt.completed") for name, events in logs.items()}
    assert (usage.own.total_tokens or 0) == known[run_id]  # None: nothing is known
    assert usage.subtree.total_tokens == usage.total_tokens
    assert (usage.total_tokens or 0) == sum(known.values())
    calls = [event for event in logs[run_id] if event.type == "tool.completed"]
    if calls and swept:
        child = children[0].view if children else None
        finished = child is not None and child.status is RunStatus.COMPLETED
        allowed = {"outcome_unknown", "success"} if finished else {"failed"} if child else {"cancelled"}
        assert {event.data["status"] for event in calls} <= allowed


def count(events: Sequence[Event], type_: str) -> int:
    return [event.type for event in events].count(type_)


def check_log(events: Sequence[Event]) -> None:
    """A whole log: numbers without gaps, one terminal, last, and for each beginning one end after it."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type in TERMINAL_TYPES for event in events] == [False] * (len(events) - 1) + [True]
    assert count(events, "run.settling") == 1
    open_: Counter[tuple[str, object]] = Counter()
    for event in events:
        kind, _, word = event.type.partition(".")
        name = {"attempt": "attempt_id", "tool": "tool_call_id", "stage": "stage_id"}.get(kind)
        about = event.data[name] if name is not None else event.work_id
        if event.type in BEGINNINGS:
            open_[kind, about] += 1
        elif kind in {"attempt", "tool", "stage", "work"} and word in ENDINGS:
            open_[kind, about] -= 1
        assert all(number in (0, 1) for number in open_.values()), event
        assert event.work_id is not None, event
        assert (event.parent_work_id is None) == (event.work_id == event.run_id), event
    assert not +open_, "what began and has no end"


async def test_every_write_of_a_tree_was_killed() -> None:
    """The range above covers a whole tree: one more write and the host lives."""
    store = MortalStore(MOST_TREE_WRITES, after=True)
    async with run_world(*tree_replies(), store=store) as world:
        assert (await world.drive(binding=DELEGATING)).status is RunStatus.COMPLETED
    assert not store.dead


async def test_every_write_was_killed() -> None:
    """The range above covers a whole run: one more write and the host lives."""
    store = MortalStore(MOST_WRITES, after=True)
    async with run_world(*good_replies(), store=store) as world:
        assert (await world.drive()).status is RunStatus.COMPLETED
    assert not store.dead
