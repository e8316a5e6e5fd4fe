"""What tools can do to a run: each command runs in the real sandbox, of a real run."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from remit.contract import RunView
from remit.testing import FakeToolCall, Reply, route_by_stage
from whole_kit import (
    MEND,
    NO_CHECKS,
    Ended,
    World,
    differing,
    gone_within,
    look_closely,
    nonce,
    planned,
    processes_with,
    reviewed,
    shell,
    tool,
    use,
    worked,
)


@pytest.fixture(autouse=True)
def _without_checks(world: World) -> None:
    world.workspace = dict(NO_CHECKS)


async def shown(world: World, *replies: Reply, **fields: Any) -> tuple[Ended, list[dict[str, Any]]]:
    """Do a reviewed run with these work replies; it must complete. The results that the model was shown."""
    world.fake.script(*reviewed(*replies))
    ended = await world.run(**fields)
    assert ended.ending == ("completed", None, None), ended.results
    ended.check_story()
    return ended, ended.results


# ---- processes

ESCAPES = {
    "a plain child": "exec -a {nonce} sleep 600",
    "a server and wait": "python3 -m http.server 0 & exec -a {nonce} sleep 600",
    "ignores TERM": "trap '' TERM; exec -a {nonce} sleep 600",
    "a new session": "setsid bash -c 'exec -a {nonce} sleep 600' & exec -a {nonce}-1 sleep 600",
    "double forked": (
        "(setsid bash -c '(exec -a {nonce} sleep 600) & exec -a {nonce}-2 sleep 600' &); sleep 600 # {nonce}"
    ),
    "daemons that ignore TERM": (
        "for i in 1 2 3; do"
        " (setsid bash -c 'trap \"\" TERM HUP INT; exec -a {nonce}-'$i' sleep 600' >/dev/null 2>&1 &); done;"
        " trap '' TERM; exec -a {nonce} sleep 600"
    ),
}


@pytest.mark.parametrize("name", ESCAPES)
async def test_cancel_reaches_the_last_process(world: World, name: str) -> None:
    """R1, R2, R5: a cancel in a tool is `cancelled` only once every process of the run is gone."""
    word = nonce()
    world.fake.script(
        *route_by_stage(plan=[planned()], work=[shell(ESCAPES[name].format(nonce=word)), worked()])
    )
    before = look_closely(world.root)
    async with world.host() as host:
        run = await host.start(world.request())
        async with asyncio.timeout(30):
            while not processes_with(word):
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
        outcome = await run.cancel(reason="enough")
        assert not processes_with(word)
        ended = await Ended.of(host, run)
    assert outcome.changed
    assert ended.ending == ("cancelled", "cancelled", "caller")
    check_receipt(ended.view)
    stopped = ended.of_type("tool.completed")[-1]
    assert stopped["status"] == "cancelled"
    assert stopped["duration_ms"] >= 100, "it ran for longer than that before it was stopped"
    assert look_closely(world.root) == before
    ended.check_story()


def check_receipt(view: RunView) -> None:
    """The receipt is complete and names the tool, with its processes."""
    assert view.cancel is not None
    assert view.cancel.complete
    tools = [item for item in view.cancel.items if item.kind == "tool"]
    assert len(tools) == 1
    assert tools[0].label.startswith("run_shell: ")
    assert tools[0].how in {"term", "kill"}
    assert tools[0].pids
    assert tools[0].ms >= 0
    assert "stage" in {item.kind for item in view.cancel.items}


async def test_nothing_outlives_a_tool_call(world: World) -> None:
    """R2, R12, R39: the call ends with its foreground process; what that left is stopped."""
    word = nonce()
    chatty = f"(while :; do echo noise; sleep 0.05; done; : {word}) & exec 2>&1; echo begun; exit 3"
    began = time.monotonic()
    _, results = await shown(
        world, shell(chatty), shell(f"bash -c 'exec -a {word} sleep 600' & echo left"), MEND
    )
    assert time.monotonic() - began < 25
    assert "exit code 3" in results[0]["content"]
    assert "begun" in results[0]["content"]
    assert "still running at its end, and stopped" in results[1]["content"]
    assert gone_within(word, 0)


async def test_background_work_ends_before_the_review(world: World) -> None:
    """R17: what a tool started in the background is stopped before the review, and that is on record."""
    later = "(sleep 0.4 && echo ready > out.txt) & echo started"
    ended, results = await shown(world, shell(later), shell("sleep 1; ls -a"), MEND)
    assert "stopped: " in results[0]["content"]
    left, clean, *_ = ended.of_type("tool.completed")
    assert left["leftovers"], "the log doesn't say what was stopped"
    assert clean["leftovers"] == []
    assert results[1]["status"] == "success"
    assert "calc" in results[1]["content"]
    assert "out.txt" not in results[1]["content"], "it went on in the checkout"
    assert ended.ending == ("completed", None, None)
    assert ended.view.patch is not None
    assert ended.view.patch.files == 1


async def test_a_timeout_is_a_result(world: World) -> None:
    """R50, R51: a timed-out call takes its time and a grace, keeps its output, and the run goes on afresh."""
    word = nonce()
    commands = [
        f"echo partial; bash -c 'exec -a {word} sleep 60' & exec -a {word} sleep 60",
        f"echo stubborn; trap '' TERM; bash -c 'exec -a {word} sleep 60'; sleep 60",
    ]
    began = time.monotonic()
    _, results = await shown(
        world, *(shell(command, timeout_ms=1_000) for command in commands), shell("echo plan B"), MEND
    )
    assert time.monotonic() - began < 20
    assert [result["status"] for result in results[:3]] == ["timed_out", "timed_out", "success"]
    assert "partial" in results[0]["content"]
    assert "stubborn" in results[1]["content"]
    assert "timed out after 1000 ms" in results[0]["content"]
    assert "plan B" in results[2]["content"]
    assert gone_within(word, 0)


# ---- input and output

ASKING = [
    "read x; echo got:$x",
    "python3 -c 'input()'",
    "git -c user.name=a -c user.email=a@b commit --allow-empty",
    "git clone https://127.0.0.1:1/x",
    "cat",
    "echo CI=$CI prompt=$GIT_TERMINAL_PROMPT; tty; ls -l /proc/self/fd/0",
]


async def test_commands_that_ask_get_no_answer(world: World) -> None:
    """R40: standard input is at its end, there is no terminal, and nothing waits for somebody to type."""
    began = time.monotonic()
    batch = Reply(tool_calls=tuple(tool("run_shell", command=command) for command in ASKING))
    _, results = await shown(world, batch, MEND)
    assert time.monotonic() - began < 20
    texts = [result["content"] for result in results[: len(ASKING)]]
    assert texts[0].startswith("got:\n")
    assert "EOFError" in texts[1]
    assert all(f"exit code {code}" not in text for text in texts[2:4] for code in (0,))
    assert "exit code 0" in texts[4]
    assert "CI=1 prompt=0" in texts[5]
    assert "not a tty" in texts[5]


ODD_BYTES = [
    r"printf 'head\xff\xf0tail\n'",
    "head -c 200000 /dev/urandom",
    r"touch $(printf 'caf\xe9'); ls; rm caf*",
    r"printf '\xff\xfeh\0i\0'",
]


async def test_odd_bytes_are_shown_and_kept(world: World) -> None:
    """R41: bytes that aren't UTF-8 are replaced where they are shown; the call succeeds, the rest is kept."""
    batch = Reply(tool_calls=tuple(tool("run_shell", command=command) for command in ODD_BYTES))
    _, results = await shown(world, batch, MEND)
    assert {result["status"] for result in results[:4]} == {"success"}
    assert results[0]["content"].startswith("head\ufffd\ufffdtail")
    assert "caf\ufffd" in results[2]["content"]
    raw = [path.read_bytes() for path in (world.data / "node").rglob("*") if path.is_file()]
    assert any(b"head\xff\xf0tail\n" in content for content in raw)


