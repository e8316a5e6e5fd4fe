"""The base pin: what a run starts from, recorded once, so that everything later is measured against it.

A base is a working tree as it lies there (HEAD, uncommitted and untracked work), a commit laid out in a
folder of the node's own, or a folder without a repository. Its id is made of its content.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from remit.errors import NodeError
from remit.workspaces._failures import WorkspaceRefused

__all__ = ["BaseEntry", "BasePin", "LeftOut", "Uncommitted", "refuse_root"]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Uncommitted(_Stored):
    """A path whose content isn't in HEAD."""

    path: str
    """As shown to people: quoted where it isn't printable UTF-8."""
    state: Literal["modified", "added", "deleted", "untracked", "unmerged"]


class LeftOut(_Stored):
    """Something in the tree that the base doesn't hold, and that no patch will touch."""

    path: str
    why: Literal["submodule", "another repository", "large", "unreadable", "not a file"]


class BasePin(_Stored):
    """A pinned base."""

    id: str
    """`git:COMMIT` where it is a commit, `git:COMMIT+HASH` with uncommitted work, `tree:HASH` without git."""
    kind: Literal["worktree", "commit", "folder"]
    root: str
    """The workspace root: the git root, or the folder itself."""
    lower: str
    """Where the base lies as files: the root, or a folder of the node's own."""
    store: str
    """The pin's own folder under the node's data folder."""
    commit: str | None = None
    """HEAD, or the commit asked for; None: no commits yet, or no repository."""
    branch: str | None = None
    uncommitted: tuple[Uncommitted, ...] = ()
    ignored_folders: tuple[str, ...] = ()
    """Outermost folders that git ignores, such as `.venv`; they lie in the root."""
    left_out: tuple[LeftOut, ...] = ()
    recent: tuple[str, ...] = ()
    """The newest commits, `SHORT SUBJECT`."""
    private_git: str | None = None
    """A git folder to copy into a checkout as its `.git`; None without a repository."""
    object_stores: tuple[str, ...] = ()
    """Folders that the private git reads objects from: to be shown read-only at their own path."""
    notes: tuple[str, ...] = ()
    """What the user should know."""

    @property
    def has_repository(self) -> bool:
        """Whether git knows this tree."""
        return self.private_git is not None


class BaseEntry(NamedTuple):
    """One file of the base; a tuple, since there are many of them."""

    mode: str
    """As git writes it: `100644`, `100755`, `120000`; `160000` is a submodule."""
    blob: str | None = None
    """Its object id; None in a folder without a repository."""
    facts: tuple[int, int, int, int, int] | None = None
    """Where there is no object: mode, size, times and inode when the base was pinned."""


Listing = Mapping[str, BaseEntry]
"""Every file of a base, by path."""


def refuse_root(root: Path, *, data: Path, home: Path | None = None) -> None:
    """Refuse what mustn't be a workspace, before anything is read.

    Raises:
        WorkspaceRefused: `/`, a home folder or a folder that holds one, or one that holds the node's data.
        NodeError: It isn't a folder that can be read.
    """
    if not root.is_dir():
        raise NodeError(f"{root} isn't a folder; name the folder to work in", reason="unavailable")
    if root == Path("/"):
        raise WorkspaceRefused("/ can't be a workspace; name the project's own folder")
    for folder in _home_folders(home):
        if folder == root or folder.is_relative_to(root):
            raise WorkspaceRefused(f"{root} is or holds a home folder; name the project's own folder")
    if not os.access(root, os.R_OK | os.X_OK):
        raise NodeError(f"{root} can't be read by this user", reason="unavailable")
    if Path(os.path.realpath(data)).is_relative_to(os.path.realpath(root)):
        raise WorkspaceRefused(
            f"the data folder {data} lies inside {root}; set REMIT_HOME to a folder outside"
        )


def _home_folders(home: Path | None) -> set[Path]:
    """The homes of this user and of other people; accounts of services have no home worth the name."""
    folders = {home or Path.home()}
    for entry in pwd.getpwall():
        if entry.pw_uid in {0, os.getuid()} or entry.pw_uid >= 500:
            folders.add(Path(entry.pw_dir))
    resolved = {Path(os.path.realpath(folder)) for folder in folders}
    return {folder for folder in resolved if folder != Path("/") and folder.is_dir()}
