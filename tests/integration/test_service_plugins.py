"""A node's MCP servers, by the requests of the protocol: listed, used once, cancelled, gone with the run."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from git_repository import make_repository
from keeper_places import processes_with
from mcp_kit import LOG, PROGRAM, call_ids, cancel_notices, manners, put_programs
from remit.contract import (
    Cancelled,
    CancelRequest,
    CleanedUp,
    CleanupRequest,
    NodeFailure,
    NodeRequest,
    Opened,
    OpenRequest,
    Prepared,
    PrepareRequest,
    Snapshot,
    SnapshotRequest,
    ToolRequest,
    ToolResponse,
)
from remit.primitives import SystemClock, SystemIds
from remit.workspaces import Checkout, McpServer
from remit.workspaces._mcp_servers import Listings
from remit.workspaces._service import NodeService
from remit.workspaces._settings import WorkspaceSettings

pytest.importorskip("mcp", reason="the extra `mcp` isn't installed")
_Answer = TypeVar("_Answer")


class Node:
    """A node with one workspace that names one server."""

    def __init__(self, service: NodeService) -> None:
        self.service = service

    async def ask(self, request: NodeRequest, shape: type[_Answer]) -> _Answer:
        answer = await self.service.handle(request)
        assert isinstance(answer, shape), answer
        return answer

    async def prepare(self, run_id: str = "run_1") -> Prepared:
        return await self.ask(PrepareRequest(run_id=run_id, workspace_ref="app"), Prepared)

    async def open(self, run_id: str = "run_1") -> Prepared:
        prepared = await self.prepare(run_id)
        await self.ask(OpenRequest(run_id=run_id, workspace_ref="app", base=prepared.base), Opened)
        return prepared

    def request(
        self, name: str, call_id: str, *, stage: str = "work-1", run_id: str = "run_1", text: str = ""
    ) -> ToolRequest:
        return ToolRequest(
            run_id=run_id,
            stage_id=stage,
            tool_call_id=call_id,
            name=name,
            arguments=text,
            timeout_ms=60_000,
            remaining_ms=60_000,
        )

    async def tool(
        self, name: str, call_id: str, *, stage: str = "work-1", run_id: str = "run_1", **arguments: Any
    ) -> ToolResponse:
        text = json.dumps(arguments)
        return await self.ask(
            self.request(name, call_id, stage=stage, run_id=run_id, text=text), ToolResponse
        )

    async def read(self, path: str, call_id: str, run_id: str = "run_1") -> str:
        return (await self.tool("read_file", call_id, run_id=run_id, relative_path=path)).content


@asynccontextmanager
async def node_of(
    folder: Path, *, servers: dict[str, McpServer] | None = None, **settings: Any
) -> AsyncGenerator[Node]:
    root = folder / "repo"
    if not root.exists():
        make_repository(root, {"app.py": "print()\n", ".gitignore": f"{LOG}\n"})
        put_programs(root)
    (folder / "home").mkdir(exist_ok=True)
    workspace = {"ref": "app", "root": root, "shell": True, "checks": [], "mcp": ["notes"], **settings}
    service = await NodeService.start(
        [WorkspaceSettings.model_validate(workspace)],
        data=folder / "data",
        clock=SystemClock(),
        ids=SystemIds(),
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder / "home")},
        servers={"notes": manners()} if servers is None else servers,
    )
    try:
        yield Node(service)
    finally:
        await service.aclose()


async def test_tools_are_known_before_anything_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server offers is in the prepared facts, asked for in a scratch checkout, once per base."""
    asked: list[str] = []
    ask = Listings.ask

    async def counted(checkout: Checkout, *details: Any, **more: Any) -> Any:
        asked.append(checkout.checkout_id)
        return await ask(checkout, *details, **more)

    monkeypatch.setattr(Listings, "ask", counted)
    async with node_of(tmp_path) as node:
        prepared = await node.prepare()
        told = {spec.name: spec for spec in prepared.tools if spec.plugin == "notes"}
        assert {"mcp__notes__echo", "mcp__notes__write", "mcp__notes__wait"} <= told.keys()
        assert told["mcp__notes__echo"].effect == "read"
        assert told["mcp__notes__write"].effect == "command"
        assert processes_with(PROGRAM) == []
        assert node.service.opened_count == 0
        again = await node.prepare("run_2")
        assert again.tools == prepared.tools
        assert len(asked) == 1
        (tmp_path / "repo/app.py").write_text("print(1)\n")
        assert (await node.prepare("run_3")).tools == prepared.tools
        assert len(asked) == 2
        assert list((tmp_path / "data/checkouts").iterdir()) == []