@pytest.mark.parametrize("character", ["\u4e2d", "\U0001f600"])
async def test_a_cut_falls_between_characters(world: World, character: str) -> None:
    """R42: head and tail are kept, the cut is at a character's border, and one mark tells the true size."""
    size = len(character.encode())
    batch = Reply(
        tool_calls=tuple(
            tool("run_shell", command=f"python3 -c \"print('x'*{k} + '{character}'*40000)\"")
            for k in range(4)
        )
    )
    _, results = await shown(world, batch, MEND)
    for k, result in enumerate(results[:4]):
        text = result["content"]
        assert "\ufffd" not in text
        assert len(text.encode()) < 17_000
        assert text.startswith("x" * k + character)
        assert str(k + 40_000 * size + 1) in text, text[-400:]


async def test_endless_output_is_bounded(world: World) -> None:
    """R43, R46: endless output and a huge line are drained into bounded buffers; the time limit is exact."""
    loud = Reply(
        tool_calls=(
            tool("run_shell", command="yes", timeout_ms=1_500),
            tool("run_shell", command="head -c 300000000 /dev/zero | tr '\\0' x"),
            tool("run_shell", command="head -c 30000000 /dev/zero | tr '\\0' x >&2"),
        )
    )
    ended, results = await shown(world, loud, MEND)
    assert results[0]["status"] == "timed_out"
    took = [data["duration_ms"] for data in ended.of_type("tool.completed")]
    assert 1_400 <= took[0] < 6_000
    assert "300000000" in results[1]["content"]
    assert "30000000" in results[2]["content"]
    assert all(len(result["content"]) < 17_000 for result in results)


