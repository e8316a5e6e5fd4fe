"""What every link to a node does alike: one suite for the link in process and the one over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from remit.contract import (
    ArtifactRequest,
    ArtifactStored,
    Cancelled,
    CancelRequest,
    CleanedUp,
    CleanupRequest,
    NodeFailure,
    NodeRequest,
    NodeResponse,
    RunStatus,
    StoppedCall,
    ToolRequest,
    ToolResponse,
)
from remit.errors import InternalError, NodeError, StaleGeneration
from remit.nodes import AskingLink
from remit.nodes.wire import Ping, Pong, SocketLink
from remit.testing._run_world import good_replies, run_world
from remit.testing._wired_node import LinkKind, linked, wired

HALF_A_PAIR = "\ud83d"


class Node:
    """Answers by the name of a tool; `block` waits until it is let."""

    def __init__(self) -> None:
        self.requests: list[NodeRequest] = []
        self.cancelled: list[str] = []
        self.gate = asyncio.Event()
        self.blocked = asyncio.Event()

    async def handle(self, request: NodeRequest) -> NodeResponse:
        self.requests.append(request)
        match request:
            case ArtifactRequest():
                return ArtifactStored(run_id=request.run_id, name=request.name, sha256=str(len(request.text)))
            case CancelRequest():
                self.cancelled.append(request.tool_call_id or "")
                item = StoppedCall(
                    stage_id="work-1", tool_call_id="c1", label="run", how="kill", ms=3, pids=(7, 8)
                )
                return Cancelled(run_id=request.run_id, complete=True, items=(item,))
            case CleanupRequest():
                return CleanedUp(run_id="somebody else's")
            case ToolRequest():
                return await self._use(request)
            case _:
                raise ZeroDivisionError

    async def _use(self, request: ToolRequest) -> NodeResponse:
        match request.name:
            case "stale":
                return NodeFailure(run_id=request.run_id, reason="stale_generation", message="old")
            case "full":
                return NodeFailure(run_id=request.run_id, reason="too_large", message="too much")
            case "crash":
                raise ZeroDivisionError
            case "other_shape":
                return ArtifactStored(run_id=request.run_id, name="x", sha256="")
            case "block":
                self.blocked.set()
                await self.gate.wait()
            case _:
                pass
        return ToolResponse(
            run_id=request.run_id,
            stage_id="other" if request.name == "other_stage" else request.stage_id,
            tool_call_id=request.tool_call_id,
            status="success",
            content=f"{request.arguments}\0\u2028{request.name}",
            receipt_id="r",
        )


def tool(
    name: str = "read_file", *, run_id: str = "run_a", call_id: str = "c1", text: str = "{}"
) -> ToolRequest:
    return ToolRequest(
        run_id=run_id,
        stage_id="work-1",
        tool_call_id=call_id,
        name=name,
        arguments=text,
        timeout_ms=1000,
        remaining_ms=1000,
    )


@pytest.fixture(params=["in_process", "socket"])
def kind(request: pytest.FixtureRequest) -> LinkKind:
    return request.param


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
async def link(node: Node, kind: LinkKind) -> AsyncGenerator[AskingLink]:
    async with asyncio.timeout(60), linked(node, kind) as made:
        yield made


async def test_what_is_asked_arrives_and_what_is_answered_comes_back(link: AskingLink, node: Node) -> None:
    """S45, S47: each field of a request and of its answer is the same on both sides."""
    request = tool(text='{"a": "ü\\u0000\u2028"}')
    response = await link.tool(request)
    assert node.requests == [request]
    assert response.content == f"{request.arguments}\0\u2028read_file"
    stopped = await link.cancel(CancelRequest(run_id="run_a", generation=3, grace_ms=5))
    assert stopped.items[0].pids == (7, 8)
    assert (stopped.items[0].how, stopped.items[0].ms) == ("kill", 3)
    assert link.pending_count() == 0


async def test_equal_call_ids_of_two_runs(link: AskingLink, node: Node) -> None:
    """S45, S46, S53: waiters are keyed by run, counted, and gone afterwards."""
    async with asyncio.TaskGroup() as group:
        one = group.create_task(link.tool(tool("block", run_id="run_a")))
        two = group.create_task(link.tool(tool("block", run_id="run_b", text="2")))
        while len(node.requests) < 2:
            await asyncio.sleep(0.001)
        assert (link.pending_count(), link.pending_count("run_a")) == (2, 1)
        node.gate.set()
    assert (one.result().run_id, two.result().run_id) == ("run_a", "run_b")
    assert link.pending_count() == 0


async def test_twenty_at_once_with_one_blocked(link: AskingLink, node: Node) -> None:
    """S51: a blocked tool delays none of the others, nor a cancel of itself."""
    async with asyncio.TaskGroup() as group:
        blocked = group.create_task(link.tool(tool("block", call_id="blocked")))
        await node.blocked.wait()
        others = [group.create_task(link.tool(tool(call_id=f"c{number}"))) for number in range(20)]
        await asyncio.wait(others)
        assert not blocked.done()
        assert (await link.cancel(CancelRequest(run_id="run_a", tool_call_id="blocked"))).complete
        assert not blocked.done()
        node.gate.set()
    assert {task.result().tool_call_id for task in others} == {f"c{number}" for number in range(20)}


async def test_a_late_answer_is_dropped_and_counted(link: AskingLink, node: Node) -> None:
    """S52, S81: who goes away frees its own waiter only; the late answer harms nobody."""
    async with asyncio.TaskGroup() as group:
        gone = group.create_task(link.tool(tool("block", call_id="gone")))
        stays = group.create_task(link.tool(tool("block", call_id="stays")))
        while len(node.requests) < 2:
            await asyncio.sleep(0.001)
        gone.cancel()
        await asyncio.wait({gone})
        assert link.pending_count() == 1
        node.gate.set()
    assert stays.result().tool_call_id == "stays"
    while not link.waiters.dropped:
        await asyncio.sleep(0.001)
    assert link.waiters.dropped == 1


async def test_an_answer_with_other_ids_is_dropped(link: AskingLink) -> None:
    """S47: run, stage and tool call id must all match; the waiter waits on."""
    async with asyncio.TaskGroup() as group:
        strange = [
            group.create_task(link.tool(tool("other_stage"))),
            group.create_task(link.cleanup(CleanupRequest(run_id="run_a"))),
        ]
        while link.waiters.dropped < 2:
            await asyncio.sleep(0.001)
        assert not any(task.done() for task in strange)
        for task in strange:
            task.cancel()
    assert link.pending_count() == 0


async def test_failures_have_their_types(link: AskingLink) -> None:
    """A stale generation, a fault of the node's, what is too large and a wrong answer; the link lives on."""
    with pytest.raises(StaleGeneration):
        await link.tool(tool("stale"))
    with pytest.raises(NodeError, match="ZeroDivisionError") as crashed:
        await link.tool(tool("crash"))
    assert crashed.value.reason == "unavailable"
    with pytest.raises(NodeError, match="too much") as full:
        await link.tool(tool("full"))
    assert full.value.reason == "refused", "a word that a run can end with"
    with pytest.raises(InternalError):
        await link.tool(tool("other_shape"))
    assert (await link.tool(tool())).status == "success"


