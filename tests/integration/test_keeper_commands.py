"""Commands in a checkout: what they see, how they end, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keeper_places import place, processes_with, run, shell
from remit.workspaces import Checkout, CommandSpec, WorkspaceOperationError


@pytest.fixture(params=["bubblewrap", "none"])
async def checkout(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Checkout]:
    async with place(tmp_path, sandbox=request.param, allow_unconfined=True) as here:
        opened = await here.open()
        yield opened


@pytest.fixture
async def sandboxed(tmp_path: Path) -> AsyncIterator[Checkout]:
    async with place(tmp_path) as here:
        yield await here.open()


def nap() -> str:
    """How long to sleep, by which the sleeping process is told from all others."""
    return str(1000 + secrets.randbelow(10**9))


async def test_exit_code_streams_and_order_are_kept(checkout: Checkout) -> None:
    """A command's exit code and both streams come back, raw and as one text."""
    result = await run(checkout, "echo out; echo err >&2; exit 7")
    assert (result.status, result.exit_code, result.signal) == ("exited", 7, None)
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
    assert sorted(result.text.splitlines()) == ["err", "out"]
    assert (result.stdout_total_bytes, result.truncated, result.leftovers) == (4, False, ())


async def test_command_sees_the_tree_at_the_roots_own_path(checkout: Checkout) -> None:
    """The checkout stands at the workspace root's own path, and a working folder below it is kept to."""
    result = await run(checkout, "pwd; cat inner.txt; cat ../tracked.txt", cwd="folder")
    assert result.text == f"{checkout.root}/folder\ninner\noriginal\n"


async def test_what_one_command_writes_the_next_one_reads(checkout: Checkout) -> None:
    """Commands and file operations share one view: the tree, and one /tmp per checkout in a sandbox."""
    await run(checkout, "echo new > made.txt; echo gone > tracked.txt")
    assert (await run(checkout, "cat made.txt tracked.txt")).text == "new\ngone\n"
    assert (await checkout.call("read_file", {"relative_path": "made.txt"}))["content"] == "new\n"
    if checkout.sandbox == "bubblewrap":
        await run(checkout, "echo kept > /tmp/note")
        assert (await run(checkout, "cat /tmp/note")).text == "kept\n"
        assert not Path("/tmp/note").exists()


@pytest.mark.parametrize(
    "text",
    [
        "read x; echo got:$x",
        "python3 -c 'input()'",
        "cat",
        "git init -q . && git -c user.name=a -c user.email=a@example.invalid commit --allow-empty",
        "git clone https://127.0.0.1:1/x",
        "ssh -o StrictHostKeyChecking=ask localhost",
        "head -c 1 /dev/tty",
    ],
)
async def test_a_question_is_answered_with_end_of_file(checkout: Checkout, text: str) -> None:
    """R40: stdin is at its end, there is no terminal, and editors and password prompts fail at once."""
    result = await run(checkout, text, timeout_ms=30_000)
    assert result.status == "exited"
    assert result.duration_ms < 10_000