async def test_the_rest_of_an_output_can_be_read(world: World) -> None:
    """R41: what was cut is read on with `read_output`, up to its end."""
    first = Reply(
        tool_calls=(
            FakeToolCall(name="run_shell", id="call_big", arguments=json.dumps({"command": "seq 20000"})),
        )
    )
    _, results = await shown(
        world, first, use("read_output", tool_call_id="call_big", offset_bytes=60_000), MEND
    )
    assert "read_output" in results[0]["content"]
    assert "\n12223\n" in results[1]["content"]


async def test_redrawn_lines_and_escape_codes(world: World) -> None:
    """R49: the model sees plain text with the last state of a redrawn line, and no control codes."""
    bars = "for i in $(seq 2000); do printf '\\r%d%%' $i; done;"
    codes = "printf '\\033]0;owned\\007\\033[2J\\033[31mred\\n'"
    _, results = await shown(world, shell(f"{bars} {codes}"), MEND)
    text = results[0]["content"]
    assert "2000%" in text
    assert "1999%" not in text
    assert "red" in text
    assert "owned" not in text
    assert not any(ord(character) < 32 and character not in "\n\t" for character in text)


LINE_ENDS = {
    "crlf.txt": b"one\r\ntwo\r\nthree\r\n",
    "mixed.txt": b"one\r\ntwo\nthree\r\n",
    "lone.txt": b"one\nt\rwo\nthree\n",
    "none.txt": b"one\ntwo\nthree",
    "bom.txt": b"\xef\xbb\xbfone\r\ntwo\r\nthree",
}


async def test_an_edit_changes_its_lines_alone(world: World) -> None:
    """R45: an edit with plain line ends changes the named line only, byte for byte, up to the user's tree."""
    for name, content in LINE_ENDS.items():
        (world.root / name).write_bytes(content)
    edits = Reply(
        tool_calls=tuple(
            tool(
                "edit_file",
                relative_path=name,
                old="t\rwo\n" if name == "lone.txt" else "two\n",
                new="t\rwo!\n" if name == "lone.txt" else "two!\n",
            )
            for name in LINE_ENDS
        )
    )
    before = look_closely(world.root)
    _, results = await shown(world, edits)
    assert {result["status"] for result in results} == {"success"}, results
    for name, content in LINE_ENDS.items():
        wanted = content.replace(b"two", b"two!").replace(b"t\rwo", b"t\rwo!")
        assert (world.root / name).read_bytes() == wanted, name
    assert differing(before, look_closely(world.root)) == set(LINE_ENDS)


