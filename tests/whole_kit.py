"""What tests of the whole share: a repository, a provider on loopback, a host over both, and looks."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from remit.config import Config, load_config
from remit.contract import DeliveryMode, RunRequest, RunView, Usage
from remit.events import TERMINAL_TYPES, Event
from remit.host import Host, Run
from remit.primitives import Clock
from remit.testing import FakeProvider, FakeToolCall, OpenAIChatDialect, Reply, route_by_stage

MODEL = "fake:gpt-4.1"
KEY_VARIABLE = "FAKE_KEY"
PRICE = {"input_usd_per_mtok": "1.0", "output_usd_per_mtok": "4.0"}
CALC = {
    "calc/__init__.py": "def add(a, b):\n    return a - b\n",
    "tests/__init__.py": "",
    "tests/test_calc.py": (
        "import unittest\n\nfrom calc import add\n\n\nclass AddTest(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
    ),
    "README.md": "# calc\n",
}
"""A small project with a failing test; its check is found as `unittest`."""
PROGRAM = (sys.executable, "-m", "remit.cli")
NO_CHECKS: dict[str, Any] = {"checks": []}


# ---- what the model says


def calls(*tool_calls: FakeToolCall) -> Reply:
    """One reply with tool calls."""
    return Reply(tool_calls=tool_calls)


def tool(name: str, /, **arguments: Any) -> FakeToolCall:
    """One tool call."""
    return FakeToolCall(name=name, arguments=json.dumps(arguments))


def use(name: str, /, **arguments: Any) -> Reply:
    """One reply with one tool call."""
    return calls(tool(name, **arguments))


def shell(command: str, **more: Any) -> Reply:
    """One reply that runs a shell command."""
    return use("run_shell", command=command, **more)


def planned(plan: str = "Mend it.") -> Reply:
    """A plan."""
    return Reply(text=json.dumps({"plan": plan, "verification": "Run the tests."}))


def worked(completion: str = "Mended.") -> Reply:
    """The end of a work stage."""
    return Reply(text=json.dumps({"completion": completion, "verification": "Tests ran."}))


def judged(decision: str = "pass", *, output: str = "It is mended.", summary: str = "Fine.") -> Reply:
    """A verdict."""
    shown = output if decision == "pass" else ""
    return Reply(text=json.dumps({"decision": decision, "output": shown, "summary": summary}))


def reviewed(*work: Reply, review: Sequence[Reply] | None = None, plan: Sequence[Reply] = ()) -> list[Reply]:
    """The replies of a whole reviewed run whose work stage takes these before it reports."""
    return route_by_stage(
        plan=[*plan, planned()], work=[*work, worked()], review=[judged()] if review is None else list(review)
    )


MEND = use("edit_file", relative_path="calc/__init__.py", old="a - b", new="a + b")


class HastyClock:
    """A clock on which waits pass quickly: of each only a fiftieth is really waited."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._skipped_s = 0.0

    def now(self) -> datetime:
        """The moment."""
        return datetime.now(UTC) + timedelta(seconds=self._skipped_s)

    def monotonic(self) -> float:
        """Seconds."""
        return time.monotonic() + self._skipped_s

    async def sleep(self, seconds: float) -> None:
        """Wait a little, and count the whole."""
        self.slept.append(seconds)
        await asyncio.sleep(seconds / 50)
        self._skipped_s += seconds * 49 / 50


# ---- the world


