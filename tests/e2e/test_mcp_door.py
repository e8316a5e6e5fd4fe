"""`/mcp` of a served host, by the SDK's own client: tools, progress, cancel, keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from door_kit import LOOK, PLAN, REVIEW, SLEEP, WORK, WRITE, Door, DoorWorld

pytest.importorskip("mcp", reason="the extra `mcp` isn't installed")
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, TextContent

ERAS = ("legacy", "auto")
"""The handshake with sessions, and the newer form without them."""
SLEEPY = (
    PLAN,
    {**SLEEP, "when": {"contains": "SLEEP"}},
    WRITE,
    WORK,
    REVIEW,
)


@asynccontextmanager
async def connected(door: Door, *, mode: str, secret: str | None = None) -> AsyncGenerator[Client]:
    """The SDK's client, with a key."""
    headers = {"Authorization": f"Bearer {secret or door.secret}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
        transport = streamable_http_client(f"{door.base_url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


def said(result: CallToolResult, number: int = 0) -> str:
    """A text of the answer."""
    part = result.content[number]
    assert isinstance(part, TextContent)
    return part.text


async def until_running(door: Door) -> str:
    """The id of the one run, once its tool goes on."""
    async with door.client() as http:
        for _ in range(400):
            work = (await http.get("/api/v1/work")).json()["data"]
            if any(one["kind"] == "tool" for one in work):
                runs = (await http.get("/api/v1/runs")).json()["data"]
                return runs[0]["id"]
            await asyncio.sleep(0.05)
    raise AssertionError("no tool was started")


async def ended(door: Door, run_id: str) -> dict[str, Any]:
    async with door.client() as http:
        for _ in range(400):
            view = (await http.get(f"/api/v1/runs/{run_id}")).json()
            if view["ended_at"]:
                return view
            await asyncio.sleep(0.05)
    raise AssertionError("the run didn't end")


@pytest.mark.parametrize("mode", ERAS)
async def test_a_run_is_a_tool_call(tmp_path: Path, mode: str) -> None:
    """A run by MCP is the same run as by HTTP: one id, its output, its patch; progress is told on the way."""
    told: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async with DoorWorld(home=tmp_path, replies=(PLAN, LOOK, WRITE, WORK, REVIEW)).open() as door:
        async with connected(door, mode=mode) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert names == {"run", "get_run", "cancel_run"}
            result = await client.call_tool(
                "run", {"binding": "reviewed", "prompt": "Mend it."}, progress_callback=on_progress
            )
            assert not result.is_error
            run = result.structured_content
            assert (run["status"], run["output"]) == ("completed", "It is mended.")
            assert said(result).startswith("It is mended.")
            assert run["delivery"]["mode"] == "patch"
            shown = await client.call_tool("get_run", {"run_id": run["id"], "include_patch": True})
            assert shown.structured_content == run
            assert "+new" in said(shown, 1)
        async with door.client() as http:
            assert (await http.get(f"/api/v1/runs/{run['id']}")).json() == run
    numbers = [number for number, _ in told]
    assert numbers == sorted(set(numbers))
    messages = [message or "" for _, message in told]
    assert messages[0] == f"Run {run['id']}."
    assert {"Planning.", "Working.", "Reviewing."} <= set(messages)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_cancelled_request_cancels_its_run(tmp_path: Path, mode: str) -> None:
    """R10: who cancels the call stops the run and its tool's process, and the connection serves on."""
    async with DoorWorld(home=tmp_path, replies=SLEEPY).open() as door, connected(door, mode=mode) as client:
        calling = asyncio.get_running_loop().create_task(
            client.call_tool("run", {"binding": "reviewed", "prompt": "SLEEP"})
        )
        run_id = await until_running(door)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        run = await ended(door, run_id)
        assert (run["status"], run["terminal"]["code"]) == ("cancelled", "caller")
        assert run["cancel"]["complete"] is True
        result = await client.call_tool("run", {"binding": "reviewed", "prompt": "Write."})
        assert result.structured_content["status"] == "completed"


async def test_a_detached_run_is_looked_at_and_stopped(tmp_path: Path) -> None:
    """`detach` answers at once; `get_run` waits no longer than it is told; `cancel_run` gives the receipt."""
    async with (
        DoorWorld(home=tmp_path, replies=SLEEPY).open() as door,
        connected(door, mode="auto") as client,
    ):
        begun = await client.call_tool("run", {"binding": "reviewed", "prompt": "SLEEP", "detach": True})
        run_id = begun.structured_content["id"]
        await until_running(door)
        looked = await client.call_tool("get_run", {"run_id": run_id, "wait_ms": 50})
        assert looked.structured_content["status"] == "working"
        stopped = await client.call_tool("cancel_run", {"run_id": run_id, "reason": "enough"})
        assert stopped.structured_content["changed"] is True
        assert stopped.structured_content["receipt"]["reason"] == "enough"
        result = await client.call_tool("get_run", {"run_id": run_id})
        assert result.is_error
        assert result.structured_content["terminal"]["code"] == "caller"


async def test_what_is_wrong_is_the_calls_result(tmp_path: Path) -> None:
    """A wrong argument, an unknown run or tool is told to the model that asked, and nothing is started."""
    async with DoorWorld(home=tmp_path).open() as door, connected(door, mode="auto") as client:
        for name, arguments, words in (
            ("run", {"prompt": "x", "bindng": "y"}, "bindng"),
            ("run", {"prompt": "x", "limits": {"max_cost_usd": -1}}, "max_cost_usd"),
            ("run", {"prompt": "x", "binding": "nope"}, "nope"),
            ("get_run", {"run_id": "run_nope"}, "no run `run_nope`"),
            ("cancel_run", {"run_id": "run_nope"}, "run_nope"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error, name
            assert words in said(result)
        async with door.client() as http:
            assert (await http.get("/api/v1/runs")).json()["data"] == []


async def test_a_stranger_sees_nothing(tmp_path: Path) -> None:
    """R78: without a key nothing is answered; another's run and another key's session don't exist."""
    async with DoorWorld(home=tmp_path, replies=(PLAN, LOOK, WORK, REVIEW)).open() as door:
        other = await door.add_key("other", tenant="t2")
        reader = await door.add_key("reader", scopes=("read",))
        initialize = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        }
        accept = {"Accept": "application/json, text/event-stream"}
        async with door.client("") as http:
            for method in ("GET", "POST", "DELETE", "PUT"):
                answer = await http.request(method, "/mcp", json=initialize, headers=accept)
                assert answer.status_code == 401, method
        async with door.client() as http:
            assert (await http.put("/mcp", json={})).status_code == 405
            assert (
                await http.post("/mcp", content=b"x", headers={"Content-Type": "text/plain"})
            ).status_code == 415
            foreign = {**accept, "Origin": "http://evil.example"}
            assert (await http.post("/mcp", json=initialize, headers=foreign)).status_code == 403
            opened = await http.post("/mcp", json=initialize, headers=accept)
            session = {**accept, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            assert (await http.post("/mcp", json=ping, headers=session)).status_code == 200
            async with door.client(other) as stranger:
                assert (await stranger.post("/mcp", json=ping, headers=session)).status_code == 404
        async with connected(door, mode="auto") as client:
            run = (
                await client.call_tool("run", {"binding": "reviewed", "prompt": "Mend."})
            ).structured_content
        async with connected(door, mode="auto", secret=other) as client:
            known = await client.call_tool("get_run", {"run_id": run["id"]})
            unknown = await client.call_tool("get_run", {"run_id": "run_x"})
            assert known.is_error
            assert said(known).replace(run["id"], "") == said(unknown).replace("run_x", "")
        async with connected(door, mode="auto", secret=reader) as client:
            refused = await client.call_tool("run", {"binding": "reviewed", "prompt": "Mend."})
            assert "scope `run`" in said(refused)
            assert not (await client.call_tool("get_run", {"run_id": run["id"]})).is_error


async def test_a_message_without_a_type_is_a_problem(tmp_path: Path) -> None:
    """R73: what isn't JSON is refused in the door's form, also where there is no body at all."""
    async with DoorWorld(home=tmp_path).open() as door, door.client() as http:
        answer = await http.post("/mcp")
        assert (answer.status_code, answer.headers["content-type"]) == (415, "application/problem+json")
        assert answer.json()["code"] == "unsupported_media"


async def test_a_wrong_key_is_told(tmp_path: Path) -> None:
    """R77: the SDK's client with a key that nobody knows gets an error, not a hang."""
    async with DoorWorld(home=tmp_path).open() as door:
        with pytest.raises((MCPError, ExceptionGroup)):
            async with connected(door, mode="legacy", secret="rk_" + "x" * 43):
                pass
