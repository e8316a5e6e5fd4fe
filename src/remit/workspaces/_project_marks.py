"""Tells from a workspace's files which languages it is written in, and which versions it asks for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["by_number", "choose_version", "has_marks", "read_small", "read_upwards"]

_MAX_BYTES: Final = 262_144
_MAX_FOLDERS: Final = 200
_WORD: Final = re.compile(r"[\w.+/-]{1,96}\Z")


def read_small(path: Path) -> str:
    """A small text file; empty when it isn't one, or can't be read."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return ""
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def has_marks(root: Path, names: Iterable[str]) -> bool:
    """Whether one of these files lies in the root, or in a folder right below it (a monorepo's packages)."""
    names = tuple(names)
    if any((root / name).is_file() for name in names):
        return True
    try:
        folders = [entry for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return False
    return any(os.path.isfile(os.path.join(f.path, name)) for f in folders[:_MAX_FOLDERS] for name in names)


def read_upwards(root: Path, *names: str) -> str:
    """The first of these files that says something, in the root or above it; stripped."""
    for folder in (root, *root.parents):
        for name in names:
            text = read_small(folder / name).strip()
            if text:
                return text
    return ""


def choose_version(installed: Iterable[str], wanted: str) -> str | None:
    """The installed version that a wanted one means: itself, or the newest of its line (`20` for 20.x).

    Args:
        installed: Names of folders, with or without a leading `v`.
        wanted: As a project states it.
    """
    wanted = wanted.strip().removeprefix("v")
    if not _WORD.match(wanted):
        return None
    names = {name.removeprefix("v"): name for name in installed}
    if wanted in names:
        return names[wanted]
    line = [name for name in names if name.startswith((f"{wanted}.", f"{wanted}-"))]
    return names[max(line, key=by_number)] if line else None


def by_number(version: str) -> tuple[int, ...]:
    """Orders versions as people do: 1.10 after 1.9."""
    return tuple(int(part) for part in re.findall(r"\d+", version))
