"""Tool calls over a folder: what is done, what is refused, what the model is told. (Commands are
scripted.)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from remit.primitives import SystemClock, SystemIds
from remit.workspaces._command import CommandResult, CommandSpec
from remit.workspaces._failures import KeeperLost
from remit.workspaces._receipts import Receipts
from remit.workspaces._settings import CommandDefinition, WorkspaceSettings
from remit.workspaces._tools import ToolCall, ToolOutcome, ToolRunner
from workspace_fakes import FolderCheckout, command_result


class Bench:
    """A runner with its folder."""

    def __init__(self, folder: Path, receipts: Receipts) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.folder = folder
        self.receipts = receipts
        self.settings = WorkspaceSettings(
            ref="app",
            root=self.root,
            shell=True,
            commands=(
                CommandDefinition(id="test", executable="pytest", args=("-q",), extra_args=True),
                CommandDefinition(id="lint", executable="ruff", args=("check", ".")),
            ),
        )
        self.checkout = FolderCheckout(self.root)
        self.count = 0

    def runner(self, **settings: object) -> ToolRunner:
        return ToolRunner(
            self.checkout,
            self.settings.model_copy(update=settings),
            self.receipts,
            SystemClock(),
            outputs=self.folder / "outputs",
            working_folder="sub",
        )

    def script(self, answer: CommandResult | Callable[[CommandSpec], CommandResult]) -> None:
        self.checkout.script = (lambda spec: answer) if isinstance(answer, CommandResult) else answer

    def call(self, name: str, arguments: object = None, *, stage: str = "work-1", **more: object) -> ToolCall:
        self.count += 1
        fields: dict[str, object] = {
            "run_id": "r1",
            "stage_id": stage,
            "tool_call_id": f"call_{self.count}",
            "timeout_ms": 5_000,
            "remaining_ms": 60_000,
            **more,
        }
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        return ToolCall(name=name, arguments=text, **fields)  # type: ignore[arg-type] - any of its fields

    async def run(self, name: str, arguments: object = None, **more: object) -> ToolOutcome:
        return await self.runner().run(self.call(name, arguments, **more))  # type: ignore[arg-type] - as above


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench]:
    receipts = await Receipts.open(tmp_path / "receipts.sqlite", clock=SystemClock(), ids=SystemIds())
    bench = Bench(tmp_path, receipts)
    yield bench
    bench.checkout.close()
    await receipts.aclose()


async def test_tools_do_file_work(bench: Bench) -> None:
    """S25, S44, S80, S86: write, read, edit, find and delete; each with status, receipt and what it
    changed.
    """
    wrote = await bench.run("write_file", {"relative_path": "src/a.py", "content": "one\ntwo\n"})
    assert (wrote.status, wrote.changed, wrote.effect) == ("success", ("src/a.py",), "write")
    assert wrote.receipt_id.startswith("rcp_")
    assert wrote.exit_code is None
    read = await bench.run("read_file", {"relative_path": "src/a.py"})
    assert (read.status, read.content, read.changed, read.effect) == ("success", "one\ntwo\n", (), "read")
    edited = await bench.run("edit_file", {"relative_path": "src/a.py", "old": "two", "new": "2"})
    assert edited.changed == ("src/a.py",)
    patch = "*** Begin Patch\n*** Update File: src/a.py\n-one\n+1\n*** End Patch"
    assert (await bench.run("apply_patch", {"patch": patch})).changed == ("src/a.py",)
    assert (await bench.run("search", {"pattern": "^[0-9]$"})).content == "src/a.py:1: 1\nsrc/a.py:2: 2\n"
    assert (await bench.run("list_files")).content == "src/a.py\n"
    moved = await bench.run("move_file", {"relative_path": "src/a.py", "new_relative_path": "b.py"})
    assert moved.changed == ("src/a.py", "b.py")
    assert (await bench.run("delete_file", {"relative_path": "b.py"})).changed == ("b.py",)


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [
        ("read_file", {"relative_path": "/etc/passwd"}, "denied"),
        ("read_file", {"relative_path": "../x"}, "denied"),
        ("read_file", {"relative_path": "missing"}, "not_found"),
        ("write_file", {"relative_path": ".git/config", "content": "x"}, "denied"),
        ("write_file", {"relative_path": "x", "content": "y" * 101}, "too_large"),
        ("edit_file", {"relative_path": "file", "old": "absent", "new": "x"}, "conflict"),
        ("search", {"pattern": "("}, "invalid_arguments"),
        ("read_file", '{"relative_path": "file"', "invalid_arguments"),
        ("read_file", "", "invalid_arguments"),
        ("write_file", '{"relative_path": "x", "content": "a", "content": "b"}', "invalid_arguments"),
        ("no_such_tool", {}, "denied"),
        ("run_command", {"id": "lint", "args": ["--fix"]}, "invalid_arguments"),
        ("run_command", {"id": "nope"}, "invalid_arguments"),
        ("run_shell", {"command": "  "}, "invalid_arguments"),
        ("run_shell", {"command": "a\0b"}, "invalid_arguments"),
        ("run_shell", {"command": "x" * 100_001}, "invalid_arguments"),
        ("run_shell", {"command": "x", "timeout_ms": 10**9}, "invalid_arguments"),
        ("read_output", {"tool_call_id": "nope", "offset_bytes": 0}, "not_found"),
    ],
)
async def test_tools_failures_are_results(bench: Bench, name: str, arguments: object, status: str) -> None:
    """R31, R33, S55, S56, S86: every failure is that call's typed result, and the next call works."""
    (bench.root / "file").write_text("text\n")
    runner = bench.runner(max_write_bytes=100)
    outcome = await runner.run(bench.call(name, arguments))
    assert outcome.status == status
    assert 0 < len(outcome.content) < 1_000
    assert outcome.failed
    assert outcome.receipt_id
    assert bench.checkout.specs == []
    assert (await runner.run(bench.call("read_file", {"relative_path": "file"}))).content == "text\n"