async def test_the_same_call_twice_at_once_is_refused(link: AskingLink, node: Node) -> None:
    """S46: one waiter a call."""
    async with asyncio.TaskGroup() as group:
        first = group.create_task(link.tool(tool("block")))
        await node.blocked.wait()
        with pytest.raises(InternalError):
            await link.tool(tool("block"))
        node.gate.set()
    assert first.result().status == "success"


@pytest.mark.parametrize("size", [70_000, 5_000_000])
async def test_long_texts_pass(link: AskingLink, size: int) -> None:
    """R46: 70 kB and 5 MB, there and back."""
    assert len((await link.tool(tool(text="x" * size))).content) == size + len("\0\u2028read_file")


async def test_a_whole_run(kind: LinkKind) -> None:
    """S1, S51: a reviewed run is the same over both."""
    async with run_world(*good_replies(), link_kind=kind) as world:
        view = await world.drive()
        assert view.status is RunStatus.COMPLETED
        assert world.node.tree == {"a.txt": "new\n"}
        assert world.link.waiters.dropped == 0
        assert world.link.pending_count() == 0


# ---- what only a wire has


async def test_200_mb_are_one_call_s_error(node: Node) -> None:
    """R46: a record above the maximum is refused cleanly, never leaves, and harms nothing beside it."""
    async with wired(node) as link, asyncio.TaskGroup() as group:
        blocked = group.create_task(link.tool(tool("block", call_id="blocked")))
        await node.blocked.wait()
        with pytest.raises(NodeError) as caught:
            await link.artifact(ArtifactRequest(run_id="run_a", name="plan", text="x" * 200_000_000))
        assert caught.value.reason == "refused"
        assert "67108864" in caught.value.message
        assert len(node.requests) == 1, "it never left"
        node.gate.set()
        assert (await blocked).status == "success"


