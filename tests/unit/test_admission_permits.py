"""How many runs go on at once, and how many wait."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from remit.admission import PermitGranted, PermitQueued, PermitRefused, Permits
from remit.errors import MisuseError


def test_places_are_given_out_in_order() -> None:
    """The first come goes on, the next wait, the one too many is refused and takes nothing."""
    permits = Permits(max_running=1, max_queued=2)
    assert permits.ask("a") == PermitGranted()
    assert permits.ask("b") == PermitQueued(ahead=0)
    assert permits.ask("c") == PermitQueued(ahead=1)
    assert permits.would_refuse() == PermitRefused(running=1, queued=2)
    assert permits.ask("d") == PermitRefused(running=1, queued=2)
    assert not permits.holds("d")
    assert permits.release("a") == ("b",)
    assert permits.would_refuse() is None
    assert permits.ask("d") == PermitQueued(ahead=1)
    assert permits.release("b") == ("c",)


def test_asking_again_changes_nothing() -> None:
    """R63: a repeated submit takes no second place."""
    permits = Permits(max_running=1, max_queued=5)
    permits.ask("a")
    permits.ask("b")
    permits.ask("c")
    assert permits.ask("a") == PermitGranted()
    assert permits.ask("c") == PermitQueued(ahead=1)
    assert (permits.running, permits.queued) == (1, 2)


def test_cancelled_queued_run_never_gets_a_place() -> None:
    """R7: it leaves the queue, and the next one goes on."""
    permits = Permits(max_running=1, max_queued=5)
    for run_id in ("a", "b", "c"):
        permits.ask(run_id)
    assert permits.release("b") == ()
    assert permits.release("a") == ("c",)
    assert permits.release("unknown") == ()
    assert permits.release("a") == ()
    assert permits.running == 1


def test_tenant_at_its_bound_holds_up_nobody() -> None:
    """Its own runs wait; others overtake them."""
    permits = Permits(max_running=3, max_queued=5, max_running_per_tenant=1)
    assert permits.ask("a1", tenant="a") == PermitGranted()
    assert permits.ask("a2", tenant="a") == PermitQueued(ahead=0)
    assert permits.ask("b1", tenant="b") == PermitGranted()
    assert permits.release("b1") == ()
    assert permits.release("a1") == ("a2",)


async def test_queued_run_waits_for_its_place() -> None:
    """It goes on when one is given back; whoever stopped waiting still holds its place in the queue."""
    permits = Permits(max_running=1, max_queued=5)
    permits.ask("a")
    permits.ask("b")
    await permits.place("a").acquire()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await permits.place("b").acquire()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(permits.place("b").acquire())
        await asyncio.sleep(0)
        assert not waiting.done()
        permits.place("a").release()
    await permits.place("b").acquire()
    permits.place("b").release()
    assert (permits.running, permits.queued) == (0, 0)


async def test_waiting_without_asking_is_misuse() -> None:
    """Nobody would ever give it a place."""
    with pytest.raises(MisuseError):
        await Permits(max_running=1, max_queued=1).place("a").acquire()


async def test_run_that_left_the_queue_is_not_kept_waiting() -> None:
    """R7: a wait for a place that was given up ends."""
    permits = Permits(max_running=1, max_queued=1)
    permits.ask("a")
    permits.ask("b")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(_refused(permits, "b"))
        await asyncio.sleep(0)
        permits.release("b")
        assert await asyncio.wait_for(waiting, 5)


async def _refused(permits: Permits, run_id: str) -> bool:
    try:
        await permits.place(run_id).acquire()
    except MisuseError:
        return True
    return False


class PermitsMachine(RuleBasedStateMachine):
    """Whatever comes and goes: no bound is passed, and nobody waits who could go on."""

    def __init__(self) -> None:
        super().__init__()
        self.permits = Permits(max_running=3, max_queued=4, max_running_per_tenant=2)
        self.running: dict[str, str] = {}
        self.queue: list[tuple[str, str]] = []
        self.count = 0

    @rule(tenant=st.sampled_from("ab"))
    def ask(self, tenant: str) -> None:
        self.count += 1
        run_id = f"r{self.count}"
        match self.permits.ask(run_id, tenant=tenant):
            case PermitGranted():
                self.running[run_id] = tenant
            case PermitQueued(ahead=ahead):
                assert ahead == len(self.queue)
                self.queue.append((run_id, tenant))
            case PermitRefused():
                assert len(self.queue) == 4

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        known = [*self.running, *(run_id for run_id, _ in self.queue)]
        if not known:
            return
        run_id = data.draw(st.sampled_from(known))
        self.running.pop(run_id, None)
        self.queue = [entry for entry in self.queue if entry[0] != run_id]
        for granted in self.permits.release(run_id):
            (entry,) = [entry for entry in self.queue if entry[0] == granted]
            self.queue.remove(entry)
            self.running[granted] = entry[1]

    @invariant()
    def bounds_hold(self) -> None:
        tenants = list(self.running.values())
        assert len(tenants) <= 3
        assert all(tenants.count(tenant) <= 2 for tenant in "ab")
        assert (self.permits.running, self.permits.queued) == (len(self.running), len(self.queue))
        if len(tenants) < 3:
            assert all(tenants.count(tenant) == 2 for _, tenant in self.queue)


TestPermitsMachine = PermitsMachine.TestCase
TestPermitsMachine.settings = settings(stateful_step_count=40)
