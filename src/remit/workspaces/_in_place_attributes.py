"""What files of a tree that a run in place has removed get when they come back."""

from __future__ import annotations

import os
from pathlib import Path

from remit.workspaces._changes import Changes

__all__ = ["removed_attributes"]


def removed_attributes(changes: Changes, root: Path) -> dict[str, tuple[int, int, int]]:
    """What files that are gone get when they come back: their mode, and the owner of the tree. Blocking."""
    info = os.stat(root)
    return {
        change.path: (0o755 if change.base.mode == "100755" else 0o644, info.st_uid, info.st_gid)
        for change in changes.changes
        if change.base is not None and change.result is None
    }