async def test_environment_is_the_stated_one_alone(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R36, R40: CI=1, no prompt, no pager, an empty home; nothing of the node's own environment."""
    monkeypatch.setenv("LATER_SECRET", "canary")
    result = await run(checkout, "env; find ~ -xdev -type f | wc -l", environment={"ASKED": "yes"})
    values = dict(line.split("=", 1) for line in result.text.splitlines() if "=" in line)
    assert values["ASKED"] == "yes"
    assert (values["CI"], values["GIT_TERMINAL_PROMPT"], values["TERM"]) == ("1", "0", "dumb")
    assert values["EDITOR"] == values["GIT_EDITOR"] == "false"
    assert not {"LATER_SECRET", "XDG_DATA_HOME"} & values.keys()
    assert result.text.rstrip().endswith("0")


async def test_a_missing_program_is_a_result_not_an_exception(checkout: Checkout) -> None:
    """A command that can't be started says so in words and has no exit code."""
    spec = CommandSpec(call_id="x", argv=("no-such-program",), timeout_ms=10_000)
    result = await checkout.run(spec)
    assert (result.status, result.exit_code) == ("failed_to_start", None)
    assert "no-such-program" in (result.message or "")


async def test_background_job_ends_with_its_command_and_is_named(checkout: Checkout) -> None:
    """R1, R12, R39: the call ends when the foreground does; what it left behind dies, and is named."""
    number = nap()
    started = time.monotonic()
    result = await run(checkout, f"sleep {number} & yes > /dev/null & sleep 0.3; echo done")
    assert time.monotonic() - started < 10
    assert (result.exit_code, result.text) == (0, "done\n")
    assert any(left.startswith(f"sleep {number} (pid ") for left in result.leftovers), result.leftovers
    assert processes_with(number) == []


async def test_chatty_background_job_does_not_hold_the_call(checkout: Checkout) -> None:
    """R39: a job that keeps writing into the call's own pipe ends with the foreground process."""
    result = await run(checkout, "(while :; do echo chatter; sleep 0.01; done) & sleep 0.2; exit 3")
    assert (result.status, result.exit_code) == ("exited", 3)
    assert result.duration_ms < 10_000


async def test_descendants_that_leave_the_group_end_too(checkout: Checkout) -> None:
    """R2: daemons that forked twice, left the session and ignore TERM don't outlive the command."""
    number = nap()
    daemon = (
        "import os,signal\n"
        "for _ in range(3):\n"
        "  if os.fork(): continue\n"
        "  os.setsid()\n"
        "  if os.fork(): os._exit(0)\n"
        "  signal.signal(15, signal.SIG_IGN); signal.signal(1, signal.SIG_IGN)\n"
        f"  os.execvp('sleep', ['sleep', '{number}'])\n"
        "import time; time.sleep(0.3)"
    )
    result = await run(checkout, f'python3 -c "{daemon}"')
    assert result.exit_code == 0, result
    assert sum(left.startswith(f"sleep {number}") for left in result.leftovers) == 3
    assert processes_with(number) == []


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("sleep {n} & sleep {n}", "term"),
        ("trap '' TERM; sleep {n}; sleep {n}", "kill"),
        ("setsid sleep {n} & trap '' TERM HUP; while :; do sleep {n}; done", "kill"),
    ],
)
async def test_timeout_is_kept_and_everything_is_gone(checkout: Checkout, text: str, how: str) -> None:
    """R50: time-out plus grace is the longest a command takes; partial output comes back with `timed_out`."""
    number = nap()
    started = time.monotonic()
    result = await run(checkout, f"echo partial; {text.replace('{n}', number)}", timeout_ms=1_000)
    took_s = time.monotonic() - started
    assert result.status == "timed_out"
    assert result.stdout == b"partial\n"
    assert took_s < (2.9 if how == "term" else 7.0)
    assert took_s >= (1.0 if how == "term" else 2.9)
    assert processes_with(number) == []


async def test_trap_sees_term_and_may_clean_up(checkout: Checkout) -> None:
    """R50: TERM reaches the foreground's whole group, so a shell's trap runs at once, within the grace."""
    text = "trap 'echo cleaned > trap.txt; exit 5' TERM; sleep 600"
    result = await run(checkout, text, timeout_ms=500)
    assert (result.status, result.exit_code) == ("timed_out", 5)
    assert (await run(checkout, "cat trap.txt")).text == "cleaned\n"


async def test_commands_after_a_timeout_work(checkout: Checkout) -> None:
    """R51: a time-out is that call's result; the next command runs in a fresh shell."""
    assert (await run(checkout, "sleep 60", timeout_ms=200)).status == "timed_out"
    assert (await run(checkout, "echo fresh")).text == "fresh\n"


@pytest.mark.parametrize(
    "text",
    [
        "exec -a {n} sleep 600",
        "python3 -m http.server 0 {n} 2>/dev/null & sleep {n}",
    ],
)
async def test_stop_returns_when_the_processes_are_gone(checkout: Checkout, text: str) -> None:
    """R1: stop says how, in how many ms and which processes, and nothing of the command lives on."""
    number = nap()
    async with asyncio.TaskGroup() as group:
        spec = CommandSpec(
            call_id="stopped", argv=("bash", "-c", text.replace("{n}", number)), timeout_ms=60_000
        )
        running = group.create_task(checkout.run(spec))
        await until(lambda: bool(processes_with(number)))
        pids = processes_with(number)
        (stopped,) = await checkout.stop("stopped", grace_ms=2_000)
        assert processes_with(number) == []
    assert (stopped.how, stopped.call_id) == ("term", "stopped")
    assert set(pids) <= set(stopped.pids)
    assert (await running).status == "cancelled"
    (again,) = await checkout.stop("stopped", grace_ms=0)
    assert (again.how, again.pids) == ("already_ended", ())


