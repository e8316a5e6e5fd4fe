"""Checks: commands that the node runs itself, on the base and on the result; and what the gate makes of both.

Where the workspace names no checks they are found from the project's files: pytest, else unittest, else the
`test` target of make. Finding reads files only; whether pytest can be imported is asked in the sandbox.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from remit.contract import Gate, GateVerdict
from remit.workspaces._command import CommandResult, CommandSpec
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._tools import ToolCheckout
from remit.workspaces.keeper._output import clip_text

__all__ = [
    "CheckDefinition",
    "CheckRun",
    "compare",
    "configured_checks",
    "describe_broken",
    "find_checks",
    "run_check",
]

TIMED_OUT = 124
"""The exit code that stands for a check that took too long, as `timeout` has it."""
_NO_TESTS = 5
_TAIL_BYTES = 6_000
_TEST_FILE = re.compile(r"(?:test_[^/]*|[^/]*_test)\.py\Z")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_READ_AT_MOST = 20

ReadText = Callable[[str], Awaitable[str]]
"""The text of a base file, by path; empty where it can't be read."""
CanImport = Callable[[str, str], Awaitable[str | None]]
"""(module, folder) -> None when the interpreter in the sandbox can import it there, else why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDefinition:
    """A check: what is run, where, and why it was chosen."""

    id: str
    argv: tuple[str, ...]
    cwd: str = ""
    why: str
    problem: str | None = None
    """Why it can't be run, known before it was tried."""

    @property
    def command(self) -> str:
        """As a person would type it."""
        return shlex.join(self.argv)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """What one run of a check came to."""

    exit: int | None
    """None: it wasn't run to its end."""
    ms: int
    tail: str
    """The end of its output, cleaned and bounded; untrusted."""
    problem: str | None = None
    """Why it couldn't be started."""


def configured_checks(settings: WorkspaceSettings, *, cwd: str) -> tuple[CheckDefinition, ...] | None:
    """The checks that the workspace names; None: it leaves them to be found."""
    if settings.checks is None:
        return None
    commands = [settings.get_command(name) for name in settings.checks]
    return tuple(
        CheckDefinition(id=command.id, argv=command.argv, cwd=cwd, why="named by the workspace")
        for command in commands
    )


async def find_checks(
    paths: Sequence[str], *, subdir: str, read_text: ReadText, can_import: CanImport
) -> tuple[CheckDefinition, ...]:
    """Find how a project is tested: in the working folder, else in the folders above it.

    Args:
        paths: Every file of the base.
        subdir: The working folder, from the root.
        read_text: Reads a file of the base.
        can_import: Asks the interpreter that commands would use.

    Returns:
        One check, or none.
    """
    for folder in _upwards(subdir):
        prefix = f"{folder}/" if folder else ""
        inside = [path.removeprefix(prefix) for path in paths if path.startswith(prefix)]
        project = _Project(folder, frozenset(inside), tuple(inside), read_text)
        found = await _find_python(project, can_import) or await _find_make(project)
        if found:
            return (found,)
    return ()


def _upwards(subdir: str) -> list[str]:
    parts = [part for part in subdir.split("/") if part]
    return ["/".join(parts[:length]) for length in range(len(parts), -1, -1)]


@dataclass(frozen=True, slots=True)
class _Project:
    """A folder that may be a project."""

    folder: str
    names: frozenset[str]
    paths: tuple[str, ...]
    read_text: ReadText

    async def read(self, name: str) -> str:
        if name not in self.names:
            return ""
        return await self.read_text(f"{self.folder}/{name}" if self.folder else name)

    @property
    def test_files(self) -> list[str]:
        """Python test files in the folder itself, or below `tests` or `test`."""
        return [
            path
            for path in self.paths
            if _TEST_FILE.search(path)
            and ("/" not in path or path.split("/", 1)[0] in ("tests", "test") or "/tests/" in path)
        ]


async def _find_python(project: _Project, can_import: CanImport) -> CheckDefinition | None:
    configured = await _pytest_config(project)
    tests = project.test_files
    if configured is None and not tests:
        return None
    problem = await can_import("pytest", project.folder)
    if problem is not None:
        unittest = await _find_unittest(project, tests)
        if unittest is not None:
            return unittest
    return CheckDefinition(
        id="pytest",
        argv=("python3", "-m", "pytest", "-q"),
        cwd=project.folder,
        why=configured or f"test files such as {tests[0]}",
        problem=problem,
    )


