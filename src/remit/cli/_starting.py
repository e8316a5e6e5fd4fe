"""What `remit init` does."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

from remit.cli._place import folder_named, start_folder
from remit.cli._screen import Results
from remit.cli._words import say
from remit.config import FILE_NAME, find_repository_root
from remit.errors import ConfigError, NotFound
from remit.workspaces import CheckDefinition, check_root, find_checks

_SKIPPED: Final = frozenset({".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".tox", "dist"})
_FILES_AT_MOST: Final = 20_000
_READ_BYTES: Final = 262_144


def write_file(wanted: str | None, *, to_stdout: bool) -> int:
    """Write the file, or print it.

    Raises:
        ConfigError: There is one already, or it can't be written.
    """
    here = start_folder()
    folder = folder_named(wanted, here)
    if wanted is not None and folder is None:
        raise NotFound(f"there is no folder {wanted}", param="workspace")
    folder = folder or here
    root = find_repository_root(folder) or folder
    check_root(root)
    checks = asyncio.run(_find_checks(root))
    text = _text(root, checks)
    if to_stdout:
        results = Results()
        results.write_text(text)
        results.require_written()
        return 0
    path = root / FILE_NAME
    _write_new(path, text)
    found = ", ".join(f"{check.id} ({check.why})" for check in checks) or "none; name them in the file"
    say(f"wrote {path}; checks found: {found}")
    return 0


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} is there already and stays as it is; edit it, or move it away") from None
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror or error}") from None


async def _find_checks(root: Path) -> tuple[CheckDefinition, ...]:
    async def read_text(name: str) -> str:
        try:
            with (root / name).open("rb") as file:
                return file.read(_READ_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    async def can_import(module: str, folder: str) -> str | None:
        return None if _is_importable(root, module) else f"{module} isn't installed"

    async def has_program(name: str, folder: str) -> bool:
        return _is_startable(root, folder, name)

    found = await find_checks(
        _paths(root), subdir="", read_text=read_text, can_import=can_import, has_program=has_program
    )
    return tuple(check for check in found if check.problem is None)


def _paths(root: Path) -> list[str]:
    """The project's files, without asking git: a repository's own settings could make it run something."""
    found: list[str] = []
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in _SKIPPED)
        found += (os.path.relpath(os.path.join(folder, name), root) for name in sorted(files))
        if len(found) > _FILES_AT_MOST:
            break
    return found


def _is_importable(root: Path, module: str) -> bool:
    own = root / ".venv" / "bin" / "python"
    command = [str(own) if own.exists() else "python3", "-I", "-c", f"import {module}"]
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False, cwd="/").returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _is_startable(root: Path, folder: str, name: str) -> bool:
    own = [root / ".venv" / "bin", root / folder / ".venv" / "bin", root / folder / "node_modules" / ".bin"]
    search = os.pathsep.join([*map(str, own), os.environ.get("PATH", os.defpath)])
    return shutil.which(name, path=search) is not None


def _text(root: Path, checks: tuple[CheckDefinition, ...]) -> str:
    ref = re.sub(r"[^A-Za-z0-9_.-]", "-", root.name).strip("-.")[:60] or "workspace"
    return _TEMPLATE.format(ref=json.dumps(ref), commands=_commands(checks))


def _commands(checks: tuple[CheckDefinition, ...]) -> str:
    if not checks:
        return (
            "# No checks were found. Name the command that tests this project:\n"
            '# commands = [{ id = "test", executable = "make", args = ["test"] }]\n'
            '# checks = ["test"]\n'
        )
    lines = ["commands = ["]
    for check in checks:
        executable, *args = (json.dumps(part) for part in _argv_at_root(check))
        lines.append(
            f"  {{ id = {json.dumps(check.id)}, executable = {executable}, args = [{', '.join(args)}] }},"
        )
    lines += ["]", f"checks = [{', '.join(json.dumps(check.id) for check in checks)}]"]
    why = "; ".join(f"{check.id}: {check.why}" for check in checks)
    return f"# Found: {why}\n" + "\n".join(lines) + "\n"


def _argv_at_root(check: CheckDefinition) -> tuple[str, ...]:
    """The command as it is started in the root: a named command has no folder of its own."""
    if not check.cwd:
        return check.argv
    return ("sh", "-c", f"cd {shlex.quote(check.cwd)} && {check.command}")


_TEMPLATE: Final = """\
# Settings of Remit for this repository. Flags win over the environment, the environment over files.
# A file in the repository may describe and narrow. What reaches further (the commented tables below) belongs
# in your own settings, ~/.config/remit/remit.toml, or counts here after `remit trust`.

[[nodes.local.workspaces]]
ref = {ref}
root = "."
# What runs may do here: read files, write files, run commands (in the sandbox, on their own copy).
operations = ["read", "write", "command"]
# Whether models may run any command line; else only the commands below.
shell = true
# Commands that models may run by name, and those that Remit itself runs before and after: a result that is
# worse than before is never applied.
{commands}# Paths that no patch may touch.
# freeze = ["vendor/**"]

# [bindings.reviewed]
# profile = "reviewed"                    # plan, work, review; "direct" is work alone
# instructions = "Keep functions short."
# limits = {{ max_cost_usd = 2.0, wall_clock_ms = 1_800_000 }}

# In your own settings:
#
# [providers.openai]
# kind = "openai"
# api_key_env = "OPENAI_API_KEY"          # the name of a variable, never the key itself
#
# [providers.local]
# kind = "openai-compatible"
# base_url = "http://127.0.0.1:11434/v1"
#
# [pools.default]
# members = [{{ model = "openai:gpt-5.2" }}]
"""