async def test_a_tool_that_cannot_be_told_is_noted(tmp_path: Path) -> None:
    """A tool with a schema that no model can be given is left out, and the run's notes say so."""
    async with node_of(tmp_path, servers={"notes": manners("odd")}) as node:
        prepared = await node.prepare()
        assert "mcp__notes__odd" not in {spec.name for spec in prepared.tools}
        assert any("odd" in note and "at most" in note for note in prepared.notes)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (manners("broken"), "cannot find my settings"),
        (McpServer(command="no-such-program"), "no-such-program"),
        (manners("mute", start_timeout_ms=400), "didn't answer within 400 ms"),
    ],
)
async def test_a_server_that_fails_ends_the_preparation(tmp_path: Path, server: McpServer, said: str) -> None:
    """A run whose tools can't be had isn't begun: said before the first provider call."""
    async with node_of(tmp_path, servers={"notes": server}) as node:
        failure = await node.ask(PrepareRequest(run_id="run_1", workspace_ref="app"), NodeFailure)
        assert failure.reason == "unavailable"
        assert said in failure.message
        assert processes_with(PROGRAM) == []
        assert list((tmp_path / "data/checkouts").iterdir()) == []


async def test_a_server_that_the_node_does_not_have(tmp_path: Path) -> None:
    """A workspace that names a server unknown to the node can't be prepared there."""
    async with node_of(tmp_path, servers={}) as node:
        failure = await node.ask(PrepareRequest(run_id="run_1", workspace_ref="app"), NodeFailure)
        assert (failure.reason, "notes" in failure.message) == ("unavailable", True)


async def test_a_call_works_in_the_runs_own_checkout(tmp_path: Path) -> None:
    """A server's writes are part of the run's patch, and of no other run's; the user's tree stays."""
    async with node_of(tmp_path) as node:
        await node.open("run_1")
        await node.open("run_2")
        done = await node.tool("mcp__notes__write", "c1", path="made.txt", text="one\n")
        assert (done.status, done.content, done.effect) == ("success", "written", "command")
        assert await node.read("made.txt", "c2") == "one\n"
        other = await node.tool("read_file", "c1", run_id="run_2", relative_path="made.txt")
        assert other.status == "not_found"
        snapshot = await node.ask(SnapshotRequest(run_id="run_1", end_leftovers=True), Snapshot)
        assert [path.path for path in snapshot.paths] == ["made.txt"]
        assert snapshot.leftovers == ()
        assert processes_with(PROGRAM) == []
        assert not (tmp_path / "repo/made.txt").exists()
        again = await node.tool("mcp__notes__echo", "c3", text="up again")
        assert again.content == "up again"


async def test_a_repeat_is_answered_from_the_receipt(tmp_path: Path) -> None:
    """S55: asked again, a call isn't done again, also one that its server says only reads."""
    async with node_of(tmp_path) as node:
        await node.open()
        first = await node.tool("mcp__notes__echo", "c1", text="once")
        second = await node.tool("mcp__notes__echo", "c1", text="once")
        assert (second.content, second.receipt_id) == (first.content, first.receipt_id)
        assert len(call_ids(await node.read(LOG, "c2"), "echo")) == 1


async def test_what_a_crash_leaves_is_unknown(tmp_path: Path) -> None:
    """A call whose node died in the middle is `outcome_unknown` for ever, and isn't sent again."""
    async with node_of(tmp_path) as node:
        await node.open()
        calling = asyncio.get_running_loop().create_task(node.tool("mcp__notes__wait", "c1", seconds=60))
        async with asyncio.timeout(20):
            while not processes_with(PROGRAM):
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        # What a death leaves behind: the receipt's begin without its end.
        node.service._parts.receipts._running.clear()
        repeated = await node.tool("mcp__notes__wait", "c1", seconds=60)
        assert repeated.status == "outcome_unknown"
        calling.cancel()
        await asyncio.wait({calling})


async def test_a_cancelled_call_gets_one_answer_and_its_server_one_notice(tmp_path: Path) -> None:
    """R10: cancelling one call tells its server once, with the right id; the server stays up for the next."""
    async with node_of(tmp_path) as node:
        await node.open()
        assert (await node.tool("mcp__notes__echo", "c0", text="warm")).content == "warm"
        (pid,) = _server_pids()
        calling = asyncio.get_running_loop().create_task(node.tool("mcp__notes__wait", "c1", seconds=60))
        async with asyncio.timeout(20):
            number = 0
            while not call_ids(await node.read(LOG, f"look{number}"), "wait"):
                number += 1
                await asyncio.sleep(0.02)
        request = CancelRequest(run_id="run_1", stage_id="work-1", tool_call_id="c1")
        cancelled = await node.ask(request, Cancelled)
        assert [(item.tool_call_id, item.how) for item in cancelled.items] == [("c1", "notified")]
        assert (await calling).status == "cancelled"
        again = await node.ask(request, Cancelled)
        assert [item.how for item in again.items] == ["already_ended"]
        assert (await node.tool("mcp__notes__echo", "c2", text="on")).content == "on"
        assert _server_pids() == [pid]
        log = await node.read(LOG, "log")
        assert [notice["requestId"] for notice in cancel_notices(log)] == call_ids(log, "wait")


