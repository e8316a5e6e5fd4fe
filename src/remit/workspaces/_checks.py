"""Checks: commands that the node runs itself, on the base and on the result; and what the gate makes of both.

Where the workspace names no checks they are found from the project's files (`_finding_checks.py`).
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from remit.contract import Gate, GateVerdict
from remit.workspaces._command import CommandResult, CommandSpec
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._tools import ToolCheckout
from remit.workspaces.keeper._output import clip_text

__all__ = [
    "CheckDefinition",
    "CheckPurpose",
    "CheckRun",
    "compare",
    "configured_checks",
    "describe_broken",
    "run_check",
]

TIMED_OUT = 124
"""The exit code that stands for a check that took too long, as `timeout` has it."""
_NO_TESTS = 5
_TAIL_BYTES = 6_000

CheckPurpose = Literal["test", "lint", "types"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDefinition:
    """A check: what is run, where, and why it was chosen."""

    id: str
    argv: tuple[str, ...]
    cwd: str = ""
    why: str
    problem: str | None = None
    """Why it can't be run, known before it was tried."""
    purpose: CheckPurpose = "test"
    """What it looks at."""

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


async def run_check(
    checkout: ToolCheckout,
    check: CheckDefinition,
    *,
    call_id: str,
    timeout_ms: int,
    settings: WorkspaceSettings,
    environment: Mapping[str, str] | None = None,
) -> CheckRun:
    """Run a check in a checkout.

    Args:
        checkout: Where.
        check: What.
        call_id: What the checkout knows it by.
        timeout_ms: For all of it.
        settings: The workspace's.
        environment: Secrets that checks get.

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
            network=settings.network,
            environment=environment or {},
        )
    )
    problem = None
    if result.status == "failed_to_start":
        problem = f"{check.argv[0]} can't be started: {_why_not(result)}"
    text = clip_text(result.text, max_bytes=_TAIL_BYTES).text
    return CheckRun(exit=_exit_of(result), ms=result.duration_ms, tail=text, problem=problem)


def _why_not(result: CommandResult) -> str:
    """Why a command wasn't started; the system says the same of a script whose interpreter is missing."""
    if result.message is None or result.message.endswith(os.strerror(errno.ENOENT)):
        return (
            "it, or the interpreter that it names, isn't in the sandbox; install it in the project's "
            "environment, or name its folder in the workspace's `path`"
        )
    return result.message


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