async def test_stop_of_all_kills_what_ignores_term(checkout: Checkout) -> None:
    """R1, R2: without a grace everything of the checkout dies at once; each command is told of."""
    number = nap()
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(run(checkout, f"trap '' TERM; setsid sleep {number} & sleep {number}"))
            for _ in range(3)
        ]
        await until(lambda: len(processes_with(number)) >= 6)
        started = time.monotonic()
        stopped = await checkout.stop(None, grace_ms=0)
        assert time.monotonic() - started < 2
    assert [item.how for item in stopped] == ["kill"] * 3
    assert {task.result().status for task in running} == {"cancelled"}
    assert processes_with(number) == []


async def test_cancelling_the_caller_stops_the_command(checkout: Checkout) -> None:
    """R1: a cancelled `run` raises only once the command's processes are gone."""
    number = nap()
    caller = asyncio.get_running_loop().create_task(run(checkout, f"trap '' HUP; sleep {number}"))
    await until(lambda: bool(processes_with(number)))
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert processes_with(number) == []
    assert (await run(checkout, "echo fine")).text == "fine\n"


async def test_one_call_id_runs_once_at_a_time(checkout: Checkout) -> None:
    """A second command with the id of a running one is refused; the first isn't touched."""
    async with asyncio.TaskGroup() as group:
        first = group.create_task(checkout.run(shell("sleep 0.5; echo first", call_id="same")))
        await asyncio.sleep(0.1)
        with pytest.raises(WorkspaceOperationError) as refused:
            await checkout.run(shell("echo second", call_id="same"))
        assert refused.value.reason == "conflict"
    assert first.result().text == "first\n"


async def test_slow_commands_delay_neither_each_other_nor_file_operations(checkout: Checkout) -> None:
    """Many commands run at once in one keeper; one that blocks holds up nobody's reply."""
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        slow = [group.create_task(run(checkout, "sleep 2; echo slow")) for _ in range(10)]
        await asyncio.sleep(0.2)
        quick_started = time.monotonic()
        assert (await run(checkout, "echo quick")).text == "quick\n"
        await checkout.call("read_file", {"relative_path": "tracked.txt"})
        assert time.monotonic() - quick_started < 1.7
    assert [task.result().text for task in slow] == ["slow\n"] * 10
    assert time.monotonic() - started < 15  # one after the other it would be 20


async def test_endless_output_is_bounded_and_the_timer_exact(sandboxed: Checkout) -> None:
    """R43: `yes` for some seconds keeps a bounded head and tail, the keeper small, the time-out exact."""
    started = time.monotonic()
    result = await run(sandboxed, "yes & yes >&2", timeout_ms=4_000, max_output_bytes=100_000)
    took_s = time.monotonic() - started
    assert result.status == "timed_out"
    assert 4.0 <= took_s < 8.0
    assert len(result.stdout) <= 100_000
    assert result.stdout_total_bytes > 10_000_000
    assert result.truncated
    assert len(result.text.encode()) <= 101_000
    assert resident_kib(sandboxed.pid) < 60_000


async def test_one_endless_line_is_bounded(sandboxed: Checkout) -> None:
    """R43, R46: 300 MB without a newline, on both streams in turn, keep the keeper's memory bounded."""
    text = "head -c 300000000 /dev/zero | tr '\\0' x; head -c 5000000 /dev/zero | tr '\\0' y >&2"
    result = await run(sandboxed, text, timeout_ms=100_000, max_output_bytes=65_536)
    assert result.exit_code == 0
    assert (result.stdout_total_bytes, result.stderr_total_bytes) == (300_000_000, 5_000_000)
    assert len(result.stdout) == len(result.stderr) == 65_536
    assert resident_kib(sandboxed.pid) < 60_000


async def test_output_is_streamed_while_the_command_runs(checkout: Checkout) -> None:
    """What a command says is seen before it ends."""
    seen: list[tuple[float, bytes]] = []
    started = time.monotonic()
    text = "echo first; sleep 1; echo second"
    result = await run(checkout, text, lambda data: seen.append((time.monotonic() - started, data)))
    assert b"".join(data for _, data in seen) == b"first\nsecond\n" == result.stdout
    assert seen[0][0] < 0.95


async def test_a_viewer_that_is_slow_loses_output_not_the_result(sandboxed: Checkout) -> None:
    """R43: streamed output that the node doesn't take in time is dropped; the keeper holds no more of it."""
    got = 0

    def slow(data: bytes) -> None:
        nonlocal got
        got += len(data)
        time.sleep(0.002)  # the node's own loop is busy

    result = await run(sandboxed, "head -c 100000000 /dev/zero", slow, max_output_bytes=1_000)
    assert result.stdout_total_bytes == 100_000_000
    assert 0 < got < 100_000_000
    assert resident_kib(sandboxed.pid) < 80_000