async def test_cancelling_the_run_ends_its_server_alone(tmp_path: Path) -> None:
    """R10, S44: a run's cancel ends its own server; another run of the same server goes on."""
    async with node_of(tmp_path) as node:
        await node.open("run_1")
        await node.open("run_2")
        await node.tool("mcp__notes__echo", "c1", run_id="run_1", text="a")
        await node.tool("mcp__notes__echo", "c1", run_id="run_2", text="b")
        assert len(_server_pids()) == 2
        calling = asyncio.get_running_loop().create_task(node.tool("mcp__notes__wait", "c2", seconds=60))
        await asyncio.sleep(0.3)
        cancelled = await node.ask(CancelRequest(run_id="run_1"), Cancelled)
        assert cancelled.complete
        assert {item.label: item.how for item in cancelled.items}["mcp__notes__wait"] == "notified"
        assert "mcp notes" in {item.label for item in cancelled.items}
        assert (await calling).status == "cancelled"
        assert len(_server_pids()) == 1
        assert (await node.tool("mcp__notes__echo", "c2", run_id="run_2", text="c")).content == "c"
        await node.ask(CleanupRequest(run_id="run_1"), CleanedUp)
        await node.ask(CleanupRequest(run_id="run_2"), CleanedUp)
        assert _server_pids() == []


async def test_nothing_outlives_the_node(tmp_path: Path) -> None:
    """S44: with the node end its servers."""
    async with node_of(tmp_path) as node:
        await node.open()
        await node.tool("mcp__notes__echo", "c1", text="a")
        assert _server_pids()
    assert _server_pids() == []


async def test_planning_gets_none_of_them(tmp_path: Path) -> None:
    """A plan only reads, and what a server says of its own tools is no proof of that."""
    async with node_of(tmp_path) as node:
        await node.open()
        refused = await node.tool("mcp__notes__echo", "c1", stage="plan", text="a")
        assert refused.status == "denied"
        assert _server_pids() == []


@pytest.mark.parametrize("text", ["[]", "{", '{"a":1}{"b":2}', '"x"', '{"text": NaN}'])
async def test_broken_arguments_reach_no_server(tmp_path: Path, text: str) -> None:
    """R31: arguments that are no JSON object are that call's refusal, and nothing is sent."""
    async with node_of(tmp_path) as node:
        await node.open()
        request = node.request("mcp__notes__echo", "c1", text=text)
        assert (await node.ask(request, ToolResponse)).status == "invalid_arguments"
        assert _server_pids() == []


async def test_a_long_result_is_cut_and_can_be_read_on(tmp_path: Path) -> None:
    """A result is bounded as any other tool's; the rest is there for `read_output`."""
    async with node_of(tmp_path) as node:
        await node.open()
        done = await node.tool("mcp__notes__large", "c1", bytes=100_000)
        assert (done.status, done.truncated) == ("success", True)
        assert len(done.content.encode()) <= 16_384
        assert "read_output" in done.content
        rest = await node.tool("read_output", "c2", tool_call_id="c1", offset_bytes=90_000)
        assert "100000" in rest.content


async def test_failures_are_the_calls_own(tmp_path: Path) -> None:
    """A tool's failure, a dead server and a call that takes too long are statuses; the run goes on."""
    async with node_of(tmp_path, max_command_timeout_ms=1_500) as node:
        await node.open()
        failed = await node.tool("mcp__notes__fail", "c1")
        assert (failed.status, failed.content) == ("failed", "it doesn't work")
        dead = await node.tool("mcp__notes__die", "c2")
        assert dead.status == "failed"
        assert "unknown" in dead.content
        late = await node.tool("mcp__notes__wait", "c3", seconds=60)
        assert late.status == "timed_out"
        assert (await node.tool("mcp__notes__echo", "c4", text="on")).content == "on"


def _server_pids() -> list[int]:
    """The interpreters that run the server's program, without the sandbox around each."""
    found: list[int] = []
    for pid in processes_with(PROGRAM):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        if words[0].endswith(b"python3") and os.path.exists(f"/proc/{pid}"):
            found.append(pid)
    return found
