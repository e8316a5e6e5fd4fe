"""A folder's content as one hash, to show that nothing changed."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TreeState:
    """Every path with its mode and bytes, as a hash."""

    count: int
    sha256: str


def read_tree(root: Path) -> TreeState:
    """All files below a folder, `.git` too."""
    digest, count = hashlib.sha256(), 0
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        digest.update(f"{path.relative_to(root)}\0{mode:o}\0".encode("utf-8", "surrogateescape"))
        if path.is_symlink():
            digest.update(os.fsencode(os.readlink(path)))
        elif path.is_file():
            count += 1
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return TreeState(count, digest.hexdigest())


def changed_paths(root: Path) -> tuple[str, ...]:
    """What differs from the last commit, as git sees it; untracked files too."""
    done = subprocess.run(
        ["git", "--no-optional-locks", "status", "--porcelain", "-z"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    entries = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    return tuple(entry[3:] for entry in entries if entry) if done.returncode == 0 else ("?",)
