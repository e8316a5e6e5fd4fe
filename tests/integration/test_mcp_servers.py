"""MCP servers in a checkout: real processes in the real sandbox, well-behaved and not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from keeper_places import place, processes_with
from mcp_kit import LOG, PROGRAM, by_the_sdk, call_ids, cancel_notices, manners, put_programs
from remit.primitives import SystemClock
from remit.workspaces import Checkout, McpServer, find_toolchains
from remit.workspaces._mcp_results import McpFailed, McpResult
from remit.workspaces._mcp_servers import McpServers, server_commands
from remit.workspaces._mcp_tools import ListedTool, OfferedTool, list_offers

pytest.importorskip("mcp", reason="the extra `mcp` isn't installed")
CALL_MS = 30_000


@dataclass(slots=True)
class Bench:
    """A checkout whose tree holds the servers' programs."""

    checkout: Checkout
    all_servers: list[McpServers]

    def serve(self, **servers: McpServer) -> McpServers:
        commands = server_commands(servers, tuple(servers), environment={"GIVEN": "1"}, cwd="", network=False)
        made = McpServers(self.checkout, commands, clock=SystemClock())
        self.all_servers.append(made)
        return made

    async def log(self) -> str:
        return str((await self.checkout.call("read_file", {"relative_path": LOG}))["content"])


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    import os

    async with place(tmp_path) as here:
        put_programs(here.root)
        toolchains = find_toolchains(
            here.root,
            environ=dict(os.environ),
            home=None,
            data=here.data,
            executables=[by_the_sdk().command],
        )
        made = Bench(await here.open(toolchains=toolchains), [])
        try:
            yield made
        finally:
            for servers in made.all_servers:
                await servers.stop_all()


def tool(name: str, server: str = "notes") -> ListedTool:
    offer = OfferedTool(name=name, description="", schema={"type": "object"}, reads_only=False)
    return list_offers(server, [offer]).tools[0]


async def use(servers: McpServers, name: str, *, limit_ms: int = CALL_MS, **arguments: Any) -> McpResult:
    return await servers.call(tool(name), arguments, limit_ms=limit_ms)


# ---- in good order


async def test_a_server_is_listed_and_used(bench: Bench) -> None:
    """A server starts at its first use, is the same one for the next, and ends when it is told to."""
    servers = bench.serve(notes=manners())
    listing = await servers.list_tools("notes")
    assert [offer.name for offer in listing.tools][:3] == ["echo", "write", "wait"]
    assert [offer.spec.effect for offer in listing.tools][:2] == ["read", "command"]
    assert (await use(servers, "echo", text="hello ☃ \u2028 there")).text == "hello ☃ \u2028 there"
    assert (await use(servers, "write", path="made.txt", text="by the server\n")).text == "written"
    made = await bench.checkout.call("read_file", {"relative_path": "made.txt"})
    assert made["content"] == "by the server\n"
    assert servers.started_count == 1
    (stopped,) = await servers.stop_all()
    assert (stopped.label, bool(stopped.pids)) == ("mcp notes", True)
    assert processes_with(PROGRAM) == []
    assert await servers.stop_all() == ()


async def test_a_server_sees_what_the_sandbox_shows(bench: Bench) -> None:
    """It works in the checkout, at the root's own path, and inherits no variable that isn't named."""
    given = {"environment": {"OWN": "2"}, "environment_allowlist": ("GIVEN", "ABSENT")}
    seen = (await use(bench.serve(notes=manners(**given)), "look")).structured
    assert seen["cwd"] == bench.checkout.root
    assert {"GIVEN", "OWN"} <= set(seen["variables"])
    assert not {"ABSENT", "PYTEST_CURRENT_TEST"} & set(seen["variables"])


async def test_calls_beside_each_other_get_their_own_answers(bench: Bench) -> None:
    """R26: answers are matched by id, whatever order they come in."""
    servers = bench.serve(notes=manners())
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(use(servers, "wait", seconds=0.4))
        quick = [group.create_task(use(servers, "echo", text=str(number))) for number in range(20)]
    assert slow.result().text == "waited"
    assert [task.result().text for task in quick] == [str(number) for number in range(20)]
    assert servers.started_count == 1


