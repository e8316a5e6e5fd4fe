"""The in-process link to a node."""

from __future__ import annotations

import asyncio

import pytest

from remit.contract import (
    ArtifactRequest,
    ArtifactStored,
    NodeFailure,
    NodeRequest,
    NodeResponse,
    ToolRequest,
    ToolResponse,
)
from remit.errors import NodeError, StaleGeneration
from remit.nodes import InProcessLink


def tool(run_id: str, call_id: str = "c1", stage_id: str = "work-1") -> ToolRequest:
    return ToolRequest(
        run_id=run_id,
        stage_id=stage_id,
        tool_call_id=call_id,
        name="read_file",
        arguments="{}",
        timeout_ms=1000,
        remaining_ms=1000,
    )


def answer(request: ToolRequest, *, content: str = "", stage_id: str | None = None) -> ToolResponse:
    return ToolResponse(
        run_id=request.run_id,
        stage_id=stage_id or request.stage_id,
        tool_call_id=request.tool_call_id,
        status="success",
        content=content,
        receipt_id="r",
    )


class Node:
    """A node that answers when it is let."""

    def __init__(self) -> None:
        self.requests: list[NodeRequest] = []
        self.gate = asyncio.Event()
        self.arrived = asyncio.Event()
        self.wrong_stage = False
        self.link: InProcessLink | None = None
        self.pending_at_arrival: list[int] = []

    async def handle(self, request: NodeRequest) -> NodeResponse:
        self.requests.append(request)
        self.arrived.set()
        if self.link is not None:
            self.pending_at_arrival.append(self.link.pending_count(request.run_id))
        if isinstance(request, ArtifactRequest):
            return ArtifactStored(run_id=request.run_id, name=request.name, sha256="0")
        assert isinstance(request, ToolRequest)
        if request.name == "stale":
            return NodeFailure(run_id=request.run_id, reason="stale_generation", message="old")
        if request.name == "crash":
            raise ZeroDivisionError
        await self.gate.wait()
        return answer(request, content=request.run_id, stage_id="other" if self.wrong_stage else None)


async def test_equal_call_ids_of_two_runs_do_not_collide() -> None:
    """S45, S46, S47, S53: waiters are there before the request arrives, keyed by run, and gone afterwards."""
    node = Node()
    async with asyncio.timeout(30), InProcessLink(node) as link, asyncio.TaskGroup() as group:
        node.link = link
        one = group.create_task(link.tool(tool("run_a")))
        two = group.create_task(link.tool(tool("run_b")))
        while len(node.requests) < 2:
            await asyncio.sleep(0)
        assert node.pending_at_arrival == [1, 1]
        assert link.pending_count() == 2
        assert link.pending_count("run_a") == 1
        node.gate.set()
        assert (await one).content == "run_a"
        assert (await two).content == "run_b"
        assert link.pending_count() == 0


async def test_a_blocked_tool_does_not_delay_another_call() -> None:
    """S51: another request on the same link is answered while a tool call is blocked."""
    node = Node()
    async with asyncio.timeout(30), InProcessLink(node) as link, asyncio.TaskGroup() as group:
        blocked = group.create_task(link.tool(tool("run_a")))
        await node.arrived.wait()
        stored = await link.artifact(ArtifactRequest(run_id="run_b", name="plan", text="x"))
        assert stored.name == "plan"
        assert not blocked.done()
        node.gate.set()


async def test_a_late_answer_is_dropped_and_counted() -> None:
    """S52, S81: a caller that has gone frees its own waiter only; the late answer harms nobody."""
    node = Node()
    async with asyncio.timeout(30), InProcessLink(node) as link, asyncio.TaskGroup() as group:
        gone = group.create_task(link.tool(tool("run_a")))
        stays = group.create_task(link.tool(tool("run_b")))
        while len(node.requests) < 2:
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait({gone})
        assert link.pending_count("run_a") == 0
        assert link.pending_count("run_b") == 1
        node.gate.set()
        assert (await stays).content == "run_b"
    assert link.waiters.dropped == 1


async def test_an_answer_with_other_ids_is_not_taken() -> None:
    """S47: run, stage and tool call id must all match."""
    node = Node()
    node.wrong_stage = True
    node.gate.set()
    async with InProcessLink(node) as link:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await link.tool(tool("run_a"))
        assert link.waiters.dropped == 1
        assert link.pending_count() == 0


async def test_failures_are_typed() -> None:
    """A stale generation and a node's own fault are told apart; the link lives on."""
    node = Node()
    node.gate.set()
    async with InProcessLink(node) as link:
        with pytest.raises(StaleGeneration):
            await link.tool(tool("run_a").model_copy(update={"name": "stale"}))
        with pytest.raises(NodeError) as caught:
            await link.tool(tool("run_a").model_copy(update={"name": "crash"}))
        assert caught.value.reason == "unavailable"
        assert (await link.tool(tool("run_a"))).content == "run_a"
    with pytest.raises(NodeError):
        await link.tool(tool("run_a"))
