"""Decides what kind of base a workspace gets, and pins it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from remit.errors import NodeError
from remit.workspaces._base import BaseEntry, BasePin, Listing, refuse_root
from remit.workspaces._base_git import GitBases
from remit.workspaces._base_index import list_index
from remit.workspaces._failures import WorkspaceRefused
from remit.workspaces._git import Git
from remit.workspaces._known_pins import KnownBases
from remit.workspaces._repository import find_git_root, line_end_settings, read_repository, read_settings
from remit.workspaces.keeper._tree import TreeTooLarge, record_tree

__all__ = ["Bases", "UserSettings", "WorkspaceRoot", "find_workspace_root"]

MAX_FOLDER_FILES = 100_000
MAX_FOLDER_BYTES = 1 << 30
"""Bounds of a folder without a repository that has to be copied."""
_MAX_SCANNED = 2_000_000
_LINKS = 0o120000


@dataclass(frozen=True, slots=True)
class WorkspaceRoot:
    """A folder that somebody named, as a workspace."""

    root: Path
    """The git root, or the folder itself where there is no repository; real, without links."""
    subdir: str
    """The folder itself, relative to the root; empty: the root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSettings:
    """What the user's own git settings say, outside any repository."""

    excludes: str = ""
    """The text of their ignore file."""
    line_ends: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """All of it, `section.key` to value."""


def find_workspace_root(folder: Path) -> WorkspaceRoot:
    """The workspace that a folder belongs to."""
    real = Path(os.path.realpath(folder))
    root = find_git_root(real) or real
    subdir = str(real.relative_to(root))
    return WorkspaceRoot(root, "" if subdir == "." else subdir)


class Bases:
    """Pins bases, and keeps what they need under `<data>/bases`.

    Args:
        data: The node's data folder.
        git: The program; None: it is looked for when it is first needed.
        environment: Where HOME and XDG_CONFIG_HOME are read from; None: this process's.
    """

    def __init__(
        self, data: Path, *, git: Git | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._data = data
        self._git = git
        self._environment = os.environ if environment is None else environment
        self._known = KnownBases()

    @property
    def git(self) -> Git:
        """The git that this node uses. Raises `NodeError` where there is none."""
        if self._git is None:
            self._git = Git.find()
        return self._git

    async def pin(self, root: Path, *, wanted: str | None = None, copied: bool = False) -> BasePin:
        """Pin a base.

        Args:
            root: The workspace root.
            wanted: `worktree`, `head` or a revision; None: the working tree.
            copied: Whether the checkout will be a copy, for which large folders are refused.

        Raises:
            WorkspaceRefused: The folder can't be a workspace.
            NodeError: It can't be read, its repository is broken, or there is no such revision.
        """
        home = self._environment.get("HOME")
        refuse_root(root, data=self._data, home=Path(home) if home else None)
        folder = self._data / "bases" / hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
        if not _has_git(root):
            if _is_bare(root):
                raise NodeError(
                    f"{root} is a bare repository, which has no files to work on; clone it, or add a "
                    "worktree, and name that folder",
                    reason="unavailable",
                )
            if wanted not in (None, "worktree"):
                raise NodeError(f"{root} isn't a git repository: there is no base {wanted!r} in it")
            return await asyncio.to_thread(_pin_folder, root, folder, copied)
        repository = await read_repository(self.git, root, known=self._known)
        user = await self.user_settings()
        bases = GitBases(
            git=self.git, folder=folder, known=self._known, excludes=user.excludes, line_ends=user.line_ends
        )
        if wanted in (None, "worktree"):
            return await bases.pin_worktree(repository)
        return await bases.pin_commit(repository, wanted)

    async def list_base(self, pin: BasePin) -> Listing:
        """Every file of a base."""
        if pin.private_git:
            listing = self._known.find_listing(pin)
            if listing is None:
                listing = await list_index(self.git, Path(pin.private_git))
                self._known.keep_listing(pin, listing)
            return listing
        return await asyncio.to_thread(_read_facts, Path(pin.store))

    async def user_settings(self) -> UserSettings:
        """What the user's own git settings say, read as data."""
        home = Path(self._environment.get("HOME") or os.devnull)
        config_home = Path(self._environment.get("XDG_CONFIG_HOME") or home / ".config")
        settings = await read_settings(self.git, config_home / "git/config", known=self._known)
        settings |= await read_settings(self.git, home / ".gitconfig", known=self._known)
        named = settings.get("core.excludesfile")
        path = Path(named.replace("~", str(home), 1)) if named else config_home / "git/ignore"
        text = path.read_text("utf-8", "surrogateescape") if path.is_file() else ""
        return UserSettings(excludes=text, line_ends=line_end_settings(settings), settings=settings)


def _has_git(root: Path) -> bool:
    return os.path.lexists(root / ".git")


def _is_bare(root: Path) -> bool:
    """Whether this is a git folder itself: a bare repository, or the `.git` of one."""
    return (root / "HEAD").is_file() and (root / "objects").is_dir() and (root / "refs").is_dir()


def _pin_folder(root: Path, folder: Path, copied: bool) -> BasePin:
    """Record every file of a folder without a repository."""
    try:
        facts = record_tree(str(root), max_entries=_MAX_SCANNED)
    except TreeTooLarge as error:
        raise WorkspaceRefused(f"{root} is too large to be a workspace: {error}") from None
    if copied:
        _refuse_large(root, len(facts), sum(fact[1] for fact in facts.values()))
    digest = hashlib.sha256()
    for path in sorted(facts):
        digest.update(os.fsencode(path) + b"\0" + repr(facts[path]).encode() + b"\0")
    name = digest.hexdigest()[:12]
    store = folder / "pins" / f"folder-{name}"
    store.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A name of its own: two runs may pin the same folder at once.
    unfinished = store / f"facts.{os.getpid()}.{token_hex(6)}"
    unfinished.write_text(json.dumps(facts))
    unfinished.replace(store / "facts.json")
    return BasePin(id=f"tree:{name}", kind="folder", root=str(root), lower=str(root), store=str(store))


def _refuse_large(root: Path, files: int, size: int) -> None:
    if files > MAX_FOLDER_FILES or size > MAX_FOLDER_BYTES:
        raise WorkspaceRefused(
            f"{root} isn't a git repository and holds {files} files, {size >> 20} MiB: too much to copy "
            f"(at most {MAX_FOLDER_FILES} files and {MAX_FOLDER_BYTES >> 20} MiB); run `git init` there, or "
            "name a smaller folder"
        )


def _read_facts(store: Path) -> Listing:
    facts = json.loads((store / "facts.json").read_text())
    return {path: _entry(tuple(fact)) for path, fact in facts.items()}


def _entry(fact: tuple[int, int, int, int, int]) -> BaseEntry:
    if fact[0] & 0o170000 == _LINKS:
        return BaseEntry(mode="120000", facts=fact)
    return BaseEntry(mode="100755" if fact[0] & 0o100 else "100644", facts=fact)