async def _pytest_config(project: _Project) -> str | None:
    """Where pytest is configured, in words."""
    for name, pattern in (
        ("pytest.ini", r"^\[pytest\]"),
        (".pytest.ini", r"^\[pytest\]"),
        ("pyproject.toml", r"^\[tool\.pytest[.\]]"),
        ("tox.ini", r"^\[pytest\]"),
        ("setup.cfg", r"^\[tool:pytest\]"),
    ):
        found = re.search(pattern, await project.read(name), re.MULTILINE)
        if found or (name == "pytest.ini" and name in project.names):
            return f"{name} [tool.pytest]" if name == "pyproject.toml" else name
    return next((name for name in ("conftest.py", "tests/conftest.py") if name in project.names), None)


async def _find_unittest(project: _Project, tests: Sequence[str]) -> CheckDefinition | None:
    for path in tests[:_READ_AT_MOST]:
        if re.search(r"^\s*(?:import|from)\s+unittest\b", await project.read(path), re.MULTILINE):
            return CheckDefinition(
                id="unittest",
                argv=("python3", "-m", "unittest", "discover", *_discover_options(project, path)),
                cwd=project.folder,
                why=f"{path} uses unittest, and pytest isn't there",
            )
    return None


def _discover_options(project: _Project, path: str) -> list[str]:
    folder, _, name = path.rpartition("/")
    top = folder.split("/")[0]
    options: list[str] = []
    if top:
        options += ["-s", top]
        options += ["-t", "."] if f"{top}/__init__.py" in project.names else []
    return options if name.startswith("test") else [*options, "-p", "*_test.py"]


async def _find_make(project: _Project) -> CheckDefinition | None:
    for name in _MAKEFILES:
        if re.search(r"^test\s*:(?!=)", await project.read(name), re.MULTILINE):
            return CheckDefinition(
                id="make-test", argv=("make", "test"), cwd=project.folder, why=f"{name} has a target `test`"
            )
    return None


async def run_check(
    checkout: ToolCheckout,
    check: CheckDefinition,
    *,
    call_id: str,
    timeout_ms: int,
    settings: WorkspaceSettings,
) -> CheckRun:
    """Run a check in a checkout.

    Raises:
        KeeperLost: The checkout is gone.

    Cancellation: its processes are gone before the cancel is raised.
    """
    if check.problem is not None:
        return CheckRun(exit=None, ms=0, tail="", problem=check.problem)
    result = await checkout.run(
        CommandSpec(
            call_id=call_id,
            argv=check.argv,
            cwd=check.cwd,
            timeout_ms=max(1, timeout_ms),
            max_output_bytes=settings.max_output_bytes,
            network=settings.network_allowed,
        )
    )
    problem = None
    if result.status == "failed_to_start":
        problem = f"{check.argv[0]} can't be started: {result.message or 'it is missing'}"
    text = clip_text(result.text, max_bytes=_TAIL_BYTES).text
    return CheckRun(exit=_exit_of(result), ms=result.duration_ms, tail=text, problem=problem)


def _exit_of(result: CommandResult) -> int | None:
    if result.status == "exited":
        return result.exit_code
    if result.status == "signalled":
        return 128 + (result.signal or 0)
    return TIMED_OUT if result.status == "timed_out" else None


def compare(gate: Gate, base_exit: int | None, exit_: int | None) -> GateVerdict:
    """What a check says of the result.

    `no_worse`: an exit of 0 passes; after a base of 0 anything else is worse. Where both failed, the same
    exit passes, and so does 1 (tests ran and some failed) after an exit that says that less had run (anything
    but 1 and 5, "no tests"). What couldn't be run on the base can only pass or be skipped. `all_pass`: 0 or
    worse. `report` says `skipped` where `no_worse` would say `worse`: it blocks nothing.

    Args:
        gate: The workspace's policy.
        base_exit: Exit code on the base; None: it couldn't be run there.
        exit_: Exit code on the result; None: it couldn't be run.
    """
    worse: GateVerdict = "skipped" if gate == "report" else "worse"
    if exit_ == 0:
        return "pass"
    if gate == "all_pass":
        return "worse"
    if base_exit is None:
        return "skipped"
    if exit_ is None or base_exit == 0:
        return worse
    more_ran = exit_ == 1 and base_exit not in (1, _NO_TESTS)
    return "pass" if exit_ == base_exit or more_ran else worse


def describe_broken(check: CheckDefinition, base_exit: int | None, run: CheckRun) -> str:
    """What to tell the work stage of a check that is worse."""
    before = "couldn't be run" if base_exit is None else f"exited {base_exit}"
    now = run.problem or ("was stopped" if run.exit is None else f"exits {run.exit}")
    what = f"The check {check.id} (`{check.command}`)"
    return f"{what} {before} on the base and now {now}. Its output:\n{run.tail}"
