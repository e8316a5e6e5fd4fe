"""Setup commands: run once on a base before any model text, in a scratch checkout; what they make is kept.

    key      lines, lock files and manifests, toolchains, allowed variables, network, names of secrets
    run      each line in a shell, in a checkout of the base that isn't a run's
    keep     what they added to the tree (tracked files excepted), to carried folders and to HOME
    show     below what a run's checkout changes, so that every run starts with it and none writes to it

Another base with the same key starts with the same. What isn't named by a lock file, a manifest or
`setup_inputs` doesn't count.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import secrets as random
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from remit.errors import NodeError
from remit.workspaces._checkout import Checkout
from remit.workspaces._command import CommandResult, CommandSpec
from remit.workspaces._continuing import read_facts_of_copy
from remit.workspaces._masking import Masker
from remit.workspaces._prepared import PreparedWorkspace, allowed_environment
from remit.workspaces._protection import matching_paths
from remit.workspaces._setups_kept import DONE
from remit.workspaces._shelf import Toolchain, Toolchains
from remit.workspaces._tool_commands import find_shell, in_words
from remit.workspaces.keeper._output import clip_text
from remit.workspaces.keeper._storage import Storage, remove_tree
from remit.workspaces.keeper._tree import OPAQUE_MARKS, Facts, Scan, scan_recorded, scan_upper, show_path

__all__ = ["SetupDone", "SetupInputs", "find_setup", "run_setup", "setup_key", "with_setup_environment"]

_VERSION: Final = 1
_TAIL_BYTES: Final = 4_000
_MAX_ENTRIES: Final = 2_000_000
_NAMED: Final = 5
_SEARCHED_FILES: Final = 5_000
_SEARCHED_BYTES: Final = 1 << 20
_ENVIRONMENTS: Final = (".venv", "venv", "env")
_INPUTS: Final = frozenset(
    (
        *("package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml"),
        *("pnpm-workspace.yaml", "bun.lock", "bun.lockb", ".nvmrc", ".node-version", ".yarnrc.yml", ".npmrc"),
        *("pyproject.toml", "setup.py", "setup.cfg", "poetry.lock", "uv.lock", "pdm.lock", "Pipfile"),
        *("Pipfile.lock", ".python-version"),
        *("environment.yml", "environment.yaml", "Cargo.toml", "Cargo.lock", "rust-toolchain"),
        *("rust-toolchain.toml", "go.mod", "go.sum", "go.work", "go.work.sum", "pom.xml", "build.gradle"),
        *(
            "build.gradle.kts",
            "settings.gradle",
            "settings.gradle.kts",
            "gradle.lockfile",
            "gradle.properties",
        ),
        *("gradle-wrapper.properties", "maven-wrapper.properties", ".sdkmanrc", "Gemfile", "Gemfile.lock"),
        *("composer.json", "composer.lock", "mix.exs", "mix.lock"),
    )
)
"""Names, in any folder, of what installs hang on."""
_REQUIREMENTS: Final = re.compile(
    r"(?:^|/)(?:requirements/[^/]*|(?:requirements|constraints)[^/]*)\.(?:txt|in)\Z"
)
_CHOSEN: Final = frozenset(
    ("venv", "interpreter", "pyenv", "conda", "editable", "node", "rust", "go", "java", "mount")
)
"""Kinds of toolchains that a project or a person has chosen."""
_REMEMBERED: Final = 64


@dataclass(frozen=True, slots=True)
class SetupDone:
    """What setup commands have made."""

    folder: Path
    notes: tuple[str, ...]
    """What was left out of it, in words."""


class SetupInputs:
    """Which files of a base setup hangs on; of a known base it is known, since a large one has many files."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, ...], tuple[str, ...]] = OrderedDict()

    def find(self, workspace: PreparedWorkspace) -> tuple[str, ...]:
        """Their paths, in order."""
        patterns = workspace.settings.setup_inputs
        key = (workspace.pin.root, workspace.pin.id, *patterns)
        if key not in self._known:
            self._known[key] = _find_inputs(workspace.listing, patterns)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return self._known[key]


def _find_inputs(paths: Iterable[str], patterns: Sequence[str]) -> tuple[str, ...]:
    paths = list(paths)
    found = {path for path in paths if path.rpartition("/")[2] in _INPUTS or _REQUIREMENTS.search(path)}
    if patterns:
        found |= set(matching_paths(paths, patterns, ignore_case=False))
    return tuple(sorted(found))


