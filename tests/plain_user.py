"""Runs something as a user without privileges, from tests that run as root."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

UID = 64_321
"""A number that no user of a usual machine has."""


def run_as_plain_user(
    arguments: Sequence[str], *, folder: Path, cwd: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Runs this interpreter with `arguments` as a plain user with a home and temporary folder of its own.

    Where the interpreter, its packages or the working folder lie below a folder that is closed to others, an
    open stand-in is mounted over that folder for the started process alone, with just those parts in it.
    """
    home = folder / "home"
    home.mkdir(parents=True)
    for path in (folder, home):
        os.chown(path, UID, UID)
    script = [f"mount --bind {part} {stash}" for part, stash in _stashes(folder, cwd)]
    script += [line for closed in _closed_folders(cwd) for line in _open_up(closed, folder, cwd)]
    user = f"exec setpriv --reuid {UID} --regid {UID} --clear-groups --inh-caps=-all --bounding-set=-all"
    script += [f'cd {cwd}; {user} env -i "$@"']
    environment = {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": f"{Path(sys.prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if os.environ.get("CI"):
        environment["CI"] = os.environ["CI"]
    words = [f"{name}={value}" for name, value in environment.items()]
    return subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", "--", "sh", "-euc", "\n".join(script), "sh"),
            *(*words, sys.executable, *arguments),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def missing_programs() -> list[str]:
    """What this needs and the machine lacks."""
    return [name for name in ("unshare", "setpriv", "mount") if shutil.which(name) is None]


def _needed(cwd: Path) -> list[Path]:
    found = [Path(sys.base_prefix), Path(sys.prefix), Path(__file__).resolve().parents[1], cwd.resolve()]
    return [path for path in dict.fromkeys(found) if not any(other in path.parents for other in found)]


def _closed_folders(cwd: Path) -> list[Path]:
    """The outermost folders on the way to what is needed that others can't pass through."""
    closed: list[Path] = []
    for path in _needed(cwd):
        for parent in reversed(path.parents):
            if not parent.stat().st_mode & stat.S_IXOTH:
                closed.append(parent)
                break
    return list(dict.fromkeys(closed))


def _below(closed: Path, cwd: Path) -> list[Path]:
    return [path for path in _needed(cwd) if closed in path.parents]


def _stashes(folder: Path, cwd: Path) -> list[tuple[Path, Path]]:
    pairs: list[tuple[Path, Path]] = []
    for closed in _closed_folders(cwd):
        for path in _below(closed, cwd):
            stash = folder / "stash" / str(len(pairs))
            stash.mkdir(parents=True)
            pairs.append((path, stash))
    return pairs


def _open_up(closed: Path, folder: Path, cwd: Path) -> list[str]:
    lines = [f"mount -t tmpfs -o mode=755 none {closed}"]
    stashed = dict(_stash_names(folder, cwd))
    for path in _below(closed, cwd):
        lines += [f"mkdir -p {path}", f"mount --bind {stashed[path]} {path}"]
    return lines


def _stash_names(folder: Path, cwd: Path) -> list[tuple[Path, Path]]:
    paths = [path for closed in _closed_folders(cwd) for path in _below(closed, cwd)]
    return [(path, folder / "stash" / str(number)) for number, path in enumerate(paths)]
