"""Whether a task is solved: its hidden check, in the sandbox, on a copy of the delivered tree."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Final, TypeVar

from remit.cli._solve_tasks import SolveTask, lay_out
from remit.contract import (
    CleanupRequest,
    NodeRequest,
    Opened,
    OpenRequest,
    Prepared,
    PrepareRequest,
    ToolRequest,
    ToolResponse,
)
from remit.errors import ConfigError, NodeError
from remit.primitives import SystemClock, SystemIds
from remit.workspaces import NodeService, SandboxUnavailable, WorkspaceSettings, choose_sandbox

_Answer = TypeVar("_Answer")

CHECK_TIMEOUT_MS: Final = 300_000
_RUN_ID: Final = "check"
_CONFINED: Final = "result"
_BARE: Final = "result-unconfined"
_IDENTITY: Final = ("-c", "user.name=Remit", "-c", "user.email=bench@example.invalid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a hidden check said."""

    solved: bool
    said: str
    """The end of its output."""


def make_repository(task: SolveTask, folder: Path, *, environment: Mapping[str, str]) -> None:
    """A repository with the task's files in one commit.

    Raises:
        ConfigError: git is missing, or failed.
    """
    folder.mkdir(parents=True)
    lay_out(task.files, folder)
    for arguments in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Begin")):
        done = _git(folder, *arguments, environment=environment)
        if done.returncode:
            raise ConfigError(f"git {arguments[0]} failed in {folder}: {_said(done)}")


def apply_patch(patch: str, folder: Path, *, environment: Mapping[str, str]) -> str | None:
    """Apply what a run delivered; None, or why it doesn't apply."""
    if not patch.strip():
        return None
    done = _git(folder, "apply", "--whitespace=nowarn", "-", environment=environment, given=patch)
    return _said(done) if done.returncode else None


async def check_result(
    task: SolveTask, folder: Path, *, data: Path, environment: Mapping[str, str], unconfined: bool
) -> Verdict:
    """Lay the hidden files over the result and run the check in a sandbox.

    Args:
        task: The task.
        folder: A copy of the delivered tree, for this alone.
        data: A data folder for the node that does it.
        environment: Variables; the tools are found in its PATH.
        unconfined: Whether it may run without a sandbox where there is none.

    Raises:
        SandboxUnavailable: There is no sandbox.
        NodeError: The check can't be run.
    """
    lay_out(task.hidden, folder)
    settings = {"root": folder, "shell": True, "checks": (), "max_command_timeout_ms": CHECK_TIMEOUT_MS}
    workspaces = [WorkspaceSettings.model_validate({"ref": _CONFINED, **settings})]
    if unconfined:
        workspaces.append(WorkspaceSettings.model_validate({"ref": _BARE, "sandbox": "none", **settings}))
    service = await NodeService.start(
        workspaces,
        data=data,
        clock=SystemClock(),
        ids=SystemIds(),
        environment=environment,
        allow_unconfined=unconfined,
    )
    try:
        ref = await _choose(service, unconfined=unconfined)
        prepared = await _ask(service, PrepareRequest(run_id=_RUN_ID, workspace_ref=ref), Prepared)
        await _ask(service, OpenRequest(run_id=_RUN_ID, workspace_ref=ref, base=prepared.base), Opened)
        response = await _ask(service, _check_call(task), ToolResponse)
        await service.handle(CleanupRequest(run_id=_RUN_ID))
    finally:
        await service.aclose()
    solved = response.status == "success" and response.exit_code == 0
    return Verdict(solved=solved, said=response.content[-2_000:])


async def _choose(service: NodeService, *, unconfined: bool) -> str:
    """The workspace with a sandbox; without one only where there is none, and that was allowed."""
    keeper = await service.get_keeper()
    try:
        choose_sandbox("auto", keeper.probe, allow_unconfined=False)
    except SandboxUnavailable:
        if not unconfined:
            raise
        return _BARE
    return _CONFINED


def _check_call(task: SolveTask) -> ToolRequest:
    return ToolRequest(
        run_id=_RUN_ID,
        stage_id="work-1",
        tool_call_id="check",
        name="run_shell",
        arguments=json.dumps({"command": task.check, "timeout_ms": CHECK_TIMEOUT_MS}),
        timeout_ms=CHECK_TIMEOUT_MS,
        remaining_ms=CHECK_TIMEOUT_MS,
    )


async def _ask(service: NodeService, request: NodeRequest, shape: type[_Answer]) -> _Answer:
    answer = await service.handle(request)
    if not isinstance(answer, shape):
        raise NodeError(f"the check can't be run: {answer}", reason="unavailable")
    return answer


def _git(
    folder: Path, *arguments: str, environment: Mapping[str, str], given: str | None = None
) -> subprocess.CompletedProcess[bytes]:
    git = which("git", path=environment.get("PATH"))
    if git is None:
        raise ConfigError("git isn't installed or not on PATH; install it, the tasks' repositories need it")
    own = {name: value for name, value in environment.items() if not name.startswith("GIT_")}
    return subprocess.run(
        [git, *_IDENTITY, *arguments],
        cwd=folder,
        env=own | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
        input=None if given is None else given.encode("utf-8", "surrogateescape"),
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        check=False,
    )


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    return (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-500:]