async def test_tools_broken_arguments_reach_nothing(bench: Bench) -> None:
    """R31: nothing is executed."""
    for text in ("null", "[]", '"x"', "{", '{"command":"a"}{"command":"b"}', "{" * 2_000_000, " "):
        outcome = await bench.run("run_shell", text)
        assert outcome.status == "invalid_arguments"
    assert bench.checkout.specs == []
    assert bench.checkout.calls == []


async def test_tools_planning_only_reads(bench: Bench) -> None:
    """S22, S24: a plan stage is refused what changes something; review may do all that work may."""
    arguments = {"relative_path": "x", "content": "y"}
    denied = await bench.run("write_file", arguments, stage="plan")
    assert (denied.status, "only reads" in denied.content) == ("denied", True)
    assert (await bench.run("run_shell", {"command": "x"}, stage="plan")).status == "denied"
    assert (await bench.run("list_files", stage="plan")).status == "success"
    assert (await bench.run("write_file", arguments, stage="review-1")).status == "success"
    assert (await bench.run("write_file", arguments, stage="nonsense")).status == "denied"


async def test_tools_workspace_decides(bench: Bench) -> None:
    """S56: what the workspace doesn't allow isn't there."""
    runner = bench.runner(operations=("read",))
    for name, arguments in (
        ("write_file", {"relative_path": "x", "content": "y"}),
        ("run_shell", {"command": "x"}),
    ):
        assert (await runner.run(bench.call(name, arguments))).status == "denied"
    runner = bench.runner(shell=False)
    assert (await runner.run(bench.call("run_shell", {"command": "x"}))).status == "denied"
    assert (await runner.run(bench.call("run_command", {"id": "lint"}))).status == "success"