async def test_network_is_there_only_when_asked_for(sandboxed: Checkout) -> None:
    """A command reaches the machine's network when it may, and else only a loopback of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        connect = f'import socket; socket.create_connection(("localhost", {port}), 5)'
        text = f"python3 -c '{connect}' && echo reached"
        assert "reached" not in (await run(sandboxed, text)).text
        assert (await run(sandboxed, text, network=True)).text == "reached\n"
    own = (
        'python3 -c \'import socket; s = socket.create_server(("127.0.0.1", 0)); '
        'socket.create_connection(s.getsockname()); print("own")\''
    )
    assert (await run(sandboxed, own)).text == "own\n"


async def test_crash_is_told_from_an_exit_code(checkout: Checkout) -> None:
    """A command that dies of a signal says so: as a signal, or as 128 + its number on an old kernel."""
    result = await run(checkout, "sleep 0.2; kill -SEGV $$")
    told = (result.status, result.exit_code, result.signal)
    assert told in (("signalled", None, signal.SIGSEGV), ("exited", 128 + signal.SIGSEGV, None))
    assert (await run(checkout, "exit 139")).exit_code == 139


async def test_request_that_is_too_large_fails_alone(sandboxed: Checkout) -> None:
    """R46: an oversized request or answer is an error of that call; the link lives on."""
    with pytest.raises(WorkspaceOperationError) as refused:
        await sandboxed.call("write_file", {"relative_path": "big", "content": "x" * (17 * 1024 * 1024)})
    assert refused.value.reason == "too_large"
    assert (await run(sandboxed, "echo alive")).text == "alive\n"


async def test_working_folder_outside_of_the_tree_is_refused(checkout: Checkout) -> None:
    """A command's folder is relative to the root and can't lead out of it by name."""
    for folder in ("/etc", "../..", "folder/../.."):
        with pytest.raises(WorkspaceOperationError) as refused:
            await run(checkout, "pwd", cwd=folder)
        assert refused.value.reason == "denied"


async def test_descriptors_of_other_commands_are_not_inherited(checkout: Checkout) -> None:
    """A command has its three streams and nothing else, also while others of its checkout run."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(checkout, "sleep 0.2; ls -l /proc/self/fd")) for _ in range(5)]
    for task in tasks:
        handles = [line for line in task.result().text.splitlines() if " -> " in line]
        # The fourth is the folder that `ls` itself reads.
        assert len(handles) == 4, task.result().text
        assert sum("pipe:" in line for line in handles) == 2


def resident_kib(pid: int) -> int:
    """Memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise AssertionError("no such line")


async def until(condition: object, timeout_s: float = 20) -> None:
    """Waits until something holds."""
    assert callable(condition)
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.02)


async def test_every_command_ends_with_the_checkout(tmp_path: Path) -> None:
    """R2, R12: closing a checkout ends what runs in it, and its callers get an answer."""
    number = nap()
    async with place(tmp_path) as here:
        checkout = await here.open()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(run(checkout, f"setsid sleep {number} & sleep {number}"))
            await until(lambda: len(processes_with(number)) >= 2)
            assert await checkout.close() == ()
            assert processes_with(number) == []
        assert running.result().status == "cancelled"
        assert os.listdir(here.data / "checkouts") == []


async def test_a_command_holds_nothing_of_its_gate(tmp_path: Path) -> None:
    """R2, R58: init holds both ends of its gate, so a keeper's death never opens it; the command none."""
    async with place(tmp_path) as here:
        checkout = await here.open()
        seen = await run(
            checkout, "for fd in /proc/self/fd/*; do readlink $fd; done; ls /proc/self/fd | wc -l"
        )
        assert seen.text.splitlines()[-1] == "4", seen.text  # stdin, stdout, stderr, and the listing's own


async def test_orphans_that_come_and_go_cost_no_exit_code(checkout: Checkout) -> None:
    """A command whose last orphans end beside it keeps its exit code: none is killed before it is told."""
    script = "for n in 1 2 3 4 5 6; do (sleep 0.0$n &); done; sleep 0.03; exit 3"

    async def once() -> int | None:
        return (await run(checkout, script)).exit_code

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(once()) for _ in range(60)]
    assert {task.result() for task in tasks} == {3}
