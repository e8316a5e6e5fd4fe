"""How many runs go on at once, and how many wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from remit.admission import PermitGranted, PermitQueued, PermitRefused, Permits, Share
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


def test_hundred_waiting_runs_hold_up_nobody_elses_first() -> None:
    """Fair share: the next place goes to the key that has the fewest, however many another has waiting."""
    permits = Permits(max_running=2, max_queued=200)
    greedy, modest = Share(name="greedy"), Share(name="modest")
    for number in range(100):
        permits.ask(f"g{number}", share=greedy)
    assert permits.ask("m0", share=modest) == PermitQueued(ahead=0)
    assert permits.find_position("m0") == 1
    assert permits.release("g0") == ("m0",)
    permits.ask("m1", share=modest)
    assert permits.release("g1") == ("g2",)
    assert permits.release("m0") == ("m1",)


def test_keys_at_one_place_take_turns() -> None:
    """Fair share: with one place, keys alternate; within a key who came first goes first."""
    permits = Permits(max_running=1, max_queued=200)
    permits.ask("first")
    for number in range(3):
        for key in "abc":
            permits.ask(f"{key}{number}", share=Share(name=key))
    order, running = list[str](), "first"
    while granted := permits.release(running):
        (running,) = granted
        order.append(running)
    assert order == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]


def test_many_keys_of_one_tenant_are_no_more_than_one_tenant() -> None:
    """Fair share: whoever makes itself ten keys doesn't get ten times the places of another tenant."""
    permits = Permits(max_running=2, max_queued=200)
    for number in range(10):
        permits.ask(f"a{number}", tenant="a", share=Share(name=f"key_{number}"))
    permits.ask("b0", tenant="b", share=Share(name="key_b"))
    permits.ask("b1", tenant="b", share=Share(name="key_b"))
    assert permits.release("a0") == ("b0",)
    assert permits.release("a1") == ("a2",)
    assert permits.release("b0") == ("b1",)


def test_position_tells_nothing_of_other_tenants() -> None:
    """R78: it counts the own tenant's waiting runs, in the order in which they will go on."""
    permits = Permits(max_running=1, max_queued=200)
    permits.ask("busy", tenant="c")
    for number in range(50):
        permits.ask(f"a{number}", tenant="a")
    assert permits.ask("b0", tenant="b") == PermitQueued(ahead=0)
    permits.ask("b1", tenant="b", share=Share(name="one"))
    permits.ask("b2", tenant="b", share=Share(name="one"))
    permits.ask("b3", tenant="b", share=Share(name="two"))
    assert [permits.find_position(f"b{number}") for number in range(4)] == [1, 2, 4, 3]
    assert permits.find_position("busy") is None
    assert permits.find_position("unknown") is None


def test_key_may_have_so_many_waiting_and_others_go_on_asking() -> None:
    """A key's own bound refuses its runs alone, and says that it is the key's."""
    permits = Permits(max_running=1, max_queued=10)
    bounded = Share(name="bounded", max_queued=2)
    permits.ask("a0", share=bounded)
    assert permits.ask("a1", share=bounded) == PermitQueued(ahead=0)
    assert permits.ask("a2", share=bounded) == PermitQueued(ahead=1)
    refused = PermitRefused(running=1, queued=2, of_share=True)
    assert permits.would_refuse(share=bounded) == refused
    assert permits.ask("a3", share=bounded) == refused
    assert permits.ask("b0", share=Share(name="other")) == PermitQueued(ahead=0)


async def test_run_that_waits_for_another_takes_no_place() -> None:
    """What waits for its session's turn lets others go on, and keeps the place that it came for."""
    permits = Permits(max_running=1, max_queued=10)
    assert permits.ask("later", ready=False) == PermitQueued(ahead=0)
    assert permits.running == 0
    assert permits.ask("now") == PermitGranted()
    permits.ask("behind")
    assert [permits.find_position(run_id) for run_id in ("behind", "later")] == [1, 2]
    async with asyncio.TaskGroup() as group:
        turn_came = group.create_task(permits.place("later").acquire())
        await asyncio.sleep(0)
        assert [permits.find_position(run_id) for run_id in ("later", "behind")] == [1, 2]
        assert permits.release("now") == ("later",)
        await turn_came
    permits.place("later").release()
    assert permits.ask("alone", ready=False, tenant="x") == PermitQueued(ahead=0)
    permits.release("behind")
    await asyncio.wait_for(permits.place("alone").acquire(), 30)


@dataclass
class NaiveRun:
    """A run as the naive model knows it."""

    name: str
    tenant: str
    key: str
    ready: bool