async def test_special_files_are_refused(world: World) -> None:
    """R48: a FIFO, a socket and a device are refused by type, skipped by search and patch, and named."""
    bind = "import socket; socket.socket(socket.AF_UNIX).bind('s')"
    make = f'mkfifo p; python3 -c "{bind}"; truncate -s 1T sparse; ls'
    tries = Reply(
        tool_calls=(
            tool("read_file", relative_path="p"),
            tool("write_file", relative_path="p", content="x"),
            tool("read_file", relative_path="s"),
            tool("search", pattern="def add"),
            tool("read_file", relative_path="sparse"),
        )
    )
    began = time.monotonic()
    ended, results = await shown(world, shell(make), tries, shell("rm sparse"), MEND)
    assert time.monotonic() - began < 30
    fifo, written, sock, found, sparse = results[1:6]
    assert {fifo["status"], written["status"], sock["status"]} <= {"denied", "failed", "invalid_arguments"}
    assert "calc/__init__.py" in found["content"]
    assert sparse["status"] in {"too_large", "success"}
    assert not (world.root / "p").exists()
    assert ended.view.review is not None
    assert any("p" in flag for flag in ended.view.review.flags), ended.view.review.flags


# ---- what a tool may see


async def test_tools_see_no_keys(world: World) -> None:
    """R36: no tool finds a key of the host, in its own environment or in that of another process."""
    canaries = {f"CANARY_{number}": f"canary{number}x{nonce()}" for number in range(3)} | {
        "X_KEYS_0": nonce(),
        "lower_key": nonce(),
        "DATABASE_URL": f"postgres://u:{nonce()}@h/d",
    }
    world.environment = canaries
    look = (
        "env; cat /proc/self/environ /proc/$PPID/environ /proc/1/environ /proc/[0-9]*/environ;"
        " ls -la ~ /run /proc/*/fd; cat ~/.local/share/remit/* 2>&1"
    )
    _, results = await shown(world, shell(look), MEND)
    text = results[0]["content"]
    assert "PATH=" in text
    for secret in (*canaries.values(), world.fake.api_key):
        assert secret not in text


async def test_paths_outside_are_refused(world: World) -> None:
    """R34, S55: absolute, climbing and linked paths don't lead out of the checkout."""
    outside = world.root.parent / "outside.txt"
    outside.write_text("secret")
    tries = Reply(
        tool_calls=(
            tool("read_file", relative_path="../outside.txt"),
            tool("read_file", relative_path=str(outside)),
            tool("read_file", relative_path="link"),
            tool("write_file", relative_path="folder/new.txt", content="x"),
        )
    )
    make = f"ln -s {outside} link; ln -s {world.root.parent} folder"
    _, results = await shown(world, shell(make), tries, shell("rm link folder"), MEND)
    assert {result["status"] for result in results[1:5]} <= {"denied", "not_found", "invalid_arguments"}
    assert "secret" not in json.dumps(results)
    assert outside.read_text() == "secret"
    assert not (world.root.parent / "new.txt").exists()


async def test_git_of_the_repository_runs_nothing_planted(world: World) -> None:
    """R35: what the repository's own git config would start isn't started by the node."""
    marker = world.root.parent / "planted"
    git_config = world.root / ".git" / "config"
    git_config.write_text(
        git_config.read_text()
        + f'[core]\n\tfsmonitor = "touch {marker}; false"\n\thooksPath = {world.root}/hooks\n'
        + f'[diff]\n\texternal = "touch {marker}"\n'
        + f'[filter "x"]\n\tclean = "touch {marker}; cat"\n\tsmudge = cat\n'
    )
    (world.root / ".gitattributes").write_text("*.py filter=x diff=x\n")
    await shown(world, MEND)
    assert not marker.exists()
