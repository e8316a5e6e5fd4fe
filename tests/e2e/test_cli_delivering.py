"""Deliveries as a person at the command line makes them: asked, on a branch, discarded, undone, continued."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli_kit import ANSWER, BROKEN, DONE, FIX, FIXED, GOOD, PASS, PLAN, CommandLine
from git_repository import git, look

REJECT = {"stage": "review", "json": {"decision": "reject", "output": "", "summary": "No."}}


_IN_A_TERMINAL = """
import fcntl, runpy, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
runpy.run_module("remit.cli", run_name="__main__", alter_sys=True)
"""
"""So that Ctrl-C reaches it as it reaches a person's program."""


class Terminal:
    """A `remit` that a person has started in a terminal."""

    def __init__(self, line: CommandLine, *arguments: str) -> None:
        self._fd, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _IN_A_TERMINAL, *arguments],
            cwd=line.repository,
            env={key: value for key, value in line.environment.items() if key != "CI"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.said = ""

    def hear(self, wanted: str, *, timeout_s: float = 60) -> str:
        """Everything up to some text."""
        deadline = time.monotonic() + timeout_s
        start = len(self.said)
        while wanted not in self.said[start:]:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"never said {wanted!r}: {self.said[-2000:]}"
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                data = b""
            assert data, f"ended before it said {wanted!r}: {self.said[-2000:]}"
            self.said += data.decode("utf-8", "replace")
        return self.said[start:]

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def end(self, *, timeout_s: float = 60) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                if select.select([self._fd], [], [], 0.1)[0]:
                    data = os.read(self._fd, 65536)
                    if not data:
                        break
                    self.said += data.decode("utf-8", "replace")
            except OSError:
                break
        code = self.process.wait(timeout=timeout_s)
        os.close(self._fd)
        return code


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    return CommandLine.make(tmp_path)


QUESTION = "[n]othing? "


def test_a_person_is_asked(line: CommandLine) -> None:
    """At a terminal nothing is applied unasked; diff shows it; apply applies; undo takes it back."""
    terminal = Terminal(line, "run", "make the test pass")
    before = terminal.hear(QUESTION)
    assert line.read() == BROKEN
    for shown in (ANSWER, "exit 1", "exit 0", "doubling.py", "cost"):
        assert shown in before
    assert "remit patch" not in before, "the question stands in the place of the next steps"
    terminal.type("d\n")
    assert "number * 2" in terminal.hear(QUESTION)
    terminal.type("a\n")
    assert terminal.end() == 0
    assert line.read() == FIXED
    newest = line.newest()
    assert newest["terminal"]["kind"] == "completed"
    history = line.run("undo", newest["id"])
    assert history.returncode == 0, history.stderr
    assert line.read() == BROKEN
    again = line.run("undo", newest["id"])
    assert again.returncode != 0
    assert "was taken back already" in again.stderr
    assert f"remit patch {newest['id']} --apply" in again.stderr


def test_ctrl_c_at_the_question_changes_nothing(line: CommandLine) -> None:
    """Ctrl-C is `nothing`: exit 0, the patch is kept, and can be applied, branched or discarded later."""
    before = look(line.repository)
    terminal = Terminal(line, "run", "make the test pass")
    terminal.hear(QUESTION)
    terminal.type("\x03")
    assert terminal.end() == 0, terminal.said
    assert look(line.repository) == before
    run_id = line.newest()["id"]
    done = line.run("patch", run_id, "--branch", "fix/double")
    assert done.returncode == 0, done.stderr
    assert git(line.repository, "show", "fix/double:doubling.py") + "\n" == FIXED
    again = line.run("patch", run_id, "--branch", "main")
    assert again.returncode == 1
    assert "there is a branch main already" in again.stderr
    undone = line.run("undo", run_id)
    assert undone.returncode == 0, undone.stderr
    assert git(line.repository, "branch", "--list", "fix/double") == ""
    assert line.run("patch", run_id, "--discard").returncode == 0
    refused = line.run("patch", run_id, "--apply")
    assert refused.returncode == 2
    assert "discarded" in refused.stderr
    assert look(line.repository) == before


def test_a_conflict_after_the_answer(line: CommandLine) -> None:
    """Files that changed while the question stood: nothing is applied, exit 1, the terminal stays."""
    terminal = Terminal(line, "run", "make the test pass")
    terminal.hear(QUESTION)
    (line.repository / "doubling.py").write_text("mine\n")
    terminal.type("a\n")
    assert terminal.end() == 1, terminal.said
    assert line.read() == "mine\n"
    assert line.newest()["terminal"]["kind"] == "completed"


def test_a_branch_and_a_page_for_ci(line: CommandLine) -> None:
    """`--branch` leaves tree and index alone; `--summary` has its page; a taken name costs nothing."""
    before = look(line.repository)
    page = line.folder / "summary.md"
    done = line.run("run", "make the test pass", "--branch", "fix/double", "--summary", str(page))
    assert done.returncode == 0, done.stderr
    assert look(line.repository) == before
    assert git(line.repository, "status", "--porcelain") == ""
    assert git(line.repository, "log", "--format=%s", "main..fix/double") == "make the test pass"
    assert line.newest()["delivery"] == {"mode": "branch", "status": "delivered", "ref": "fix/double"}
    assert "on the branch `fix/double`" in page.read_text()
    again = line.run("run", "make the test pass", "--branch", "fix/double")
    assert again.returncode == 1
    assert "there is a branch fix/double already" in again.stderr
    assert line.newest()["usage"]["coverage"]["attempts"] == 0
    assert line.run("run", "x", "--branch", "a..b").returncode == 2
    assert line.run("run", "x", "--summary", str(line.folder / "none/x.md")).returncode == 2


def test_a_rejected_run_is_continued(line: CommandLine) -> None:
    """R27: work that was rejected stays readable, and `continue` goes on from it, in its session."""
    line.use(PLAN, FIX, DONE, REJECT)
    page = line.folder / "summary.md"
    rejected = line.run("run", "make the test pass", "--summary", str(page))
    assert rejected.returncode == 5, rejected.stderr
    assert "failed (rejected/rejected)" in page.read_text()
    first = line.newest()
    assert "number * 2" in line.run("patch", first["id"]).stdout
    assert line.read() == BROKEN
    look_at = {
        "stage": "work",
        "tool_calls": [{"name": "read_file", "arguments": {"relative_path": "doubling.py"}}],
    }
    line.use(PLAN, look_at, DONE, PASS)
    done = line.run("continue", first["id"], cwd=line.folder)
    assert done.returncode == 0, done.stderr
    assert line.read() == FIXED
    second = line.newest()
    assert (second["continues"], second["session_id"]) == (first["id"], first["session_id"])
    line.use(*GOOD)
    third = line.run("continue", second["id"], "once more", "--patch-only")
    assert "its work was applied" in third.stderr
    assert line.newest()["session_id"] == first["session_id"]
