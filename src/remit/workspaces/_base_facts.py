"""What is known of a base: which checks there are and how they stand on it. Kept, since it costs time."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from remit.contract import CheckState
from remit.workspaces._checkout import Checkout
from remit.workspaces._checks import CheckDefinition, CheckRun, configured_checks, run_check
from remit.workspaces._command import CommandSpec
from remit.workspaces._finding_checks import find_checks
from remit.workspaces._prepared import BaseReader, PreparedWorkspace
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._toolchains import Toolchains
from remit.workspaces.keeper._network_rules import parse_rule

__all__ = ["BaseFacts", "facts_key", "find_facts", "read_facts", "write_facts"]

_FACTS_VERSION = 2
_PROBE_TIMEOUT_MS = 30_000
_LOOK_UP_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFacts:
    """Kept where nothing is missing: what is missing may be there the next time."""

    checks: tuple[tuple[CheckDefinition, CheckState], ...]
    problems: tuple[str, ...]
    """What can't be run, in words."""
    cached: bool


async def find_facts(
    checkout: Checkout, workspace: PreparedWorkspace, reader: BaseReader, *, timeout_ms: int | None
) -> BaseFacts:
    """Find the checks and run them once.

    Args:
        checkout: A scratch checkout of the base.
        workspace: What is being prepared.
        reader: Reads the base.
        timeout_ms: What all checks together may take; one that takes too long has an exit code of its own.
            None: none is run.
    """
    settings = workspace.settings
    problems = (*await _missing_commands(checkout, settings), *await _missing_hosts(settings))
    checks = configured_checks(settings, cwd=workspace.subdir)
    if checks is None:

        async def can_import(module: str, folder: str) -> str | None:
            return await _can_import(checkout, module, folder, workspace.toolchains)

        async def has_program(name: str, folder: str) -> bool:
            return await _has_program(checkout, name, folder)

        checks = await find_checks(
            list(workspace.listing),
            subdir=workspace.subdir,
            read_text=reader.read_text,
            can_import=can_import,
            has_program=has_program,
        )
    if timeout_ms is None:
        found = tuple((check, _state(check, None)) for check in checks)
        return BaseFacts(checks=found, problems=problems, cached=False)
    each_ms = max(1, timeout_ms // max(1, len(checks)))
    secrets = workspace.secrets.environment("checks")
    done = [await _run_on_base(checkout, check, settings, each_ms, secrets) for check in checks]
    said = [f"the check {state.id} can't be run: {state.problem}" for _, state in done if state.problem]
    return BaseFacts(checks=tuple(done), problems=(*problems, *said), cached=False)


async def _missing_commands(checkout: Checkout, settings: WorkspaceSettings) -> tuple[str, ...]:
    """Which named commands aren't there in the sandbox."""
    # Of a check's own the check says it.
    programs = {
        command.executable: command.id
        for command in settings.commands
        if command.id not in (settings.checks or ())
    }
    if not programs:
        return ()
    script = 'for program; do command -v "$program" >/dev/null || printf "%s\\n" "$program"; done'
    result = await checkout.run(_probe(("/bin/sh", "-c", script, "sh", *programs)))
    missing = result.stdout.decode("utf-8", "replace").splitlines()
    return tuple(
        f"the command {programs[program]} can't be started: there is no {program} in the sandbox"
        for program in missing
        if program in programs
    )


async def _missing_hosts(settings: WorkspaceSettings) -> tuple[str, ...]:
    """Which hosts of the network list nobody can look up: mistyped names, or no way out at all."""
    hosts = settings.network if isinstance(settings.network, tuple) else ()
    names = {rule.name: host for host in hosts if (rule := parse_rule(host)).name and not rule.below}
    loop = asyncio.get_running_loop()

    async def look_up(name: str) -> str | None:
        try:
            async with asyncio.timeout(_LOOK_UP_S):
                await loop.getaddrinfo(name, None)
        except (OSError, TimeoutError):
            return f"the host {names[name]} can't be looked up; commands won't reach it"
        return None

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(look_up(name)) for name in names]
    return tuple(said for task in tasks if (said := task.result()) is not None)


