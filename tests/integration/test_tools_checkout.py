"""The tools on a real checkout: keeper, overlay or copy, sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from keeper_places import Place, fingerprint, place, processes_with
from remit.primitives import SystemClock, SystemIds
from remit.workspaces import Checkout, WorkspaceSettings
from remit.workspaces._receipts import Receipts
from remit.workspaces._settings import CommandDefinition
from remit.workspaces._tools import ToolCall, ToolOutcome, ToolRunner


class Tools:
    """A checkout and its tools."""

    def __init__(self, here: Place, checkout: Checkout, receipts: Receipts) -> None:
        self.here = here
        self.root = here.root
        self.checkout = checkout
        settings = WorkspaceSettings(
            ref="app",
            root=here.root,
            shell=True,
            commands=(CommandDefinition(id="show", executable="printf", args=("%s|",), extra_args=True),),
        )
        outputs = here.data / "outputs"
        self.runner = ToolRunner(checkout, settings, receipts, SystemClock(), outputs=outputs)
        self.count = 0

    async def run(self, name: str, *, timeout_ms: int = 30_000, **arguments: object) -> ToolOutcome:
        self.count += 1
        call = ToolCall(
            run_id="r1",
            stage_id="work-1",
            tool_call_id=f"c{self.count}",
            name=name,
            arguments=json.dumps(arguments),
            timeout_ms=timeout_ms,
            remaining_ms=120_000,
        )
        return await self.runner.run(call)

    async def shell(self, text: str, *, timeout_ms: int = 30_000) -> ToolOutcome:
        return await self.run("run_shell", command=text, timeout_ms=timeout_ms)


@pytest.fixture(params=["overlay", "copy"])
async def tools(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Tools]:
    async with place(tmp_path, isolation=request.param) as here:
        receipts = await Receipts.open(here.data / "receipts.sqlite", clock=SystemClock(), ids=SystemIds())
        checkout = await here.open()
        assert checkout.isolation == request.param
        yield Tools(here, checkout, receipts)
        await checkout.close()
        await receipts.aclose()


async def test_tools_and_commands_share_the_checkout(tools: Tools) -> None:
    """S25, S80: file tools and commands see each other's work; the user's tree stays byte for byte."""
    before = fingerprint(tools.root)
    assert (await tools.run("read_file", relative_path="tracked.txt")).content == "original\n"
    assert (
        await tools.run("edit_file", relative_path="tracked.txt", old="original", new="new")
    ).status == "success"
    await tools.run("write_file", relative_path="made/deep.txt", content="made\n")
    assert (
        await tools.run("move_file", relative_path="folder/inner.txt", new_relative_path="moved.txt")
    ).changed
    seen = await tools.shell("cat tracked.txt made/deep.txt moved.txt; ls folder; echo shell > by-shell.txt")
    assert seen.content.startswith("new\nmade\ninner\n[exit code 0")
    assert (await tools.run("read_file", relative_path="by-shell.txt")).content == "shell\n"
    assert (
        await tools.run("search", pattern="^(new|shell)$")
    ).content == "by-shell.txt:1: shell\ntracked.txt:1: new\n"
    changes = "*** Delete File: moved.txt\n*** Update File: tracked.txt\n-new\n+newer"
    patch = f"*** Begin Patch\n{changes}\n*** End Patch"
    assert (await tools.run("apply_patch", patch=patch)).changed == ("moved.txt", "tracked.txt")
    listed = (await tools.run("list_files")).content
    assert listed == "by-shell.txt\nfolder/ (empty)\nmade/deep.txt\ntracked.txt\n"
    assert (await tools.shell("cat tracked.txt")).content.startswith("newer\n")
    assert fingerprint(tools.root) == before


async def test_tools_keep_bytes_in_the_checkout(tools: Tools) -> None:
    """R45: a one-line edit of a CRLF file changes that line alone, and keeps the mode."""
    await tools.shell("printf '\\357\\273\\277a\\r\\nb\\r\\nc' > crlf; chmod 750 crlf")
    assert (await tools.run("edit_file", relative_path="crlf", old="b\n", new="B\nB2\n")).status == "success"
    seen = await tools.shell("od -An -c crlf | tr -d ' \\n'; stat -c ' %a' crlf")
    assert seen.content.startswith("357273277a\\r\\nB\\r\\nB2\\r\\nc 750\n")


async def test_tools_refuse_what_commands_lay_in_the_way(tools: Tools) -> None:
    """R34, R48: links out, pipes and sockets made by a command stop no tool and lead nowhere."""
    outside = tools.root.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    made = await tools.shell(
        f"ln -s {outside} out; ln -s ../outside up; ln -s {outside}/new leaf; mkfifo pipe; "
        "truncate -s 7G giant; ln -s /proc/self/root/etc magic; ln -s loop loop"
    )
    assert made.exit_code == 0
    started = time.monotonic()
    for path in (
        "out/secret",
        "up/secret",
        "leaf",
        "pipe",
        "magic/passwd",
        "loop",
        "giant",
        str(outside / "secret"),
    ):
        read = await tools.run("read_file", relative_path=path)
        wrote = await tools.run(
            "write_file", relative_path=f"{path}/x" if path == "giant" else path, content="x"
        )
        assert read.status in ("denied", "too_large", "not_found"), path
        assert wrote.status in ("denied", "not_found"), path
    found = await tools.run("search", pattern="secret|original")
    assert found.content.startswith("tracked.txt:1: original\n")
    assert (await tools.run("list_files")).status == "success"
    assert time.monotonic() - started < 10
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": "secret"}


@pytest.mark.slow
async def test_tools_race_with_a_command(tools: Tools) -> None:
    """R34: a command that flips a folder and a link all the time doesn't lead a tool out."""
    outside = tools.root.parent / "outside"
    outside.mkdir()
    (outside / "target").write_text("outside")
    flipper = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None)\n"
        "while True:\n"
        "    libc.renameat2(-100, b'flip/a', -100, b'flip/b', 2)\n"
    )
    await tools.run("write_file", relative_path="flip/a/target", content="inside")
    await tools.shell(f"ln -s {outside} flip/b")
    await tools.run("write_file", relative_path="flipper.py", content=flipper)
    counts = {"success": 0, "denied": 0}
    async with asyncio.TaskGroup() as group:
        attacker = group.create_task(tools.shell("timeout 3 python3 flipper.py"))
        await asyncio.sleep(0.3)
        while not attacker.done():
            read = await tools.run("read_file", relative_path="flip/a/target")
            await tools.run("write_file", relative_path="flip/a/target", content="inside")
            if read.status == "success":
                assert read.content == "inside"
            counts[read.status] = counts.get(read.status, 0) + 1
    assert counts["success"] > 0
    assert counts["denied"] > 0
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"target": "outside"}


