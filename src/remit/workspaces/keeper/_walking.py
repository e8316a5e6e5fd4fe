"""Going through a tree: sorted, by handles, without following links, leaving out what git ignores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from remit.workspaces.keeper._gitignore import IgnoreRules, load_rules
from remit.workspaces.keeper._paths import MAX_DEPTH, open_beneath
from remit.workspaces.keeper._unfinished import is_unfinished_name

Kind = Literal["file", "folder", "link", "special"]

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LEFT_OUT: Final = ".git"


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a folder."""

    parts: tuple[str, ...]
    """From the workspace root."""
    kind: Kind


class Tally:
    """What a walk left out, and when it must end."""

    __slots__ = ("_clock", "_due_s", "ignored", "timed_out", "unreadable")

    def __init__(self, *, timeout_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_s = clock() + timeout_ms / 1000
        self.ignored = 0
        self.unreadable = 0
        self.timed_out = False

    def is_due(self) -> bool:
        """Whether the time is up; remembered."""
        self.timed_out = self.timed_out or self._clock() >= self._due_s
        return self.timed_out


def read_folder(
    folder_fd: int, parts: tuple[str, ...], rules: IgnoreRules | None, tally: Tally
) -> list[Entry]:
    """The entries of an opened folder that git doesn't ignore, sorted by name."""
    entries: list[Entry] = []
    with os.scandir(folder_fd) as found:
        for item in found:
            if item.name == _LEFT_OUT or is_unfinished_name(item.name):
                continue
            entry = Entry((*parts, item.name), _kind(item))
            if rules is not None and rules.ignores(entry.parts, folder=entry.kind == "folder"):
                tally.ignored += 1
            else:
                entries.append(entry)
    entries.sort(key=lambda entry: entry.parts[-1])
    return entries


def _kind(item: os.DirEntry[str]) -> Kind:
    if item.is_symlink():
        return "link"
    if item.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if item.is_file(follow_symlinks=False) else "special"


def rules_above(root_fd: int, parts: Sequence[str]) -> IgnoreRules | None:
    """The rules that hold for the entries of a folder; none where the folder itself is ignored.

    Who asks for an ignored folder by name wants to see what is in it.
    """
    rules: IgnoreRules | None = None
    for depth in range(len(parts)):
        folder_fd = open_beneath(root_fd, parts[:depth], _FOLDER)
        try:
            rules = load_rules(folder_fd, depth=depth, above=rules)
        finally:
            os.close(folder_fd)
        if rules is not None and rules.ignores(parts[: depth + 1], folder=True):
            return None
    return rules


def walk(
    root_fd: int, start: tuple[str, ...], tally: Tally, *, all_of_it: bool = False
) -> Generator[tuple[Entry, int]]:
    """All entries below a folder that aren't folders, with the handle of the folder they lie in.

    Depth first, in the order of the names. A folder that can't be read is counted and left out.
    """
    rules = None if all_of_it else rules_above(root_fd, start)
    start_fd = open_beneath(root_fd, start, _FOLDER)
    yield from _walk_folder(start_fd, start, rules, tally)


def _walk_folder(
    folder_fd: int, parts: tuple[str, ...], rules: IgnoreRules | None, tally: Tally
) -> Generator[tuple[Entry, int]]:
    """Takes over the handle."""
    try:
        rules = load_rules(folder_fd, depth=len(parts), above=rules)
        for entry in read_folder(folder_fd, parts, rules, tally):
            if tally.is_due():
                return
            if entry.kind != "folder":
                yield entry, folder_fd
            elif len(entry.parts) >= MAX_DEPTH:
                tally.unreadable += 1
            else:
                yield from _walk_below(folder_fd, entry, rules, tally)
    finally:
        os.close(folder_fd)


def _walk_below(
    folder_fd: int, entry: Entry, rules: IgnoreRules | None, tally: Tally
) -> Generator[tuple[Entry, int]]:
    try:
        below_fd = os.open(entry.parts[-1], _FOLDER | os.O_NOFOLLOW, dir_fd=folder_fd)
    except OSError:
        tally.unreadable += 1
        return
    yield from _walk_folder(below_fd, entry.parts, rules, tally)


def show_path(parts: Sequence[str]) -> str:
    """A path as text on one line: bytes that aren't UTF-8 and control characters as escapes."""
    text = "/".join(parts)
    if text.isprintable():
        return text
    return escape_controls(os.fsencode(text).decode("utf-8", "backslashreplace"), keep="")


def escape_controls(text: str, *, keep: str = "\t") -> str:
    """Text in which every character that isn't printed stands as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )
