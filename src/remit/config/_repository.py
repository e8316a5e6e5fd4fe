"""Which folder a command works on."""

from __future__ import annotations

from pathlib import Path


def find_repository_root(folder: Path) -> Path | None:
    """The nearest folder upwards that holds a `.git`, or None; asks no git."""
    for place in (folder, *folder.parents):
        try:
            if (place / ".git").exists():
                return place
        except OSError:
            return None
    return None
