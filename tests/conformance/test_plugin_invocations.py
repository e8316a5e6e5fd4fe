"""Calls of MCP servers' tools, from the host's side: how they are registered, and how cancelled."""

from __future__ import annotations

import asyncio

from remit.contract import CancelRequest, RunStatus, WorkKind
from remit.testing._fake_node import PLUGIN_TOOL, FakeNode
from remit.testing._fakes_stages import FakePool, PoolReply
from remit.testing._run_world import PASS, PLAN, WORK, WRITE, RunWorld, run_world
from remit.work import InvocationHandle

LOOK = ("c1", PLUGIN_TOOL.name, '{"command": "block"}')
LOOK_ONCE = ("c1", PLUGIN_TOOL.name, "{}")


def plugin_node() -> FakeNode:
    return FakeNode({"a.txt": "old\n"}, plugins=(PLUGIN_TOOL,))


def replies(*calls: tuple[str, str, str]) -> tuple[PoolReply, ...]:
    return (
        PoolReply(text=PLAN),
        PoolReply(calls=list(calls), finish="tool_calls"),
        PoolReply(text=WORK),
        PoolReply(text=PASS),
    )


def cancels(world: RunWorld) -> list[tuple[str | None, str | None]]:
    """Which single calls the node was asked to stop."""
    return [
        (request.stage_id, request.tool_call_id)
        for request in world.node.requests
        if isinstance(request, CancelRequest) and request.tool_call_id is not None
    ]


async def test_a_call_is_a_plugin_invocation_below_its_stage() -> None:
    """B4, B55, B71: its item has that kind, the server's name, the call's id, its stage, and a token."""
    async with run_world(*replies(LOOK), node=plugin_node()) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await world.node.blocked.wait()
            spec = world.registry.find_spec(run_id, f"{run_id}.work-1.c1")
            assert spec is not None
            assert (spec.kind, spec.label, spec.plugin_id, spec.tool_call_id, spec.parent_work_id) == (
                WorkKind.PLUGIN_INVOCATION,
                f"{PLUGIN_TOOL.name}: block",
                "notes",
                "c1",
                f"{run_id}.work-1",
            )
            assert isinstance(spec.handle, InvocationHandle)
            (seen,) = [item for item in world.registry.snapshot(run_id) if item.tool_call_id == "c1"]
            assert (seen.kind.value, seen.cancellable) == ("plugin_invocation", True)
            world.cancel(run_id)
            view = await driving
        assert view.status is RunStatus.CANCELLED
        assert world.registry.active_count() == 0


async def test_a_cancelled_run_stops_each_call_once() -> None:
    """R10: the node is asked once to stop the call, and the receipt says how it was stopped."""
    async with run_world(*replies(LOOK), node=plugin_node()) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await world.node.blocked.wait()
            world.cancel(run_id)
            view = await driving
        assert cancels(world) == [("work-1", "c1")]
        assert view.cancel is not None
        (item,) = [item for item in view.cancel.items if item.kind == "plugin_invocation"]
        assert (item.label, item.how) == (f"{PLUGIN_TOOL.name}: block", "term")
        assert world.link.pending_count() == 0


async def test_cancelling_the_one_call_lets_the_run_go_on() -> None:
    """R10, B55: tripping the call's token stops that call alone, once; the run goes on to its end."""
    plan, look, *rest = replies(LOOK)
    write = PoolReply(calls=[("c2", *WRITE[1:])], finish="tool_calls")
    async with run_world(plan, look, write, *rest, node=plugin_node()) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await world.node.blocked.wait()
            assert world.registry.cancel(run_id, f"{run_id}.work-1.c1")
            assert world.registry.cancel(run_id, f"{run_id}.work-1.c1") == []
            view = await driving
        assert view.status is RunStatus.COMPLETED
        assert cancels(world) == [("work-1", "c1")]
        ends = [event.data for event in await world.events(run_id) if event.type == "tool.completed"]
        assert (ends[0]["name"], ends[0]["status"]) == (PLUGIN_TOOL.name, "cancelled")


async def test_a_call_that_ends_by_itself_leaves_nothing_waiting() -> None:
    """R10: a call that came to its end is never cancelled; its item is closed and no task is left."""
    async with run_world(*replies(LOOK_ONCE), node=plugin_node()) as world:
        before = len(asyncio.all_tasks())
        view = await world.drive()
        assert view.status is RunStatus.COMPLETED
        assert cancels(world) == []
        assert world.registry.active_count() == 0
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) <= before


async def test_work_and_review_get_them_and_planning_does_not() -> None:
    """S18: the tools of servers are told to work and review, never to a plan, whatever they are marked."""
    async with run_world(*replies(LOOK_ONCE), node=plugin_node()) as world:
        await world.drive()
        assert isinstance(world.pool, FakePool)
        told = {request.stage_id: {spec.name for spec in request.tools} for request in world.pool.requests}
        assert PLUGIN_TOOL.name not in told["plan"]
        assert PLUGIN_TOOL.name in told["work-1"]
        assert PLUGIN_TOOL.name in told["review-1"]
