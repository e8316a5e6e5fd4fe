"""What holds a run back, and which barrier its end waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from remit.contract import CleanupRequest, RunStatus
from remit.errors import ProviderError
from remit.events import TERMINAL_TYPES
from remit.runs import RunControl, RunTimes
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import PoolReply
from remit.testing._run_world import BLOCK, PLAN, RunWorld, good_replies, run_world
from remit.work import Residencies

TREE = {"a.txt": "old\n"}
WORKED = good_replies()[:2]


async def ended(world: RunWorld, run_id: str) -> bool:
    """Whether the terminal is in the log."""
    return any(event.type in TERMINAL_TYPES for event in await world.events(run_id))


async def types(world: RunWorld, run_id: str) -> list[str]:
    """The types of the run's events."""
    return [event.type for event in await world.events(run_id)]


async def until_asked(node: FakeNode, kind: str) -> None:
    """Wait until the node was asked for this."""
    async with asyncio.timeout(10):
        while kind not in node.kinds():
            await asyncio.sleep(0.001)


def kept(node: FakeNode) -> bool:
    """Whether the last that the node was asked for was to keep the checkout."""
    last = node.requests[-1]
    return isinstance(last, CleanupRequest) and last.keep


async def a_while() -> None:
    """Long enough for whatever doesn't wait."""
    for _ in range(50):
        await asyncio.sleep(0)


def of_host(world: RunWorld, run_id: str) -> tuple[RunControl, Residencies]:
    """The run's control, and a host's residencies above its own."""
    control, host = world.controls[run_id], Residencies()
    control.residencies._parent = host
    return control, host