async def test_tools_commands_never_go_through_a_shell(bench: Bench) -> None:
    """R37: a named command is an argument list; nothing in its arguments is syntax."""
    attacks = ["a; touch x", "$(touch x)", "`touch x`", "&&", "|", "> x", "\n", "-c", "*", "a'b\"c"]
    outcome = await bench.run("run_command", {"id": "test", "args": attacks})
    assert bench.checkout.specs[0].argv == ("pytest", "-q", *attacks)
    assert outcome.command is not None
    assert outcome.command.startswith("pytest -q 'a; touch x'")
    await bench.run("run_command", {"id": "lint"})
    assert bench.checkout.specs[1].argv == ("ruff", "check", ".")


async def test_tools_shell_starts_in_the_working_folder(bench: Bench) -> None:
    """R40, S56: the text goes to a shell as one argument, with the workspace's bounds."""
    outcome = await bench.run("run_shell", {"command": "echo 'a|b;c'"})
    spec = bench.checkout.specs[0]
    assert spec.argv[1:] == ("-c", "echo 'a|b;c'")
    assert (spec.cwd, spec.timeout_ms, spec.network, dict(spec.environment)) == ("sub", 5_000, False, {})
    assert spec.call_id == "work-1/call_1"
    assert outcome.command == "echo 'a|b;c'"
    assert outcome.content == "[exit code 0 after 12 ms]"
    assert outcome.effect == "command"


@pytest.mark.parametrize(
    ("asked", "default", "remaining", "limit"),
    [
        (None, 5_000, 60_000, 5_000),
        (20_000, 5_000, 60_000, 20_000),
        (20_000, 5_000, 7_000, 7_000),
        (None, 5_000, 3, 3),
    ],
)
async def test_tools_nearest_time_limit_wins(
    bench: Bench, asked: int | None, default: int, remaining: int, limit: int
) -> None:
    """R53, S56: what was asked, the default, what is left: the nearest holds."""
    arguments = {"command": "x", "timeout_ms": asked}
    await bench.run("run_shell", arguments, timeout_ms=default, remaining_ms=remaining)
    assert bench.checkout.specs[0].timeout_ms == limit


async def test_tools_without_time_left_do_not_start(bench: Bench) -> None:
    """R3, R53: nothing begins after the end."""
    outcome = await bench.run("run_shell", {"command": "x"}, remaining_ms=0)
    assert (outcome.status, bench.checkout.specs) == ("timed_out", [])


async def test_tools_tell_how_a_command_ended(bench: Bench) -> None:
    """R50, R51, R2: exit codes, signals, timeouts and leftovers are told; a non-zero exit is no failure of
    the tool.
    """
    bench.script(command_result(b"out\n", stderr=b"err", exit_code=3, leftovers=("sleep 600 (pid 12)",)))
    outcome = await bench.run("run_shell", {"command": "x"})
    assert (outcome.status, outcome.exit_code, outcome.failed) == ("success", 3, True)
    assert outcome.content == (
        "out\nerr\n[exit code 3 after 12 ms]\n[still running at its end, and stopped: sleep 600 (pid 12)]"
    )
    bench.script(command_result(b"half", exit_code=None, status="timed_out", duration_ms=2_001))
    outcome = await bench.run("run_shell", {"command": "x", "timeout_ms": 2_000})
    assert (outcome.status, outcome.exit_code) == ("timed_out", None)
    assert outcome.content.startswith("half\n[timed out after 2000 ms")
    bench.script(command_result(exit_code=None, status="signalled", signal=9))
    outcome = await bench.run("run_shell", {"command": "x"})
    assert (outcome.status, outcome.exit_code) == ("success", 137)
    bench.script(command_result(exit_code=None, status="cancelled"))
    assert (await bench.run("run_shell", {"command": "x"})).status == "cancelled"
    bench.script(command_result(exit_code=None, status="failed_to_start", message="ruff: no such program"))
    outcome = await bench.run("run_command", {"id": "lint"})
    assert (outcome.status, "no such program" in outcome.content) == ("failed", True)


