"""What `undo` and `patch` do about a run whose process was killed, before anything else has cleaned up."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_kit import FIX, PLAN, CommandLine, finish, shell, wait_for_process, wait_until_gone

FILES = 600
WRITE_MANY = shell(f"for n in $(seq 1 {FILES}); do echo new > many/$n.txt; done")
DONE = {"stage": "work", "json": {"completion": "Fixed.", "verification": "None."}}
PASS = {"stage": "review", "json": {"decision": "pass", "output": "New.", "summary": "Fine."}}


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """A repository with many files."""
    line = CommandLine.make(tmp_path)
    (line.repository / "many").mkdir()
    for number in range(1, FILES + 1):
        (line.repository / "many" / f"{number}.txt").write_text("old\n")
    return line


def contents(line: CommandLine) -> dict[str, str]:
    """Every file below `many`."""
    return {path.name: path.read_text() for path in (line.repository / "many").iterdir()}


def wait_for(there: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until something is so, as long as the program runs."""
    until = time.monotonic() + 60
    while not there():
        assert process.poll() is None, "it ended before"
        assert time.monotonic() < until, "it didn't come"
        time.sleep(0.002)


def is_half_done(line: CommandLine) -> bool:
    """Whether a delivery has put files beside those that they will replace."""
    names = os.listdir(line.repository) + os.listdir(line.repository / "many")
    return any(name.startswith(".remit-") for name in names)


def test_undo_of_a_delivery_that_was_killed(line: CommandLine) -> None:
    """R57: `undo` is a remit on that tree too: what was half applied is taken back, without another run."""
    line.use(PLAN, WRITE_MANY, DONE, PASS)
    before = contents(line)
    process = line.start("run", "make them new")
    wait_for(lambda: is_half_done(line), process)
    process.kill()
    process.communicate()
    assert is_half_done(line)
    (run,) = line.runs()
    done = line.run("undo", run["id"])
    assert done.returncode == 0, done.stderr
    assert "taken back" in done.stderr
    assert contents(line) == before
    assert not is_half_done(line)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_tree_is_changed_by_hand(line: CommandLine, number: signal.Signals) -> None:
    """R57, S63: `patch --apply` and `undo` end with the tree whole, whatever one signal says meanwhile."""
    line.use(PLAN, WRITE_MANY, DONE, PASS)
    before = contents(line)
    assert line.run("run", "make them new", "--patch-only").returncode == 0
    (run,) = line.runs()
    for words in (("patch", run["id"], "--apply"), ("undo", run["id"])):
        process = line.start(*words)
        wait_for(lambda: is_half_done(line), process)
        code, _, said = finish(process, number)
        assert code == 0, (code, said)
        assert not is_half_done(line)
        assert (contents(line) == before) is (words[0] == "undo")
        assert set(contents(line).values()) == ({"old\n"} if words[0] == "undo" else {"new\n"})


def test_the_patch_of_a_run_that_was_killed(line: CommandLine) -> None:
    """R57: before the next start a patch that was never stored is not "no changes"; after it, it is there."""
    line.use(PLAN, FIX, shell("sleep 7531"))
    process = line.start("run", "fix it")
    wait_for_process("sleep 7531")
    process.send_signal(signal.SIGKILL)
    finish(process)
    assert wait_until_gone("sleep 7531")
    (run,) = line.runs()
    unended = line.run("patch", run["id"])
    line.use(PLAN)
    line.run("run", "another")
    ended = line.run("patch", run["id"])
    assert unended.returncode == 2
    assert "changed nothing" not in unended.stderr
    assert "isn't known" in unended.stderr
    assert ended.returncode == 0, ended.stderr
    assert "+    return number * 2" in ended.stdout
    lost = next(one for one in line.runs() if one["id"] == run["id"])
    assert (lost["patch"]["files"], lost["patch"]["reviewed"]) == (1, False)


def test_undo_of_a_run_in_place_that_was_killed(line: CommandLine) -> None:
    """R57: the user's own files, changed half way by a run that was killed, are as before after `undo`."""
    line.use(PLAN, WRITE_MANY, shell("rm doubling.py; sleep 7533"))
    before = contents(line) | {"doubling.py": line.read()}
    process = line.start("run", "make them new", "--in-place")
    wait_for_process("sleep 7533")
    (run,) = line.runs()
    early = line.run("undo", run["id"])
    assert (early.returncode, "still at work" in early.stderr) == (2, True), early.stderr
    process.send_signal(signal.SIGKILL)
    finish(process)
    assert not (line.repository / "doubling.py").exists()
    undone = line.run("undo", run["id"])
    assert undone.returncode == 0, undone.stderr
    assert "whoever did it" in undone.stderr
    assert f"{FILES + 1} files in {line.repository} as before" in undone.stderr
    assert contents(line) | {"doubling.py": line.read()} == before
    kept = next(text for text in undone.stderr.splitlines() if "kept as a patch: " in text)
    assert "-old\n+new" in Path(kept.partition("kept as a patch: ")[2]).read_text()
    again = line.run("undo", run["id"])
    assert again.returncode == 2, again.stderr
    line.use(PLAN)
    other = line.run("run", "another")  # its host ends the one that died
    assert "was left behind" in other.stderr
    lost = next(one for one in line.runs() if one["id"] == run["id"])
    assert (lost["terminal"]["code"], lost["patch"]["files"]) == ("unproven", FILES + 1)
    assert "-old\n+new" in line.run("patch", run["id"]).stdout
    assert "delivery.undone" in line.run("show", run["id"]).stdout