async def test_a_server_by_the_sdk_works(bench: Bench) -> None:
    """A server as people write them is listed, used, refuses bad arguments, and heeds a cancel."""
    servers = bench.serve(notes=by_the_sdk())
    listing = await servers.list_tools("notes")
    assert sorted(offer.name for offer in listing.tools) == ["add", "nap", "read"]
    assert (await use(servers, "add", a=2, b=3)).text == "5"
    assert (await use(servers, "read", path="tracked.txt")).text == "original\n"
    refused = await use(servers, "add", a="two")
    assert refused.is_error
    nap = asyncio.get_running_loop().create_task(use(servers, "nap", seconds=60))
    await asyncio.sleep(0.3)
    nap.cancel()
    with pytest.raises(asyncio.CancelledError):
        await nap
    async with asyncio.timeout(10):
        while "nap-cancelled" not in str((await bench.checkout.call("list_files", {}))["content"]):
            await asyncio.sleep(0.02)
    assert (await use(servers, "add", a=1, b=1)).text == "2"
    assert servers.started_count == 1


# ---- cancels and time limits


async def test_a_cancel_is_one_notice_with_the_right_id(bench: Bench) -> None:
    """R10: the server gets one notice that names the request, stays up, and its late answer is dropped."""
    servers = bench.serve(notes=manners())
    await use(servers, "echo", text="warm")
    waiting = asyncio.get_running_loop().create_task(use(servers, "wait", seconds=1.0))
    other = asyncio.get_running_loop().create_task(use(servers, "wait", seconds=0.6))
    async with asyncio.timeout(10):
        while len(call_ids(await bench.log(), "wait")) < 2:
            await asyncio.sleep(0.02)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await other).text == "waited"
    await asyncio.sleep(0.6)  # the cancelled call's answer comes now, and nobody is there
    assert (await use(servers, "echo", text="still up")).text == "still up"
    log = await bench.log()
    notices = cancel_notices(log)
    assert [notice["requestId"] for notice in notices] == call_ids(log, "wait")[:1]
    assert servers.started_count == 1


async def test_a_call_that_takes_too_long_is_given_up(bench: Bench) -> None:
    """R47, R50: each request has an end of its own; the server is told, and goes on with others."""
    servers = bench.serve(notes=manners())
    await use(servers, "echo", text="warm")
    began = time.monotonic()
    with pytest.raises(McpFailed) as caught:
        await use(servers, "wait", seconds=60, limit_ms=300)
    assert time.monotonic() - began < 5
    assert caught.value.status == "timed_out"
    assert (await use(servers, "echo", text="on")).text == "on"
    assert len(cancel_notices(await bench.log())) == 1


async def test_a_server_that_never_answers_is_given_up(bench: Bench) -> None:
    """R47: a server that doesn't answer its first request is ended in time, and the message says so."""
    servers = bench.serve(notes=manners("mute", start_timeout_ms=500))
    with pytest.raises(McpFailed, match="didn't answer within 500 ms") as caught:
        await use(servers, "echo", text="hello")
    assert caught.value.status == "timed_out"
    assert processes_with(PROGRAM) == []


async def test_cancelling_the_start_ends_the_server(bench: Bench) -> None:
    """R10: whoever is cancelled while a server starts leaves no process behind."""
    servers = bench.serve(notes=manners("mute"))
    calling = asyncio.get_running_loop().create_task(use(servers, "echo", text="hello"))
    async with asyncio.timeout(10):
        while not processes_with(PROGRAM):
            await asyncio.sleep(0.01)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert processes_with(PROGRAM) == []


# ---- bad manners


async def test_floods_on_stderr_and_a_banner_freeze_nothing(bench: Bench) -> None:
    """R47: 256 KiB on stderr before `initialize` and each reply, half without line ends; a banner."""
    servers = bench.serve(notes=manners("stderr", "banner"))
    async with asyncio.timeout(60):
        listing = await servers.list_tools("notes")
        assert len(listing.tools) > 3
        for word in ("one", "two", "three"):
            assert (await use(servers, "echo", text=word)).text == word
    assert servers.started_count == 1