async def test_tools_long_output_is_cut_and_can_be_read_on(bench: Bench) -> None:
    """R42, R43, S56: head and tail are shown with the true total; the rest is read part by part, without a
    gap.
    """
    whole = "".join(f"{number} 中\n" for number in range(20_000))
    bench.script(command_result(whole.encode()))
    outcome = await bench.run("run_shell", {"command": "x"})
    assert outcome.truncated
    assert len(outcome.content.encode()) <= 16_384
    assert outcome.content.count("left out here") == 1
    assert f"{len(whole.encode())} bytes in all" in outcome.content
    assert outcome.content.startswith("0 中\n")
    assert "19999 中\n[cut; read_output " in outcome.content
    hint = json.loads(outcome.content.split("read_output ")[1].split(" reads on")[0])
    seen = outcome.content.encode()[: hint["offset_bytes"]]
    while True:
        part = await bench.run("read_output", hint)
        assert part.status == "success"
        assert len(part.content.encode()) <= 16_384
        text, _, note = part.content.rpartition("\n[up to byte ")
        seen += text.encode()
        if not part.truncated:
            break
        hint["offset_bytes"] = int(note.split(" ")[0])
    assert seen == whole.encode()
    assert "this is the end" in note
    beyond = await bench.run("read_output", {**hint, "offset_bytes": 10**9})
    assert beyond.status == "invalid_arguments"


async def test_tools_read_output_of_a_short_call(bench: Bench) -> None:
    """S78: a call that was shown whole can be read again, an empty one too."""
    bench.script(command_result(b"short\n"))
    await bench.run("run_shell", {"command": "x"})
    again = await bench.run("read_output", {"tool_call_id": "call_1", "offset_bytes": 0})
    assert again.content.startswith("short\n[exit code 0")
    other = await bench.run("read_output", {"tool_call_id": "call_1", "offset_bytes": 0}, run_id="r2")
    assert other.status == "not_found"


async def test_tools_raw_bytes_are_kept(bench: Bench) -> None:
    """R41, R49: the model sees plain text, the raw bytes of both streams stay."""
    raw = b"\r10%\r100%\n\x1b[31mred\x1b[0m caf\xe9\n"
    bench.script(command_result(raw, stderr=b"\x00err"))
    outcome = await bench.run("run_shell", {"command": "x"})
    assert outcome.content.startswith("100%\nred caf\ufffd\nerr\n")
    kept = sorted((bench.folder / "outputs").iterdir())
    assert [path.suffix for path in kept] == [".err", ".out", ".txt"]
    assert [path.read_bytes() for path in kept[:2]] == [b"\x00err", raw]
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)


async def test_tools_result_survives_a_full_disk(bench: Bench) -> None:
    """R60: a command that ran has its result, also where its output can't be kept."""
    (bench.folder / "outputs").write_text("in the way")
    bench.script(command_result(b"x" * 100_000, exit_code=1))
    outcome = await bench.run("run_shell", {"command": "x"})
    assert (outcome.status, outcome.exit_code, outcome.output_bytes) == ("success", 1, 0)
    assert "couldn't be kept" in outcome.content


async def test_tools_repeat_has_one_effect(bench: Bench) -> None:
    """S48, R58: the same call again is answered from its receipt, also by another runner."""
    call = bench.call("write_file", {"relative_path": "a", "content": "x"})
    first = await bench.runner().run(call)
    (bench.root / "a").write_text("changed since")
    again = await bench.runner().run(call)
    assert (first.repeated, again.repeated) == (False, True)
    assert again.content == first.content
    assert (bench.root / "a").read_text() == "changed since"
    assert len(bench.checkout.calls) == 1


async def test_tools_same_ids_in_other_runs_do_not_meet(bench: Bench) -> None:
    """S45, S46, S47, S81: parallel runs use the same ids; each gets its own content, one call each."""
    bench.script(lambda spec: command_result(spec.argv[-1].encode()))
    bench.checkout.gate = asyncio.Event()
    runner = bench.runner()
    async with asyncio.TaskGroup() as group:
        tasks = {
            run: group.create_task(
                runner.run(bench.call("run_shell", {"command": run}, run_id=run, tool_call_id="call_1"))
            )
            for run in ("r1", "r2", "r3")
        }
        while len(bench.checkout.specs) < 3:
            await asyncio.sleep(0.005)
        bench.checkout.gate.set()
    for run, task in tasks.items():
        assert task.result().content.startswith(run)
    assert len(bench.checkout.specs) == 3


