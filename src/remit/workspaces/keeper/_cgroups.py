"""The pids controller: for root the only thing that bounds how many processes a command may have."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "remit-"


def find_pids_folder(root: Path = Path("/sys/fs/cgroup")) -> tuple[str | None, str | None]:
    """A folder in which groups with a bound on processes can be made; else None and why, in words."""
    if os.geteuid() != 0:
        return None, "not needed: the limit on a user's processes holds"
    found = _version_1(root) or _version_2(root)
    if found is None:
        return (
            None,
            "the pids controller isn't there or can't be written, so forks of root's commands have no bound",
        )
    _remove_stale(found)
    folder = found / f"{_PREFIX}{os.getppid()}"
    try:
        folder.mkdir(exist_ok=True)
        if (folder / "cgroup.subtree_control").exists():
            (folder / "cgroup.subtree_control").write_text("+pids")
        _try(folder)
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        return None, f"no group of processes can be made in {found} ({error.strerror or error})"
    return str(folder), None


def _version_1(root: Path) -> Path | None:
    folder = root / "pids"
    return folder if (folder / "cgroup.procs").exists() and os.access(folder, os.W_OK) else None


def _version_2(root: Path) -> Path | None:
    for folder in (root, root / "unified"):
        control = folder / "cgroup.subtree_control"
        with suppress(OSError):
            if "pids" not in (folder / "cgroup.controllers").read_text().split():
                continue
            if "pids" not in control.read_text().split():
                control.write_text("+pids")
            return folder
    return None


def _try(folder: Path) -> None:
    inner = folder / "try"
    inner.mkdir()
    try:
        (inner / "pids.max").write_text("10")
    finally:
        inner.rmdir()


def _remove_stale(parent: Path) -> None:
    """Removes the empty groups of zygotes that are dead; one with processes in it refuses to go."""
    for folder in parent.glob(f"{_PREFIX}*"):
        match = re.fullmatch(rf"{_PREFIX}(\d+)", folder.name)
        if match and not os.path.exists(f"/proc/{match[1]}"):
            for inner in [*folder.iterdir(), folder]:
                if inner.is_dir():
                    with suppress(OSError):
                        inner.rmdir()


def remove_pids_folder(pid: int, root: Path = Path("/sys/fs/cgroup")) -> None:
    """Removes the groups of the zygote `pid`, at its end."""
    for parent in (root / "pids", root, root / "unified"):
        folder = parent / f"{_PREFIX}{pid}"
        if folder.is_dir():
            for inner in [*folder.iterdir(), folder]:
                if inner.is_dir():
                    with suppress(OSError):
                        inner.rmdir()
