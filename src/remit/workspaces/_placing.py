"""Looks at paths in a user's tree, and plans how to turn some of them into others."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from remit.workspaces._changes import Content
from remit.workspaces.keeper._tree import TreeTooLarge, copy_regular, git_mode, opened_folder_at, read_link_at

__all__ = [
    "Attributes",
    "Placed",
    "Plan",
    "Seen",
    "Step",
    "facts_at",
    "look_at",
    "look_in",
    "make_plan",
    "split",
]

_HASHED_AT_MOST = 1 << 30
Attributes = tuple[int, int, int]
"""Permissions, owner and group."""


@dataclass(frozen=True, slots=True)
class Step:
    """One path that is to become something else."""

    path: str
    before: Content | None
    after: Content | None
    attributes: Attributes | None = None
    """For a path that comes back: what it had; None: as what it replaces, or as its folder."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What lies at a path."""

    kind: Literal["absent", "content", "folder", "blocked", "special"]
    """`blocked`: a part of the way is a file or a link."""
    content: Content | None = None
    info: os.stat_result | None = None
    blocked_by: str | None = None

    def holds(self, content: Content | None) -> bool:
        """Whether this is what was expected."""
        if content is None:
            return self.kind == "absent"
        return self.content == content


@dataclass(frozen=True, slots=True)
class Placed:
    """A step with the places of its two spare names."""

    step: Step
    anchor: str
    """The nearest folder above that stays; spare names lie there."""
    new: str
    """Name of the new content until it takes its place; from then on, of what was there."""
    old: str
    """A second name of what is to be replaced, until all is done."""
    attributes: Attributes | None
    """What lay at the path before; None: nothing."""
    facts: tuple[int, ...] | None
    """Its inode, size, time of change and mode."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that will be done to a tree."""

    placed: tuple[Placed, ...]
    made_folders: tuple[str, ...]
    """Folders that aren't there yet, outermost first."""
    emptied_folders: tuple[tuple[str, Attributes], ...]
    """Folders that nothing is left in, innermost first, with what they had."""
    conflicts: tuple[str, ...] = ()
    """Paths that don't hold what was expected; not empty: nothing may be done."""