async def test_tools_endless_regular_expression_is_ended(tools: Tools) -> None:
    """R55: it ends by its limit with what was found before, and holds up nothing meanwhile."""
    await tools.run("write_file", relative_path="z", content="a" * 5_000 + "!\n")
    await tools.run("write_file", relative_path="a", content="aaa\n")
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(tools.run("search", pattern="(a+)+$", timeout_ms=4_000))
        await asyncio.sleep(0.2)
        started = time.monotonic()
        assert (await tools.shell("echo meanwhile")).content.startswith("meanwhile\n")
        assert (await tools.run("read_file", relative_path="a")).content == "aaa\n"
        assert time.monotonic() - started < 2
        assert not slow.done()
    assert slow.result().content.startswith("a:1: aaa\n[cut: the search took too long")
    assert (slow.result().status, slow.result().truncated) == ("success", True)


async def test_tools_cancelled_operation_is_killed(tools: Tools) -> None:
    """R55, R3: a search that is cancelled is gone at once."""
    await tools.run("write_file", relative_path="z", content="a" * 5_000 + "!\n")
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(tools.run("search", pattern="(a+)+$", timeout_ms=60_000))
        await asyncio.sleep(0.3)
        task.cancel()
    assert task.cancelled()
    assert time.monotonic() - started < 5
    assert (await tools.run("list_files")).content.endswith("z\n")


async def test_tools_timeout_is_a_result_and_the_next_call_works(tools: Tools) -> None:
    """R50, R51: the time is over, the whole tree is gone, partial output is told, and a fresh shell works."""
    nap = str(70_000 + os.getpid())
    started = time.monotonic()
    outcome = await tools.shell(f"echo partial; trap '' TERM; sleep {nap} & sleep {nap}", timeout_ms=700)
    assert outcome.status == "timed_out"
    assert outcome.content.startswith("partial\n[timed out after 700 ms")
    assert time.monotonic() - started < 8
    assert processes_with(nap) == []
    assert (await tools.shell("echo again")).content.startswith("again\n[exit code 0")


async def test_tools_batch_members_are_independent(tools: Tools) -> None:
    """R33, S51: one fails, the others run beside it to their end."""
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(tools.shell(text))
            for text in ("false", "sleep 1; echo ok1", "sleep 1; echo ok2")
        ]
    assert [task.result().exit_code for task in tasks] == [1, 0, 0]
    assert tasks[2].result().content.startswith("ok2\n")
    assert time.monotonic() - started < 5


async def test_tools_output_of_any_kind_and_size(tools: Tools) -> None:
    """R41, R42, R43, R49: endless, binary and redrawn output is bounded, readable, and its total is true."""
    endless = await tools.shell("timeout 1 yes")
    assert endless.exit_code == 124
    assert len(endless.content.encode()) <= 16_384
    assert endless.content.count("left out here") == 1
    binary = await tools.shell("head -c 200000 /dev/urandom")
    assert binary.status == "success"
    assert "200000 bytes in all" in binary.content
    for shift in range(4):
        wide = await tools.shell(f"python3 -c \"print('x' * {shift} + '\u4e2d' * 40000)\"")
        assert f"{shift + 120_001} bytes in all" in wide.content
        assert "\ufffd" not in wide.content
    redrawn = await tools.shell(
        r"for i in $(seq 2000); do printf '\r%d%%' $i; done; printf '\n\033]0;owned\007\033[2Jred\n'"
    )
    assert redrawn.content.startswith("2000%\nred\n[exit code 0")
    line = await tools.shell("head -c 5000000 /dev/zero | tr '\\0' x")
    assert "5000000 bytes in all" in line.content
    call_id = json.loads(line.content.split("read_output ")[1].split(" reads on")[0])["tool_call_id"]
    part = await tools.run("read_output", tool_call_id=call_id, offset_bytes=500_000)
    assert part.content.startswith("xxxx")


async def test_tools_named_commands_see_no_shell(tools: Tools) -> None:
    """R37: operators in arguments are text."""
    attacks = ["a; touch x", "$(touch x)", "`touch x`", "&& touch x", "\ntouch x"]
    outcome = await tools.run("run_command", id="show", args=attacks)
    assert outcome.content.startswith("a; touch x|$(touch x)|`touch x`|&& touch x|\ntouch x|")
    assert (await tools.run("list_files")).content == "folder/inner.txt\ntracked.txt\n"


async def test_tools_report_a_missing_program(tools: Tools) -> None:
    """R33: what can't be started is that call's result."""
    outcome = await tools.shell("no-such-program-here")
    assert (outcome.status, outcome.exit_code) == ("success", 127)
    assert outcome.failed
