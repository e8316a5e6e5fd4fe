"""Where each piece of a run's work is, as whoever looks at the live work sees it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from remit.contract import RunStatus
from remit.runs import name_in_host
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import FakePool, PoolReply
from remit.testing._run_world import BLOCK, PLAN, RunWorld, good_replies, run_world
from remit.work import ObservedStage, Observer
from work_kit import Kit

TREE = {"a.txt": "old\n"}


def seen_now(world: RunWorld) -> dict[str, str]:
    """Kind of each piece of live work -> where it is now; what is nowhere in particular isn't there."""
    return {
        snapshot.kind.value
        if snapshot.kind.value != "node_call"
        else snapshot.label: snapshot.observation.stage
        for _, snapshot in world.registry.active_all()
        if snapshot.observation is not None
    }


async def until_asked(node: FakeNode, kind: str) -> None:
    """Wait until the node was asked for this."""
    async with asyncio.timeout(30):
        while kind not in node.kinds():
            await asyncio.sleep(0.001)


def record(world: RunWorld) -> dict[str, list[str]]:
    """Label of each piece of work -> where it was seen, in order; filled while the world goes on."""
    told: dict[str, list[str]] = defaultdict(list)
    observe = world.registry.observe

    def noting(token: Any, stage: ObservedStage) -> Any:
        entry, _ = token.unseal()
        assert entry is not None
        told[entry.spec.label].append(stage.value)
        return observe(token, stage)

    world.registry.observe = noting
    return told


def test_an_observer_moves_one_registration() -> None:
    """B22, B26: from stage to stage; once that registration is replaced, gone or moved by others, no more."""
    kit = Kit()
    assert Observer(kit.registry, "s", "unknown").see(ObservedStage.DISPATCH) is None
    kit.add("a")
    observer = Observer(kit.registry, "s", "a")
    for stage in (ObservedStage.DISPATCH, ObservedStage.RECEIPT_WAIT, ObservedStage.DISPATCH):
        observer.see(stage)
        assert kit.registry.observation_page("s").entries[0].stage is stage
    token = kit.registry.observation_token("s", "a")
    assert token is not None
    kit.registry.observe(token, ObservedStage.CLEANUP)
    observer.see(ObservedStage.RETIREMENT)
    assert kit.registry.observation_page("s").entries[0].stage is ObservedStage.CLEANUP
    kit.add("a")
    observer.see(ObservedStage.RETIREMENT)
    assert kit.registry.observation_page("s").entries[0].stage is None
    kit.registry.finish("s", "a")
    observer.see(ObservedStage.RETIREMENT)
    assert kit.registry.active_count() == 0


async def test_where_the_work_of_a_run_is_seen() -> None:
    """B22: sent, then its answer awaited; the run itself only once its end is decided, a stage nowhere."""
    node = FakeNode({"a.txt": "old\n"}, checks={"tests": lambda files: 0})
    async with run_world(*good_replies(), node=node) as world:
        told = record(world)
        view = await world.drive()
        assert view.status is RunStatus.COMPLETED
    attempt = ["dispatch", "receipt_wait"]
    assert told == {
        "prepare": ["receipt_wait"],
        "fake:model": attempt * 4,
        "artifact plan": ["receipt_wait"],
        "open": ["dispatch", "receipt_wait"],
        "write_file: a.txt": ["dispatch", "receipt_wait"],
        "snapshot": ["receipt_wait"] * len(told["snapshot"]),
        "checks": ["receipt_wait"],
        "deliver": ["receipt_wait"],
        "cleanup": ["cleanup"],
        "run": ["cleanup", "retirement"],
    }


async def test_a_tool_call_that_is_being_stopped() -> None:
    """B23, B43: it waits for its answer, then it is being stopped; the run follows, then its checkout."""
    node = FakeNode(TREE)
    stopping, closing = asyncio.Event(), asyncio.Event()
    async with run_world(
        PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls"), node=node
    ) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await node.blocked.wait()
            assert seen_now(world) == {"tool": "receipt_wait"}
            node.gates["cancel"] = stopping
            node.gates["cleanup"] = closing
            world.cancel(run_id)
            await until_asked(node, "cancel")
            assert seen_now(world) == {"tool": "cleanup"}
            (tool,) = [
                found
                for found in world.registry.snapshot(name_in_host("local", run_id))
                if found.kind.value == "tool"
            ]
            assert (tool.status, tool.observation is not None) == ("cancelling", True)
            stopping.set()
            await until_asked(node, "cleanup")
            assert seen_now(world) == {"run": "cleanup", "cleanup": "cleanup"}
            closing.set()
        assert driving.result().status is RunStatus.CANCELLED
        assert world.registry.active_count() == 0


async def test_a_preparation_that_is_being_stopped() -> None:
    """B23: what the node was asked for waits for its answer, and is then being stopped."""
    node = FakeNode(TREE)
    preparing, stopping = asyncio.Event(), asyncio.Event()
    node.gates |= {"prepare": preparing, "cancel": stopping}
    async with run_world(*good_replies(), node=node) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await until_asked(node, "prepare")
            assert seen_now(world) == {"prepare": "receipt_wait"}
            world.cancel(run_id)
            await until_asked(node, "cancel")
            assert seen_now(world) == {"prepare": "cleanup"}
            stopping.set()
        assert driving.result().status is RunStatus.CANCELLED


@pytest.mark.parametrize("stopped", [False, True])
async def test_an_attempt_in_flight(stopped: bool) -> None:
    """B22: its reply is awaited once it was sent; stopped by hand it is being stopped."""
    gate = asyncio.Event()
    replies = (PoolReply(text=PLAN, gate=gate), *good_replies()[1:])
    async with run_world(*replies) as world:
        told = record(world)
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            assert isinstance(world.pool, FakePool)
            await world.pool.begun.wait()
            assert seen_now(world) == {"model_turn": "receipt_wait"}
            if stopped:
                world.cancel(run_id)
            else:
                gate.set()
        assert driving.result().status is (RunStatus.CANCELLED if stopped else RunStatus.COMPLETED)
        assert told["fake:model"][:3] == ["dispatch", "receipt_wait", "cleanup" if stopped else "dispatch"]