async def test_tools_cancel_stops_the_call_and_says_so(bench: Bench) -> None:
    """S52, R3: a cancelled call is stopped first; its receipt says cancelled."""
    bench.checkout.gate = asyncio.Event()
    call = bench.call("run_shell", {"command": "x"})
    runner = bench.runner()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner.run(call))
        while not bench.checkout.specs:
            await asyncio.sleep(0.005)
        task.cancel()
    assert task.cancelled()
    assert bench.checkout.stopped == 1
    bench.checkout.gate = None
    assert (await runner.run(call)).status == "cancelled"
    assert len(bench.checkout.specs) == 1


async def test_tools_siblings_survive_a_failing_call(bench: Bench) -> None:
    """R33: one failing call of a batch changes nothing for the others."""

    def script(spec: CommandSpec) -> CommandResult:
        return command_result(exit_code=1) if spec.argv[-1] == "false" else command_result(b"ok\n")

    bench.script(script)
    runner = bench.runner()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(runner.run(bench.call("run_shell", {"command": text})))
            for text in ("false", "a", "b")
        ]
    assert [task.result().exit_code for task in tasks] == [1, 0, 0]


async def test_tools_slow_operation_times_out_as_a_result(bench: Bench) -> None:
    """R51, R55: a file operation that takes too long is that call's result; the next one works."""
    (bench.root / "a").write_text("x\n")
    bench.checkout.gate = asyncio.Event()
    outcome = await bench.run("read_file", {"relative_path": "a"}, timeout_ms=50)
    assert (outcome.status, bench.checkout.stopped) == ("timed_out", 1)
    bench.checkout.gate = None
    assert (await bench.run("read_file", {"relative_path": "a"})).content == "x\n"


async def test_tools_lost_checkout_is_told_and_not_repeated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R58: when the checkout dies under a call, a repeat says unknown and does nothing."""

    async def lost(spec: CommandSpec, *, on_output: object = None) -> CommandResult:
        raise KeeperLost("gone", reason="lost")

    monkeypatch.setattr(bench.checkout, "run", lost)
    call = bench.call("run_shell", {"command": "x"})
    with pytest.raises(KeeperLost):
        await bench.runner().run(call)
    monkeypatch.undo()
    assert (await bench.runner().run(call)).status == "outcome_unknown"
    assert bench.checkout.specs == []


async def test_tools_clean_what_storage_can_not_hold(bench: Bench) -> None:
    """R44: NUL and lone surrogates are replaced in what goes back."""
    (bench.root / "a").write_text("x" * 9_000 + "\0y\n")
    outcome = await bench.run("read_file", {"relative_path": "a"})
    assert "\0" not in outcome.content
    assert "\ufffdy" in outcome.content


async def test_tools_same_failing_call_has_one_fingerprint(bench: Bench) -> None:
    """R56: a loop can see that a model sends the same failing edit for ever."""
    (bench.root / "a").write_text("x\n")
    outcomes = [
        await bench.run("edit_file", text)
        for text in (
            '{"relative_path":"a","old":"no","new":"y"}',
            '{ "old":"no", "new":"y", "relative_path":"a" }',
            '{"relative_path":"a","old":"x","new":"y"}',
        )
    ]
    assert [outcome.failed for outcome in outcomes] == [True, True, False]
    assert outcomes[0].fingerprint == outcomes[1].fingerprint != outcomes[2].fingerprint


async def test_tools_streams_raw_output(bench: Bench) -> None:
    """R43: whoever watches gets the bytes as they come."""
    seen: list[bytes] = []
    bench.script(command_result(b"raw\x1b[31m"))
    await bench.runner().run(bench.call("run_shell", {"command": "x"}), on_output=seen.append)
    assert seen == [b"raw\x1b[31m"]
