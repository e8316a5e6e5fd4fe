"""What files of a tree that a run in place has removed get when they come back."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from remit.workspaces._changes import Changes
from remit.workspaces.keeper._tree import Facts

__all__ = ["removed_attributes"]


def removed_attributes(changes: Changes, root: Path, facts: Facts) -> dict[str, tuple[int, int, int]]:
    """What files that are gone get when they come back: their mode, and the owner of the tree. Blocking.

    Args:
        changes: What was done.
        root: The tree.
        facts: Of its files before that.
    """
    info = os.stat(root)

    def mode_of(path: str, git_mode: str) -> int:
        if path in facts:
            return stat.S_IMODE(facts[path][0]) & ~(stat.S_ISUID | stat.S_ISGID)
        return 0o755 if git_mode == "100755" else 0o644

    return {
        change.path: (mode_of(change.path, change.base.mode), info.st_uid, info.st_gid)
        for change in changes.changes
        if change.base is not None and change.result is None
    }
