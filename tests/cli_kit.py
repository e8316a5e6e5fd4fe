"""The command line as a user starts it: a process of its own, a home of its own, a repository of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from git_repository import git, write

BROKEN = "def double(number):\n    return number + 2\n"
FIXED = "def double(number):\n    return number * 2\n"
TEST = (
    "import unittest\n\nfrom doubling import double\n\n\n"
    "class DoubleTest(unittest.TestCase):\n"
    "    def test_double(self):\n        self.assertEqual(double(3), 6)\n"
)
ANSWER = "double now doubles."
PLAN = {"stage": "plan", "json": {"plan": "Fix double.", "verification": "Run the tests."}}
FIX = {
    "stage": "work",
    "tool_calls": [
        {
            "name": "edit_file",
            "arguments": {"relative_path": "doubling.py", "old": "number + 2", "new": "number * 2"},
        }
    ],
}
DONE = {"stage": "work", "json": {"completion": "Fixed.", "verification": "The tests pass."}}
PASS = {"stage": "review", "json": {"decision": "pass", "output": ANSWER, "summary": "Fine."}}
GOOD: tuple[dict[str, Any], ...] = (PLAN, FIX, DONE, PASS)


def shell(command: str, *, stage: str = "work") -> dict[str, Any]:
    """A reply that runs a command."""
    return {"stage": stage, "tool_calls": [{"name": "run_shell", "arguments": {"command": command}}]}


@dataclass(kw_only=True)
class CommandLine:
    """A user with a home, a data folder, and a repository with a failing test."""

    folder: Path
    repository: Path
    environment: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def make(cls, folder: Path, *, replies: tuple[Mapping[str, Any], ...] = GOOD) -> CommandLine:
        """A fresh user whose own settings name a scripted model."""
        folder = Path(os.path.realpath(folder))
        home, repository = folder / "home", folder / "app"
        for made in (home, repository):
            made.mkdir(parents=True)
        write(repository, {"doubling.py": BROKEN, "test_doubling.py": TEST})
        git(repository, "init", "-q", "-b", "main")
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "-m", "first")
        line = cls(folder=folder, repository=repository)
        line.environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "REMIT_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        line.use(*replies)
        return line

    def use(self, *replies: Mapping[str, Any], **settings: str) -> None:
        """Let the model play these replies."""
        config = self.folder / "home" / "config" / "remit"
        config.mkdir(parents=True, exist_ok=True)
        (config / "replies.json").write_text(json.dumps(list(replies)))
        text = '[providers.script]\nkind = "scripted"\nscript = "replies.json"\n'
        text += '[pools.default]\nmembers = [{ model = "script:any" }]\n'
        (config / "remit.toml").write_text(text + settings.get("more", ""))

    def start(self, *arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "remit.cli", *arguments],
            cwd=cwd or self.repository,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self, *arguments: str, cwd: Path | None = None, stdin: bytes = b"", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "remit.cli", *arguments],
            cwd=cwd or self.repository,
            env=self.environment | environment,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=90,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def read(self, name: str = "doubling.py") -> str:
        """A file of the repository."""
        return (self.repository / name).read_text()

    def newest(self) -> dict[str, Any]:
        """The newest run, as the record has it."""
        return json.loads(self.run("show", "--json").stdout)

    def runs(self) -> list[dict[str, Any]]:
        """Every run on record."""
        return [json.loads(text) for text in self.run("ps", "--all", "--json").stdout.splitlines()]


def wait_for_process(command: str, *, timeout_s: float = 30.0) -> int:
    """The pid of a process with exactly this command line, once there is one."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = find_processes(command)
        if found:
            return found[0]
        time.sleep(0.02)
    raise AssertionError(f"no process {command!r} came up")


def find_processes(command: str) -> list[int]:
    """The processes with exactly this command line that haven't ended."""
    wanted = command.replace(" ", "\0").encode() + b"\0"
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == wanted:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_until_gone(command: str, *, timeout_s: float = 5.0) -> bool:
    """Whether no such process is left after some time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not find_processes(command):
            return True
        time.sleep(0.02)
    return False


def finish(process: subprocess.Popen[str], number: signal.Signals | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a started command, after a signal if one is named."""
    if number is not None:
        process.send_signal(number)
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, out, err