async def _can_import(checkout: Checkout, module: str, folder: str, toolchains: Toolchains) -> str | None:
    result = await checkout.run(_probe(("python3", "-c", f"import {module}"), cwd=folder))
    if result.status == "failed_to_start":
        return f"python3 can't be started: {result.message or 'it is missing'}"
    if result.exit_code == 0:
        return None
    advice = _unseen_environment(toolchains) or "install it in the project's environment"
    return f"python3 has no module {module} in the sandbox; {advice}"


def _unseen_environment(toolchains: Toolchains) -> str | None:
    """Which virtual environment commands don't see, and why: what is missing may be in it."""
    for refused in toolchains.refused:
        if os.path.isfile(refused.folder / "pyvenv.cfg"):
            return f"{refused.folder} isn't shown, since {refused.reason}"
    return None


async def _has_program(checkout: Checkout, name: str, folder: str) -> bool:
    argv = ("/bin/sh", "-c", 'command -v "$1" >/dev/null', "sh", name)
    result = await checkout.run(_probe(argv, cwd=folder))
    return result.status == "exited" and result.exit_code == 0


def _probe(argv: tuple[str, ...], *, cwd: str = "") -> CommandSpec:
    return CommandSpec(call_id=f"probe/{argv[0]}", argv=argv, cwd=cwd, timeout_ms=_PROBE_TIMEOUT_MS)


async def _run_on_base(
    checkout: Checkout,
    check: CheckDefinition,
    settings: WorkspaceSettings,
    timeout_ms: int,
    secrets: Mapping[str, str],
) -> tuple[CheckDefinition, CheckState]:
    run = await run_check(
        checkout,
        check,
        call_id=f"check/{check.id}",
        timeout_ms=min(timeout_ms, settings.max_command_timeout_ms),
        settings=settings,
        environment=secrets,
    )
    return check, _state(check, run)


def _state(check: CheckDefinition, run: CheckRun | None) -> CheckState:
    """How a check stands on the base; None: it wasn't run."""
    return CheckState(
        id=check.id,
        command=check.command,
        why=check.why,
        base_exit=run.exit if run is not None else None,
        ms=run.ms if run is not None and run.exit is not None else None,
        problem=run.problem if run is not None else check.problem,
    )


def facts_key(workspace: PreparedWorkspace) -> str:
    """What the facts of a base hang on: its content, the settings, and the environment that commands see."""
    pin = workspace.pin
    facts = {
        "setup": workspace.setup.name if workspace.setup is not None else None,
        "version": _FACTS_VERSION,
        "base": [pin.id, pin.kind, pin.root, workspace.subdir],
        "settings": workspace.settings.model_dump(mode="json"),
        "sandbox": [workspace.isolation, workspace.sandbox],
        "toolchains": [*workspace.toolchains.describe(), *_installed(workspace.toolchains)],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _installed(toolchains: Toolchains) -> list[str]:
    """When something was last installed into an environment."""
    return [
        f"{packages} {packages.stat().st_mtime_ns}"
        for item in toolchains.items
        for packages in sorted(item.folder.glob("lib/python*/site-packages"))
    ]


def read_facts(path: Path) -> BaseFacts | None:
    """The facts kept in a file; None: there are none, or they can't be read."""
    try:
        value = json.loads(path.read_text())
        checks = tuple((_check(item["check"]), CheckState.model_validate(item["state"])) for item in value)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return BaseFacts(checks=checks, problems=(), cached=True)


def _check(item: dict[str, Any]) -> CheckDefinition:
    argv = tuple(item.pop("argv"))
    return CheckDefinition(argv=argv, **item)


def write_facts(path: Path, facts: BaseFacts) -> None:
    """Keep facts in a file."""
    value = [{"check": asdict(check), "state": state.to_json()} for check, state in facts.checks]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(value))
    unfinished.replace(path)