@dataclass(slots=True, kw_only=True)
class World:
    """A repository, a home, and a provider."""

    root: Path
    home: Path
    fake: FakeProvider
    workspace: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings of the workspace; none: as without any configuration."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further settings, as in a file."""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    price: dict[str, Any] = field(default_factory=lambda: dict(PRICE))
    subdir: str = ""

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.home / ".local" / "share" / "remit"

    def all_variables(self) -> dict[str, str]:
        """The environment of whoever calls."""
        names = ("PATH", "LANG", "LC_ALL", "TMPDIR", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")
        known = {name: os.environ[name] for name in names if name in os.environ}
        return {**known, "HOME": str(self.home), KEY_VARIABLE: self.fake.api_key, **self.environment}

    def all_settings(self) -> dict[str, Any]:
        """What stands in the configuration."""
        settings: dict[str, Any] = {
            "providers": {
                "fake": {
                    "kind": "openai-compatible",
                    "base_url": self.fake.base_url,
                    "api_key_env": KEY_VARIABLE,
                }
            },
            "prices": {MODEL: self.price} if self.price else {},
            **self.settings,
        }
        if self.workspace:
            table = {"ref": "app", "root": str(self.root), "shell": True, **self.workspace}
            settings["nodes"] = {"local": {"workspaces": [table]}}
        return settings

    def config(self) -> tuple[Config, str]:
        """The settings in force, and the ref of the workspace."""
        config = load_config(
            environment=self.all_variables(),
            folder=self.home,
            repository=self.root,
            overrides=self.all_settings(),
        ).as_owner()
        config, workspace = config.with_folder(self.root)
        return config, workspace.ref

    @asynccontextmanager
    async def host(
        self, *, delivery: DeliveryMode = "apply", clock: Clock | None = None
    ) -> AsyncGenerator[Host]:
        """A host over this world."""
        async with Host(self.config()[0], door_delivery=delivery, clock=clock) as host:
            yield host

    def request(self, **fields: Any) -> RunRequest:
        """A request for this world's workspace."""
        ref = self.config()[1]
        body: dict[str, Any] = {
            "prompt": "Make the failing test pass",
            "model": MODEL,
            "workspace": {"ref": ref, "base": "worktree", "subdir": self.subdir or None},
            **fields,
        }
        return RunRequest.model_validate(body)

    async def run(
        self, *, delivery: DeliveryMode = "apply", clock: Clock | None = None, **fields: Any
    ) -> Ended:
        """Open a host, do one run, and close it again."""
        async with self.host(delivery=delivery, clock=clock) as host:
            run = await host.start(self.request(**fields))
            return await Ended.of(host, run)

    # ---- from the command line

    def write_settings(self) -> Path:
        """The configuration as a file of the user's own."""
        path = self.home / "remit.toml"
        path.write_text("".join(f"{_key(name)} = {_toml(value)}\n" for name, value in self._tables()))
        return path

    def _tables(self) -> list[tuple[str, Any]]:
        tables = self.all_settings()
        tables.setdefault("pools", {})["default"] = {"members": [{"model": MODEL}]}
        return list(tables.items())

    def start(self, *arguments: str, program: Sequence[str] = PROGRAM) -> subprocess.Popen[str]:
        """Start a command in the repository, as a user would in a terminal of its own."""
        return subprocess.Popen(
            [*program, *arguments],
            cwd=self.root / self.subdir,
            env=self.all_variables() | self.program_variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def program_variables(self) -> dict[str, str]:
        """What the program under test needs to be found, and to find its settings."""
        found = {"TERM": "dumb", "PYTHONDONTWRITEBYTECODE": "1"}
        if "PYTHONPATH" in os.environ:
            found["PYTHONPATH"] = os.environ["PYTHONPATH"]
        return found

    def command(self, *arguments: str, timeout_s: float = 60) -> tuple[int, str, str]:
        """Run a command to its end: exit code, stdout, stderr."""
        process = self.start(*arguments)
        try:
            output, errors = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
        return process.returncode, output, errors

    def start_run(self, *arguments: str, program: Sequence[str] = PROGRAM) -> subprocess.Popen[str]:
        """Start `remit run` with this world's settings."""
        settings = self.write_settings()
        return self.start("run", "fix it", "--config", str(settings), *arguments, program=program)


def _key(name: str) -> str:
    return json.dumps(name)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(name)} = {_toml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(inner) for inner in value) + "]"
    return json.dumps(value)


@dataclass(slots=True, kw_only=True)
class Ended:
    """A run that has ended, with all that is on record of it."""

    view: RunView
    events: tuple[Event, ...]
    results: list[dict[str, Any]]
    """Every tool result that the model was shown, in order."""
    attempts: tuple[Any, ...]

    @classmethod
    async def of(cls, host: Host, run: Run) -> Ended:
        """Wait for the end and read the record."""
        view = await run.ended()
        events = tuple([event async for event in run.events() if event.seq is not None])
        entries = await host.store.read_transcript(run.id)
        results = [result for entry in entries if entry.role == "tool" for result in entry.body["results"]]
        return cls(view=view, events=events, results=results, attempts=await host.store.read_attempts(run.id))

    @property
    def bill(self) -> Usage:
        """The run's usage."""
        assert self.view.usage is not None
        return self.view.usage

    @property
    def types(self) -> list[str]:
        """The types of the stored events."""
        return [event.type for event in self.events]

    @property
    def ending(self) -> tuple[str | None, str | None, str | None]:
        """Kind, class and code."""
        terminal = self.view.terminal
        assert terminal is not None
        return terminal.kind, terminal.class_, terminal.code

    def of_type(self, type_: str) -> list[dict[str, Any]]:
        """The data of each event of a type."""
        return [dict(event.data) for event in self.events if event.type == type_]

    def check_story(self) -> None:
        """What holds for every run, however it ended."""
        assert [event.seq for event in self.events] == list(range(1, len(self.events) + 1))
        ends = [name for name in self.types if name in TERMINAL_TYPES]
        assert ends == [self.types[-1]] == [f"run.{self.view.status.value}"]
        assert self.types.count("run.settling") == 1
        self._check_pairs("tool.started", "tool.completed", "tool_call_id", "stage_id")
        self._check_pairs("work.registered", "work.finished", "kind", "label")
        assert all(data["duration_ms"] is not None for data in self.of_type("work.finished"))
        known, at = {self.view.id}, self.events[0].at
        for event in self.events:
            assert event.at >= at, event
            at = event.at
            assert event.work_id is not None, event
            assert event.parent_work_id is None or event.parent_work_id in known, event
            assert (event.parent_work_id is None) == (event.work_id == self.view.id), event
            known.add(event.work_id)
        assert {data["kind"] for data in self.of_type("work.registered")} <= {"node_call", "run"}
        begun = [data["attempt_id"] for data in self.of_type("attempt.started")]
        ended = [
            data["attempt_id"]
            for name in ("attempt.completed", "attempt.failed")
            for data in self.of_type(name)
        ]
        assert sorted(begun) == sorted(ended)

    def _check_pairs(self, first: str, second: str, *keys: str) -> None:
        begun = sorted(tuple(str(data[key]) for key in keys) for data in self.of_type(first))
        ended = sorted(tuple(str(data[key]) for key in keys) for data in self.of_type(second))
        assert begun == ended


def chat_fake(replies: Sequence[Reply] = (), **dialect: Any) -> FakeProvider:
    """A strict provider on loopback."""
    return FakeProvider(list(replies), dialect=OpenAIChatDialect(**dialect))


# ---- looks


Seen = Mapping[str, tuple[Any, ...]]


def look_closely(folder: Path, *, content: bool = True) -> Seen:
    """Everything in a tree: kind, mode, owner, size, moment of the last change, content; the index too."""
    seen: dict[str, tuple[Any, ...]] = {}
    for parent, folders, names in os.walk(folder):
        if Path(parent) == folder and ".git" in folders:
            folders.remove(".git")
        for name in [*names, *folders]:
            path = Path(parent) / name
            seen[os.fsencode(path.relative_to(folder)).decode("latin-1")] = _facts(path, content=content)
    for name in ("index", "HEAD", "config"):
        if (folder / ".git" / name).is_file():
            seen[f".git/{name}"] = _facts(folder / ".git" / name, content=True)
    return seen


def _facts(path: Path, *, content: bool) -> tuple[Any, ...]:
    info = path.lstat()
    if stat.S_ISDIR(info.st_mode):
        return info.st_mode, info.st_uid, info.st_gid
    inside = ""
    if stat.S_ISLNK(info.st_mode):
        inside = os.readlink(path)
    elif stat.S_ISREG(info.st_mode) and content:
        inside = hashlib.sha256(path.read_bytes()).hexdigest()
    return info.st_mode, info.st_uid, info.st_gid, info.st_size, info.st_mtime_ns, inside


def differing(before: Seen, after: Seen) -> set[str]:
    """The paths that aren't what they were."""
    return {path for path in {*before, *after} if before.get(path) != after.get(path)}


def processes_with(nonce: str) -> dict[int, str]:
    """Living processes that carry a word in their command line: pid to command line."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes()
            if nonce.encode() in words and _state(entry) != "Z":
                found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace")
    return found


def _state(entry: Path) -> str:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0]


def descendants_of(pid: int) -> dict[int, str]:
    """Living processes below a process: pid to command line."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and _state(entry) != "Z":
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found: dict[int, str] = {}
    for child in parents:
        above = child
        while above in parents and above != pid:
            above = parents[above]
        if above == pid and child != pid:
            with contextlib.suppress(OSError):
                found[child] = (Path(f"/proc/{child}/cmdline").read_bytes()).decode(errors="replace")
    return found


def alive(pids: Iterable[int]) -> set[int]:
    """Which of these processes still live."""
    left: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            if _state(Path(f"/proc/{pid}")) != "Z":
                left.add(pid)
    return left


def gone_within(nonce: str, seconds: float) -> bool:
    """Whether no process with the word is left after at most so long."""
    until = time.monotonic() + seconds
    while processes_with(nonce):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def nonce() -> str:
    """A word that no other process carries."""
    return f"nonce{os.urandom(8).hex()}"


def has_sandbox() -> bool:
    """Whether this machine can run a sandboxed command at all."""
    return shutil.which("bwrap") is not None