def split(path: str) -> tuple[tuple[str, ...], str]:
    """The folders of a path, and its last name.

    Raises:
        ValueError: The path is absolute, empty, or steps up.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"not a path inside a tree: {path!r}")
    return tuple(parts[:-1]), parts[-1]


def look_at(root_fd: int, path: str) -> Seen:
    """What lies at a path now."""
    folders, name = split(path)
    for length in range(len(folders)):
        info = _lstat(root_fd, folders[:length], folders[length])
        if info is None:
            return Seen("absent")
        if not stat.S_ISDIR(info.st_mode):
            return Seen("blocked", blocked_by="/".join(folders[: length + 1]))
    try:
        with opened_folder_at(root_fd, folders) as fd:
            return look_in(fd, name)
    except FileNotFoundError:
        return Seen("absent")
    except NotADirectoryError:
        return Seen("blocked", blocked_by="/".join(folders))


def _lstat(root_fd: int, folders: Sequence[str], name: str) -> os.stat_result | None:
    try:
        with opened_folder_at(root_fd, folders) as fd:
            return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def look_in(fd: int, name: str) -> Seen:
    """What a name in an opened folder stands for.

    Raises:
        FileNotFoundError: Nothing.
    """
    info = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if stat.S_ISLNK(info.st_mode):
        target = read_link_at(fd, name)
        return Seen("content", Content("120000", _sha256(target), len(target)), info)
    if stat.S_ISDIR(info.st_mode):
        return Seen("folder", info=info)
    if not stat.S_ISREG(info.st_mode):
        return Seen("special", info=info)
    try:
        sha256, size, mode = copy_regular(fd, name, None, max_bytes=_HASHED_AT_MOST)
    except TreeTooLarge:
        return Seen("special", info=info)
    return Seen("content", Content(git_mode(mode), sha256, size), info)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_plan(root_fd: int, steps: Sequence[Step], *, token: str) -> Plan:
    """Check every path and plan the change of all of them.

    Args:
        root_fd: The tree.
        steps: What is to change.
        token: Part of the spare names; fresh for every attempt.
    """
    deleted = {step.path for step in steps if step.after is None}
    seen = {step.path: look_at(root_fd, step.path) for step in steps}
    emptied = _find_emptied(root_fd, deleted, {step.path for step in steps if step.after})
    for step in steps:
        if step.before is None and seen[step.path].kind == "folder" and step.path not in emptied:
            emptied |= _find_hollow(root_fd, step.path, deleted)
    conflicts = [step.path for step in steps if not _fits(step, seen[step.path], deleted, emptied)]
    if conflicts:
        return Plan((), (), (), tuple(conflicts))
    made = _find_missing(root_fd, steps, deleted)
    placed = [
        Placed(
            step=step,
            anchor=_anchor(root_fd, step.path, emptied.keys() | set(made)),
            new=f".remit-{token}-{number}.new",
            old=f".remit-{token}-{number}.old",
            attributes=_attributes(seen[step.path].info),
            facts=None if (info := seen[step.path].info) is None else facts_at(info),
        )
        for number, step in enumerate(steps)
    ]
    inside_out = sorted(emptied.items(), key=lambda item: -item[0].count("/"))
    return Plan(tuple(placed), tuple(made), tuple(inside_out))


def _fits(step: Step, seen: Seen, deleted: set[str], emptied: Mapping[str, Attributes]) -> bool:
    """Whether the path holds what the step expects, or will be free in time."""
    if step.before is not None:
        return seen.holds(step.before)
    if seen.kind == "blocked":
        return seen.blocked_by in deleted
    return seen.kind == "absent" or step.path in emptied


def _attributes(info: os.stat_result | None) -> Attributes | None:
    return (stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid) if info else None


def facts_at(info: os.stat_result) -> tuple[int, ...]:
    """What tells that nobody has changed a file since."""
    return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_mode)


def _find_emptied(root_fd: int, deleted: set[str], kept: set[str]) -> dict[str, Attributes]:
    """Folders in which nothing is left once the deleted paths are gone, as git removes them."""
    emptied: dict[str, Attributes] = {}
    needed = {folder for path in kept for folder in _ancestors(path)}
    candidates = {folder for path in deleted for folder in _ancestors(path)} - needed
    for folder in sorted(candidates, key=lambda folder: -folder.count("/")):
        entries = _list(root_fd, folder)
        if entries is not None and all(
            f"{folder}/{name}" in deleted or f"{folder}/{name}" in emptied for name in entries[0]
        ):
            emptied[folder] = entries[1]
    return emptied


def _find_hollow(root_fd: int, folder: str, deleted: set[str]) -> dict[str, Attributes]:
    """A folder that a file is to replace, with those in it; empty where a file would be lost."""
    entries = _list(root_fd, folder)
    if entries is None:
        return {}
    found = {folder: entries[1]}
    for name in entries[0]:
        path = f"{folder}/{name}"
        if path not in deleted:
            inner = _find_hollow(root_fd, path, deleted)
            if not inner:
                return {}
            found |= inner
    return found


def _list(root_fd: int, folder: str) -> tuple[list[str], Attributes] | None:
    try:
        with opened_folder_at(root_fd, folder.split("/")) as fd:
            info = os.fstat(fd)
            return os.listdir(fd), (stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid)
    except OSError:
        return None


def _ancestors(path: str) -> list[str]:
    """The folders above a path, innermost first, without the root."""
    folders = split(path)[0]
    return ["/".join(folders[:length]) for length in range(len(folders), 0, -1)]


def _find_missing(root_fd: int, steps: Iterable[Step], deleted: set[str]) -> list[str]:
    """Folders that have to be made, outermost first."""
    needed = {folder for step in steps if step.after for folder in _ancestors(step.path)}
    missing = {folder for folder in needed if folder in deleted or look_at(root_fd, folder).kind != "folder"}
    return sorted(missing, key=lambda folder: folder.count("/"))


def _anchor(root_fd: int, path: str, passing: set[str]) -> str:
    for folder in _ancestors(path):
        if folder not in passing and look_at(root_fd, folder).kind == "folder":
            return folder
    return ""