class NaiveQueue:
    """The rule in its plainest form: look at everybody, each time."""

    def __init__(self) -> None:
        self.running: list[NaiveRun] = []
        self.queue: list[NaiveRun] = []
        self.grants: list[NaiveRun] = []

    def fits(self, run: NaiveRun) -> bool:
        own = sum(one.key == run.key and one.tenant == run.tenant for one in self.running)
        of_tenant = sum(one.tenant == run.tenant for one in self.running)
        return len(self.running) < MOST and of_tenant < MOST_OF_TENANT and own < MOST_OF_KEY[run.key]

    def turn(self, run: NaiveRun) -> tuple[int, ...]:
        """The smallest is next."""
        return (
            sum(one.tenant == run.tenant for one in self.running),
            self._last_grant(lambda one: one.tenant == run.tenant),
            sum(one.tenant == run.tenant and one.key == run.key for one in self.running),
            self._last_grant(lambda one: one.tenant == run.tenant and one.key == run.key),
            self.queue.index(run),
        )

    def _last_grant(self, is_of: Callable[[NaiveRun], bool]) -> int:
        """How long ago; who left altogether is forgotten."""
        if not any(is_of(one) for one in (*self.running, *self.queue)):
            return 0
        granted = [number for number, one in enumerate(self.grants, 1) if is_of(one)]
        return granted[-1] if granted else 0

    def forget_gone(self) -> None:
        """A key or tenant that has nothing here any more comes back as a new one."""
        here = [*self.running, *self.queue]
        for one in self.grants:
            if not any(other.tenant == one.tenant for other in here):
                one.tenant = "gone"
            elif not any((other.tenant, other.key) == (one.tenant, one.key) for other in here):
                one.key = "gone"

    def grant(self) -> tuple[str, ...]:
        granted: list[str] = []
        while able := [run for run in self.queue if run.ready and self.fits(run)]:
            run = min(able, key=self.turn)
            self.queue.remove(run)
            self.running.append(run)
            self.grants.append(NaiveRun(run.name, run.tenant, run.key, True))
            granted.append(run.name)
        return tuple(granted)


MOST, MOST_OF_TENANT, MOST_QUEUED = 3, 2, 6
MOST_OF_KEY = {"": 3, "k": 3, "one": 1}


class PermitsMachine(RuleBasedStateMachine):
    """Whatever comes and goes: places go as in the naive model, and nobody waits who could go on."""

    def __init__(self) -> None:
        super().__init__()
        self.permits = Permits(
            max_running=MOST, max_queued=MOST_QUEUED, max_running_per_tenant=MOST_OF_TENANT
        )
        self.naive = NaiveQueue()
        self.count = 0

    @rule(tenant=st.sampled_from("abc"), key=st.sampled_from(("", "k", "one")), ready=st.booleans())
    def ask(self, tenant: str, key: str, ready: bool) -> None:
        self.count += 1
        run = NaiveRun(f"r{self.count}", tenant, key, ready)
        share = Share(name=key, max_running=MOST_OF_KEY[key]) if key else None
        refused = self.permits.would_refuse(tenant=tenant, share=share)
        match self.permits.ask(run.name, tenant=tenant, share=share, ready=ready):
            case PermitGranted():
                assert ready
                self.naive.queue.append(run)
                assert self.naive.grant() == (run.name,)
                assert refused is None
            case PermitQueued(ahead=ahead):
                assert not ready or not self.naive.fits(run)
                assert ahead <= sum(one.tenant == tenant for one in self.naive.queue)
                self.naive.queue.append(run)
            case PermitRefused():
                assert len(self.naive.queue) == MOST_QUEUED

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        known = [run.name for run in (*self.naive.running, *self.naive.queue)]
        if not known:
            return
        name = data.draw(st.sampled_from(known))
        self.naive.running = [run for run in self.naive.running if run.name != name]
        self.naive.queue = [run for run in self.naive.queue if run.name != name]
        self.naive.forget_gone()
        assert self.permits.release(name) == self.naive.grant()

    @invariant()
    def bounds_hold(self) -> None:
        naive = self.naive
        assert (self.permits.running, self.permits.queued) == (len(naive.running), len(naive.queue))
        assert len(naive.running) <= MOST
        for tenant in "abc":
            assert sum(run.tenant == tenant for run in naive.running) <= MOST_OF_TENANT
            waiting = [run.name for run in naive.queue if run.tenant == tenant]
            positions = [self.permits.find_position(name) for name in waiting]
            assert sorted(place or 0 for place in positions) == list(range(1, len(waiting) + 1))
        assert not any(run.ready and naive.fits(run) for run in naive.queue)


TestPermitsMachine = PermitsMachine.TestCase
TestPermitsMachine.settings = settings(stateful_step_count=40)