async def test_residencies_name_what_goes_on() -> None:
    """M8: pipeline, stage, tool call and checkout each hold the run, by label, and the host with it."""
    async with run_world(PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls")) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        control, host = of_host(world, run_id)
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await world.node.blocked.wait()
            held = {"checkout": 1, "pipeline": 1, "stage": 1, "tool": 1}
            assert control.residencies.by_label() == held
            assert host.by_label() == held
            world.cancel(run_id)
            await driving
        assert control.residencies.count == host.count == 0


async def test_a_delivery_holds_the_run() -> None:
    """A delivery that is under way is a residency of its own label."""
    node = FakeNode(TREE)
    node.gates["deliver"] = asyncio.Event()
    async with run_world(*good_replies(), node=node) as world:
        supervisor = await world.admit()
        control = next(iter(world.controls.values()))
        async with asyncio.TaskGroup() as group:
            group.create_task(world.supervise(supervisor))
            await until_asked(node, "deliver")
            assert control.residencies.by_label()["delivery"] == 1
            node.gates["deliver"].set()
        assert control.residencies.count == 0


class CountingLedger:
    """Notes what still held the run whenever its ledger was read."""

    def __init__(self, world: RunWorld, residencies: Residencies) -> None:
        self.held: list[dict[str, int]] = []
        read = world.store.read_attempts

        async def read_attempts(*args: Any, **more: Any) -> Sequence[Any]:
            self.held.append(residencies.by_label())
            return await read(*args, **more)

        world.store.read_attempts = read_attempts  # type: ignore[method-assign] - a stand-in


@pytest.mark.parametrize("cancelled", [False, True])
async def test_usage_waits_for_the_residencies(cancelled: bool) -> None:
    """M2: the ledger isn't read, and no terminal written, while something holds the run; then it is, once."""
    async with run_world(*good_replies()) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        control = world.controls[run_id]
        ledger = CountingLedger(world, control.residencies)
        late = control.residencies.acquire("usage_writer")
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            if cancelled:
                await until_asked(world.node, "prepare")
                world.cancel(run_id)
            while control.final is None and "run.settling" not in await types(world, run_id):
                await asyncio.sleep(0.001)
            await a_while()
            assert ledger.held == []
            assert not await ended(world, run_id)
            late.release()
            view = await driving
        assert ledger.held == [{}]
        assert view.status is (RunStatus.CANCELLED if cancelled else RunStatus.COMPLETED)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_is_kept_is_awaited_after_a_cancel_only(cancelled: bool) -> None:
    """M9, M22, M35: the barrier hangs on whether a cancel was asked for by the time the end is known."""
    async with run_world(*good_replies()) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        kept = world.controls[run_id].residencies.acquire("archive", kept=True)
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            if cancelled:
                await until_asked(world.node, "prepare")
                world.cancel(run_id)
                while "run.settling" not in await types(world, run_id):
                    await asyncio.sleep(0.001)
                await a_while()
                assert not await ended(world, run_id)
                kept.release()
            view = await driving
        assert view.status is (RunStatus.CANCELLED if cancelled else RunStatus.COMPLETED)
        assert kept.held is not cancelled


async def test_a_kept_checkout_is_not_waited_for() -> None:
    """M9: no cancel: the terminal is durable while the checkout that is kept is still being put away."""
    node = FakeNode(TREE)
    node.gates["cleanup"] = asyncio.Event()
    async with run_world(*WORKED, ProviderError("no", reason="auth"), node=node) as world:
        supervisor = await world.admit(preserve="failed")
        run_id = next(iter(world.controls))
        control = world.controls[run_id]
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await until_asked(node, "cleanup")
            assert await ended(world, run_id)
            assert control.residencies.by_label() == {"checkout": 1, "node_call": 1}
            assert not control.ended.is_set(), "nothing of the run goes on once it is said to have ended"
            node.gates["cleanup"].set()
            view = await driving
        assert view.status is RunStatus.FAILED
        assert kept(node)
        assert control.residencies.count == 0


async def test_a_cancelled_run_waits_for_a_kept_checkout_too() -> None:
    """M22, M35: a cancel was asked for: all residencies are awaited, the kept checkout's among them."""
    node = FakeNode(TREE)
    node.gates["cleanup"] = asyncio.Event()
    async with run_world(
        PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls"), node=node
    ) as world:
        supervisor = await world.admit(preserve="always")
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await node.blocked.wait()
            world.cancel(run_id)
            await until_asked(node, "cleanup")
            await a_while()
            assert not await ended(world, run_id)
            node.gates["cleanup"].set()
            view = await driving
        assert view.status is RunStatus.CANCELLED
        assert kept(node)


async def test_what_is_never_given_up_is_named() -> None:
    """A residency that outlives the bound is abandoned by name: lost, and it holds nothing back any more."""
    times = RunTimes(link_grace_ms=0, drain_slack_ms=50)
    async with run_world(*good_replies(), times=times) as world:
        supervisor = await world.admit()
        control = next(iter(world.controls.values()))
        control.residencies.acquire("usage_writer")
        view = await world.supervise(supervisor)
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("lost", "not_stopped")
        assert [item.label for item in view.abandoned] == ["usage_writer"]
        assert control.residencies.count == 0


async def test_a_kept_checkout_that_cannot_be_put_away() -> None:
    """After the terminal a failure changes nothing of the end; it stands in the host log."""
    times = RunTimes(link_grace_ms=0, drain_slack_ms=100)
    node = FakeNode(TREE)
    node.gates["cleanup"] = asyncio.Event()
    async with run_world(*WORKED, ProviderError("no", reason="auth"), node=node, times=times) as world:
        view = await world.drive(preserve="failed")
        node.gates["cleanup"].set()
        assert view.terminal is not None
        assert view.terminal.class_ == "provider"
        assert [entry.type for entry in await world.store.read_history(view.id)] == ["checkout.left"]
        assert world.controls[view.id].residencies.count == 0


async def test_residency_that_becomes_kept() -> None:
    """Whoever waits for all but the kept ones goes on when the last other one becomes kept, above too."""
    host = Residencies()
    run = Residencies(parent=host)
    residency = run.acquire("checkout")
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(one.wait_drained()) for one in (run, host)]
        every = group.create_task(run.wait_all_drained())
        await a_while()
        assert not any(wait.done() for wait in waits)
        residency.keep()
        await a_while()
        assert all(wait.done() for wait in waits)
        assert not every.done()
        assert run.abandon() == {"checkout": 1}
        await a_while()
        assert every.done()
    assert host.count == 0