def setup_key(workspace: PreparedWorkspace, inputs: Sequence[str], *, environment: Mapping[str, str]) -> str:
    """The same for bases on which setup commands would make the same.

    Args:
        workspace: What is being prepared.
        inputs: The files of the base that setup hangs on.
        environment: The node's own; what the workspace lets through of it counts.
    """
    settings = workspace.settings
    network = settings.network if settings.setup_network is None else settings.setup_network
    facts = {
        "version": _VERSION,
        "root": workspace.pin.root,
        "lines": settings.setup,
        "inputs": [[show_path(path), workspace.listing[path]] for path in inputs],
        # Not all of PATH: it differs from one terminal to the next.
        "toolchains": [str(one.folder) for one in workspace.toolchains.items if one.kind in _CHOSEN],
        "shown": [str(settings.toolchains), [str(folder) for folder in settings.path]],
        "environment": allowed_environment(settings, environment),
        "carry": settings.carry,
        "network": network,
        "secrets": [[one.name, one.to] for one in settings.secrets],
        "isolation": [workspace.isolation, workspace.sandbox, os.geteuid()],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def find_setup(data: Path, key: str) -> SetupDone | None:
    """What was made before under this key; it counts as used now. Blocking."""
    folder = data / "setups" / key
    try:
        notes = tuple(str(note) for note in json.loads((folder / DONE).read_text())["notes"])
        os.utime(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return SetupDone(folder, notes)


async def run_setup(
    checkout: Checkout, workspace: PreparedWorkspace, *, data: Path, key: str, timeout_ms: int
) -> SetupDone:
    """Run the commands in a scratch checkout, which is closed then, and keep what they have made.

    Args:
        checkout: Made for this, with `keep_home`.
        workspace: What is being prepared.
        data: The node's data folder.
        key: What it is kept under.
        timeout_ms: For all of them together.

    Raises:
        NodeError: A command failed; the message holds its output. Nothing is kept.

    Cancellation: the commands are ended, and the checkout is closed.
    """
    storage = Storage(checkout.storage)
    facts: Facts | None = None
    try:
        if checkout.isolation == "copy":
            facts = await asyncio.to_thread(read_facts_of_copy, storage)
        ends = asyncio.get_running_loop().time() + timeout_ms / 1000
        for number, line in enumerate(workspace.settings.setup):
            left_ms = int((ends - asyncio.get_running_loop().time()) * 1000)
            await _run_line(checkout, workspace, number, line, max(1, left_ms))
    except BaseException:
        await _close(checkout, keep=False)
        raise
    await _close(checkout, keep=True)
    try:
        return await asyncio.to_thread(_keep, storage, workspace, facts, data / "setups" / key)
    finally:
        await asyncio.to_thread(remove_tree, storage.folder)


async def _run_line(
    checkout: Checkout, workspace: PreparedWorkspace, number: int, line: str, timeout_ms: int
) -> None:
    settings = workspace.settings
    network = settings.network if settings.setup_network is None else settings.setup_network
    result = await checkout.run(
        CommandSpec(
            call_id=f"setup/{number}",
            argv=(find_shell(), "-c", line),
            environment=workspace.secrets.environment("setup"),
            timeout_ms=timeout_ms,
            max_output_bytes=settings.max_output_bytes,
            network=network,
        )
    )
    if result.status != "exited" or result.exit_code != 0:
        raise NodeError(_failed(line, result, network, timeout_ms), reason="unavailable")


def _failed(line: str, result: CommandResult, network: bool | tuple[str, ...], timeout_ms: int) -> str:
    said = clip_text(result.text, max_bytes=_TAIL_BYTES).text.strip()
    ended = in_words(result, timeout_ms=timeout_ms, network=network)
    return f"setup failed at `{line}`\n{said}\n{ended}"


async def _close(checkout: Checkout, *, keep: bool) -> None:
    await checkout.close(keep=keep)
    if not keep:
        await asyncio.to_thread(remove_tree, checkout.storage)


# ---- what is kept


def _keep(storage: Storage, workspace: PreparedWorkspace, facts: Facts | None, target: Path) -> SetupDone:
    making = target.with_name(f".{target.name}.{random.token_hex(6)}")
    making.mkdir(mode=0o700, parents=True)
    try:
        if facts is None:
            tracked = _keep_upper(storage, making, workspace)
        else:
            tracked = _keep_delta(storage, making, workspace, facts)
        if storage.home.is_dir():
            storage.home.rename(making / "home")
        for carried in sorted(storage.carried.glob("*/upper")):
            kept = making / "carried" / carried.parent.name
            kept.mkdir(mode=0o700, parents=True)
            carried.rename(kept / "upper")
        notes = (*_tracked_note(tracked), *_drop_secrets(making, workspace.secrets.masker))
        done = {"root": workspace.pin.root, "lines": workspace.settings.setup, "notes": notes}
        (making / DONE).write_text(json.dumps(done))
        try:
            making.rename(target)
        except OSError:  # another process has made the same meanwhile
            if not (target / DONE).is_file():
                raise
            remove_tree(making)
        return SetupDone(target, notes)
    except BaseException:
        remove_tree(making)
        raise


def _keep_upper(storage: Storage, making: Path, workspace: PreparedWorkspace) -> list[str]:
    """The overlay's own layer without what it says of the base's files."""
    upper = storage.upper
    remove_tree(upper / ".git")  # where the checkout's own git folder was shown
    scan = scan_upper(str(upper), max_entries=_MAX_ENTRIES)
    tracked = _touched(scan, workspace)
    for path in tracked:
        with suppress(FileNotFoundError):
            (upper / path).unlink()
    for folder in scan.opaque:
        if any(path.startswith(f"{folder}/") for path in workspace.listing):
            tracked.append(f"{folder}/")
            _unmark(upper / folder)
    upper.rename(making / "upper")
    return tracked


def _touched(scan: Scan, workspace: PreparedWorkspace) -> list[str]:
    """Changed, removed or replaced paths of the base itself."""
    listing = workspace.listing
    folders = {parent for path in listing for parent in _parents(path)}
    return [found.path for found in scan.found if found.path in listing or found.path in folders]


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _unmark(folder: Path) -> None:
    for mark in OPAQUE_MARKS:
        with suppress(OSError):
            os.removexattr(folder, mark)


def _keep_delta(storage: Storage, making: Path, workspace: PreparedWorkspace, facts: Facts) -> list[str]:
    """What was added to a copied tree."""
    scan = scan_recorded(str(storage.tree), facts, max_entries=_MAX_ENTRIES)
    tracked = _touched(scan, workspace)
    skipped = set(tracked)
    delta = making / "delta"
    for found in scan.found:
        if found.kind == "gone" or found.path in skipped:
            continue
        place = delta / found.path
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        (storage.tree / found.path).rename(place)
    return tracked


def _tracked_note(tracked: list[str]) -> tuple[str, ...]:
    if not tracked:
        return ()
    shown = ", ".join(show_path(path) for path in sorted(tracked)[:_NAMED])
    more = f" and {len(tracked) - _NAMED} more" if len(tracked) > _NAMED else ""
    return (f"setup changed files of the base, which runs don't get: {shown}{more}",)


def _drop_secrets(making: Path, masker: Masker) -> tuple[str, ...]:
    """Removes files that hold a secret: a run's commands could read it there, and use it."""
    if not masker:
        return ()
    dropped: list[str] = []
    for path in _searched(making):
        with suppress(OSError):
            if masker.names_in(path.read_bytes()):
                path.unlink()
                dropped.append(str(path.relative_to(making)))
    if not dropped:
        return ()
    return (f"not kept from setup, since a secret stands in it: {', '.join(sorted(dropped)[:_NAMED])}",)


def _searched(making: Path) -> Iterator[Path]:
    """Files that may be settings: not too large, and not too deep in what was installed."""
    counted = 0
    for parent, folders, names in os.walk(making):
        depth = len(Path(parent).relative_to(making).parts)
        if depth >= 5:
            folders.clear()
        for name in names:
            path = Path(parent) / name
            info = path.lstat()
            if path.is_symlink() or not path.is_file() or info.st_size > _SEARCHED_BYTES:
                continue
            counted += 1
            if counted > _SEARCHED_FILES:
                return
            yield path


def with_setup_environment(toolchains: Toolchains, done: SetupDone, root: Path) -> Toolchains:
    """The same, with the virtual environment that setup has made in the tree first in PATH."""
    for part in ("upper", "delta"):
        for name in _ENVIRONMENTS:
            if (done.folder / part / name / "pyvenv.cfg").is_file():
                folder = root / name
                path = tuple(dict.fromkeys((str(folder / "bin"), *toolchains.path)))
                made = Toolchain(kind="venv", folder=folder, why="made by setup")
                environment = {**toolchains.environment, "VIRTUAL_ENV": str(folder)}
                return replace(
                    toolchains, items=(made, *toolchains.items), path=path, environment=environment
                )
    return toolchains