async def test_an_answer_that_is_too_large(node: Node) -> None:
    """R46: the node says so instead; the call's error names the size."""
    async with asyncio.timeout(60), wired(node, max_record_bytes=400) as link:
        with pytest.raises(NodeError, match="more than a link takes") as caught:
            await link.tool(tool(text="x" * 40 + "\n" * 90))
        assert caught.value.reason == "refused"
        assert (await link.tool(tool())).status == "success"


async def test_text_that_is_no_text(node: Node) -> None:
    """Half of a surrogate pair can't be sent: that call is refused, the next one isn't."""
    async with asyncio.timeout(60), wired(node) as link:
        with pytest.raises(NodeError) as caught:
            await link.tool(tool(text=HALF_A_PAIR))
        assert caught.value.reason == "refused"
        assert link.pending_count() == 0
        assert (await link.tool(tool())).status == "success"


async def test_a_large_answer_holds_up_no_small_one(node: Node) -> None:
    """Bulk goes a frame at a time: a question asked after it, and its answer, pass in between."""
    async with asyncio.timeout(60), wired(node) as link, asyncio.TaskGroup() as group:
        bulk = group.create_task(link.tool(tool(call_id="bulk", text="x" * 60_000_000)))
        await asyncio.sleep(0)
        await link.cancel(CancelRequest(run_id="run_b"))
        assert not bulk.done()
        assert (await bulk).status == "success"


async def test_a_lost_link_and_the_next_node() -> None:
    """What hangs on the checkout is lost at once; a cancel, a delivery and the like ask the next node."""
    link, first, second = SocketLink(ready_within_s=30), Node(), Node()

    async def stuck(request: NodeRequest) -> NodeResponse:
        first.requests.append(request)
        await asyncio.Event().wait()
        raise AssertionError

    first.handle = stuck
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        async with wired(first, link=link):
            used = group.create_task(_outcome(link.tool(tool())))
            stored = group.create_task(
                link.artifact(ArtifactRequest(run_id="run_a", name="plan", text="abc"))
            )
            stopped = group.create_task(link.cancel(CancelRequest(run_id="run_a")))
            while len(first.requests) < 3:
                await asyncio.sleep(0.001)
        assert not link.is_up
        lost = await used
        assert isinstance(lost, NodeError)
        assert lost.reason == "lost"
        assert not stored.done()
        async with wired(second, link=link):
            assert (await stored).sha256 == "3"
            assert (await stopped).complete
            assert (await link.tool(tool())).status == "success"


async def _outcome(asked: object) -> object:
    try:
        return await asked  # type: ignore[misc] - a future of any answer
    except NodeError as error:
        return error


async def test_no_node_comes() -> None:
    """A question waits for a node only so long; a closed link lets nobody wait."""
    link = SocketLink(ready_within_s=0.05)
    with pytest.raises(NodeError) as caught:
        await link.cancel(CancelRequest(run_id="run_a"))
    assert caught.value.reason == "lost"
    patient = SocketLink(ready_within_s=600)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        waiting = group.create_task(_outcome(patient.cancel(CancelRequest(run_id="run_a"))))
        await asyncio.sleep(0)
        patient.close()
    assert isinstance(waiting.result(), NodeError)


async def test_a_heartbeat_is_answered_beside_a_blocked_tool(node: Node) -> None:
    """The node answers for itself, whatever its tools do."""
    async with asyncio.timeout(60), wired(node) as link, asyncio.TaskGroup() as group:
        blocked = group.create_task(link.tool(tool("block")))
        await node.blocked.wait()
        assert isinstance(await link.control(Ping()), Pong)
        assert not blocked.done()
        node.gate.set()
