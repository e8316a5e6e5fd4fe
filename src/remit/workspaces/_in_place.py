"""Runs in place: the user's tree itself is worked on, remembered first, so that it can be taken back.

Promise 4 (a run works on its own copy) is off then, and the run says so. What git doesn't hold (a folder
without a repository) is copied before the first command; ignored files aren't remembered.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from remit.contract import Isolation, SandboxLevel
from remit.errors import NodeError
from remit.workspaces._base import BaseEntry, Listing
from remit.workspaces._changes import Changes
from remit.workspaces._prepared import PreparedWorkspace
from remit.workspaces._snapshot import RunFolder
from remit.workspaces.keeper._copy import CopyBounds, TreeTooLarge, copy_tree
from remit.workspaces.keeper._plan import Limits
from remit.workspaces.keeper._storage import remove_tree
from remit.workspaces.keeper._tree import record_tree

__all__ = [
    "forget_tree",
    "in_place_notes",
    "list_remembered",
    "remember_tree",
    "require_git_kept",
    "settled",
]

_NOTE: Final = (
    "in place: promise 4 is off; commands change your files as they go, and `remit undo` takes back what git "
    "doesn't ignore"
)
_LINKS: Final = 0o120000
_MAX_RECORDED: Final = 2_000_000


def require_git_kept(sandbox: SandboxLevel, root: Path) -> None:
    """Refuse a level that is a wall, and yet would leave the user's own `.git` to commands.

    What is planted there (hooks, settings that name programs) runs outside of any sandbox, once somebody uses
    git there. Landlock can't take a folder out of another that may be written.

    Raises:
        NodeError: It is such a level.
    """
    if sandbox == "landlock" and os.path.lexists(root / ".git"):
        raise NodeError(
            "a run in place needs bubblewrap: Landlock can't keep commands from changing "
            f"{root / '.git'}; leave --in-place out, or install bubblewrap (`remit doctor` says how)",
            reason="unavailable",
        )


def in_place_notes(isolation: Isolation, sandbox: SandboxLevel) -> tuple[str, ...]:
    """What a run in place doesn't promise; nothing for other runs."""
    if isolation != "in_place":
        return ()
    git = "`.git` is read-only" if sandbox == "bubblewrap" else "`.git` isn't protected from them"
    return (f"{_NOTE}. {git}",)


def remember_tree(run: RunFolder, prepared: PreparedWorkspace) -> PreparedWorkspace:
    """The same workspace, with a base that outlasts what commands do to the tree. Blocking.

    Raises:
        NodeError: The folder has no repository and is too large to be copied.
    """
    pin = prepared.pin
    if pin.has_repository:
        return prepared  # every byte of the base is an object of the pin's
    before = _place(run)
    if not before.is_dir():
        run.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        making = before.with_name("before.partial")
        remove_tree(making)
        limits = Limits()
        bounds = CopyBounds(max_files=limits.max_copy_files, max_bytes=limits.max_copy_bytes)
        try:
            copy_tree(Path(pin.root), making, bounds=bounds)
        except TreeTooLarge as error:
            remove_tree(making)
            raise NodeError(
                f"{pin.root} is too large to be remembered before a run in place: {error}; "
                "run `git init` there",
                reason="refused",
            ) from None
        making.rename(before)
    remembered = pin.model_copy(update={"lower": str(before)})
    return replace(prepared, pin=remembered, listing=list_remembered(run))


def list_remembered(run: RunFolder) -> Listing:
    """Every file of what was copied of a folder without a repository. Blocking."""
    facts = record_tree(str(_place(run)), max_entries=_MAX_RECORDED)
    return {path: BaseEntry(mode=_mode(fact[0]), facts=fact) for path, fact in facts.items()}


def _mode(mode: int) -> str:
    if mode & 0o170000 == _LINKS:
        return "120000"
    return "100755" if mode & 0o100 else "100644"


def forget_tree(run: RunFolder) -> None:
    """Remove what was copied; what changed is kept with the run's changes. Blocking."""
    remove_tree(_place(run))


def _place(run: RunFolder) -> Path:
    return run.folder / "before"


def settled(changes: Changes) -> Changes:
    """The changes as against the remembered base: that the tree has moved from it is the run's own doing."""
    return replace(changes, changes=tuple(replace(one, moved=False) for one in changes.changes))