async def test_a_flood_of_notices_hides_no_answer(bench: Bench) -> None:
    """Thousands of notices before an answer cost time, not the answer."""
    listing = await bench.serve(notes=manners("flood")).list_tools("notes")
    assert len(listing.tools) > 3


async def test_an_endless_line_ends_the_server(bench: Bench) -> None:
    """A server that sends a line without an end is given up; memory stays bounded."""
    servers = bench.serve(notes=manners("endless"))
    with pytest.raises(McpFailed, match="a message of more than"):
        await use(servers, "echo", text="hello")
    assert processes_with(PROGRAM) == []


async def test_a_server_that_dies_in_a_call_is_started_again(bench: Bench) -> None:
    """R10: a death in a call is that call's failure, with its last words; the next use starts it anew."""
    servers = bench.serve(notes=manners())
    with pytest.raises(McpFailed, match=r"what the call did is unknown.*last words"):
        await use(servers, "die")
    assert (await use(servers, "echo", text="again")).text == "again"
    assert servers.started_count == 2


async def test_a_server_that_ended_between_calls_is_started_again(bench: Bench) -> None:
    """R10: a server that was ended from outside is up again at its next use."""
    servers = bench.serve(notes=manners())
    await use(servers, "echo", text="one")
    await bench.checkout.stop(None, grace_ms=0)
    assert (await use(servers, "echo", text="two")).text == "two"
    assert servers.started_count == 2


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (manners("broken"), "cannot find my settings"),
        (McpServer(command="no-such-program"), "no-such-program"),
        (McpServer(command="true"), "can't be used"),
        (McpServer(command="cat"), "can't be used"),
    ],
)
async def test_a_server_that_cannot_be_used_says_why(bench: Bench, server: McpServer, said: str) -> None:
    """What can't be started, or isn't a server, is a failure with its reason, soon."""
    servers = bench.serve(notes=server.model_copy(update={"start_timeout_ms": 5_000}))
    with pytest.raises(McpFailed) as caught:
        await use(servers, "echo", text="hello")
    assert said in caught.value.message


async def test_what_a_server_refuses_is_told(bench: Bench) -> None:
    """A tool's failure, an unknown tool and an answer that makes no sense are each that call's result."""
    servers = bench.serve(notes=manners())
    failed = await use(servers, "fail")
    assert (failed.is_error, failed.text) == (True, "it doesn't work")
    with pytest.raises(McpFailed, match="no such tool"):
        await use(servers, "nothing")
    with pytest.raises(McpFailed, match="isn't what the protocol asks for"):
        await use(servers, "bad result")
    assert (await use(servers, "echo", text="on")).text == "on"
    assert servers.started_count == 1


async def test_a_server_gets_no_model(bench: Bench) -> None:
    """A server that asks for a completion is refused; nobody's tokens are spent for it."""
    servers = bench.serve(notes=manners())
    assert (await use(servers, "ask")).text == "asked"
    async with asyncio.timeout(10):
        while '"q1"' not in (log := await bench.log()):
            await asyncio.sleep(0.02)
    assert "not supported" in log


async def test_outside_the_sandbox_it_starts_outside_of_the_tree(bench: Bench) -> None:
    """A server without sandbox starts where nothing of the checkout can be run by accident."""
    program = str(Path(bench.checkout.root) / PROGRAM)
    script = f"cd {bench.checkout.root}; exec python3 {program}"
    free = McpServer(command="sh", args=("-c", f"pwd > {bench.checkout.root}/where; {script}"), sandbox=False)
    commands = server_commands(
        {"notes": free},
        ("notes",),
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        cwd="",
        network=False,
    )
    servers = McpServers(bench.checkout, commands, clock=SystemClock())
    bench.all_servers.append(servers)
    assert (await use(servers, "echo", text="free")).text == "free"
    where = await bench.checkout.call("read_file", {"relative_path": "where"})
    assert where["content"] == "/\n"
