"""MCP servers in whole runs: real processes, a provider over real HTTP, the command line."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcp_kit import LOG, PROGRAM, PROGRAMS, call_ids, cancel_notices
from whole_kit import MEND, World, calls, gone_within, planned, reviewed, tool, use

pytest.importorskip("mcp", reason="the extra `mcp` isn't installed")


def with_server(world: World, *manners: str, **options: Any) -> None:
    """Give the world's workspace a server `notes`; its program lies in the repository."""
    (world.root / PROGRAM).write_bytes((PROGRAMS / "manners.py").read_bytes())
    (world.root / ".gitignore").write_text(f"{LOG}\n")
    world.workspace = {"mcp": ["notes"], "checks": [], **world.workspace}
    server = {"command": "python3", "args": [PROGRAM, *manners], **options}
    world.settings = {**world.settings, "mcp": {"servers": {"notes": server}}}


async def test_a_run_uses_a_server(world: World) -> None:
    """A server's tools are told under their names, its results shown, its writes reviewed and delivered."""
    with_server(world, "stderr", "banner")
    note = use("mcp__notes__write", path="NOTES.md", text="Mended add.\n")
    both = calls(tool("mcp__notes__echo", text="first"), tool("mcp__notes__echo", text="second"))
    world.fake.script(*reviewed(MEND, both, note))
    ended = await world.run()
    assert ended.ending == ("completed", None, None)
    assert (world.root / "NOTES.md").read_text() == "Mended add.\n"
    assert not (world.root / LOG).exists()
    shown = [result["content"] for result in ended.results if result["name"].startswith("mcp__")]
    assert shown == ["first", "second", "written"]
    named = {data["name"] for data in ended.of_type("tool.completed")}
    assert {"mcp__notes__echo", "mcp__notes__write"} <= named
    ended.check_story()
    assert gone_within(PROGRAM, 5)


async def test_the_model_is_told_of_the_tools(world: World) -> None:
    """What goes over the wire holds the server's tools in work and review, marked as the server's words."""
    with_server(world)
    world.fake.script(*reviewed(use("mcp__notes__echo", text="x")))
    await world.run()
    told = [
        {
            entry["function"]["name"]: entry["function"]["description"]
            for entry in json.loads(request.body)["tools"]
        }
        for request in world.fake.requests
    ]
    assert "mcp__notes__echo" not in told[0]
    assert all("mcp__notes__echo" in names for names in told[1:])
    assert told[1]["mcp__notes__echo"] == (
        "[tool of the MCP server notes; its own words follow] Says it again."
    )


async def test_a_cancel_reaches_the_server_and_the_next_run_works(world: World) -> None:
    """R10: a cancelled run's call ends once and leaves no process; another run uses the same server."""
    with_server(world)
    world.fake.script(
        planned(), use("mcp__notes__wait", seconds=60), *reviewed(use("mcp__notes__echo", text="x"))
    )
    async with world.host() as host:
        run = await host.start(world.request(preserve="always"))
        async for event in run.events():
            if event.type == "tool.started":
                break
        await asyncio.sleep(0.5)
        outcome = await run.cancel()
        assert outcome.receipt is not None
        items = {item.kind: item.how for item in outcome.receipt.items}
        assert items["plugin_invocation"] == "notified"
        assert gone_within(PROGRAM, 5)
        (log,) = (world.data / "node" / "checkouts").glob(f"*/*/{LOG}")
        text = log.read_text()
        assert [notice["requestId"] for notice in cancel_notices(text)] == call_ids(text, "wait")
        second = await host.start(world.request())
        assert (await second.ended()).status.value == "completed"


async def test_a_server_that_cannot_start_costs_nothing(world: World) -> None:
    """A run whose server can't be used fails before its first provider call, as `workspace/unavailable`."""
    with_server(world, "broken")
    ended = await world.run()
    assert ended.ending == ("failed", "workspace", "unavailable")
    assert ended.bill.total_tokens == 0
    assert world.fake.requests == []


def test_from_the_command_line(world: World) -> None:
    """`remit run` with a server in the user's own settings; a stranger's settings can't bring one."""
    with_server(world)
    world.fake.script(*reviewed(use("mcp__notes__write", path="NOTES.md", text="x\n")))
    process = world.start_run("--model", "fake:gpt-4.1", "--patch-only", "--json")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert json.loads(output)["patch"]["files"] >= 1
    assert gone_within(PROGRAM, 5)
    (world.root / "remit.toml").write_text('[mcp.servers.evil]\ncommand = "sh"\nsandbox = false\n')
    code, _, errors = world.command("run", "fix it")
    assert code == 2
    assert "mcp" in errors
