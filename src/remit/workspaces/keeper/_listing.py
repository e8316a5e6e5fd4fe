"""Lists files as far as they fit: near ones before deep ones, so that a large tree is seen whole."""

from __future__ import annotations

import os
from collections import deque
from typing import Final

from remit.workspaces.keeper._arguments import Arguments, number_argument, text_argument
from remit.workspaces.keeper._gitignore import IgnoreRules, load_rules
from remit.workspaces.keeper._paths import open_beneath, opened_file, split_path
from remit.workspaces.keeper._patterns import Glob, PatternTooLarge
from remit.workspaces.keeper._refusals import OperationRefused, refusal_from
from remit.workspaces.keeper._walking import (
    Entry,
    Tally,
    read_folder,
    rules_above,
    show_path,
    walk,
)

MAX_ENTRIES: Final = 1_000
DEFAULT_TIMEOUT_MS: Final = 10_000
_NOTE_ROOM_BYTES: Final = 512
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def list_files(root_fd: int, arguments: Arguments) -> dict[str, object]:
    """`{relative_path?, glob?}`: the paths below a folder, or those that match the pattern.

    One path a line, from the workspace root, sorted. A folder that wasn't opened, since its content wouldn't
    have fitted, ends in `/`. What git ignores is left out unless it lies in the folder that was asked for.
    """
    start = split_path(text_argument(arguments, "relative_path", ""), may_be_root=True)
    pattern = text_argument(arguments, "glob", "")
    tally = Tally(timeout_ms=number_argument(arguments, "timeout_ms", DEFAULT_TIMEOUT_MS, minimum=1))
    room = number_argument(arguments, "max_shown_bytes", 16_384, minimum=1) - _NOTE_ROOM_BYTES
    try:
        if pattern:
            lines, cut = _matching(root_fd, start, parse_glob(pattern), tally, room)
        else:
            lines, cut = _breadth_first(root_fd, start, tally, room)
    except NotADirectoryError:
        with opened_file(root_fd, start):
            lines, cut = [show_path(start)], False
    except OSError as error:
        raise refusal_from(error, path=show_path(start)) from None
    notes = _notes(tally, cut=cut, empty=not lines)
    return {"content": "".join(f"{line}\n" for line in lines + notes), "truncated": cut or tally.timed_out}


def parse_glob(pattern: str) -> Glob:
    """A pattern given by a model.

    Raises:
        OperationRefused: it is too large.
    """
    try:
        return Glob(pattern)
    except PatternTooLarge as error:
        raise OperationRefused("invalid_arguments", str(error)) from None


def _matching(
    root_fd: int, start: tuple[str, ...], glob: Glob, tally: Tally, room: int
) -> tuple[list[str], bool]:
    lines: list[str] = []
    for entry, folder_fd in walk(root_fd, start, tally):
        if not glob.matches(entry.parts[len(start) :]):
            continue
        line = _line(entry, folder_fd)
        room -= len(line.encode()) + 1
        if room < 0 or len(lines) == MAX_ENTRIES:
            return lines, True
        lines.append(line)
    return lines, False


class _Page:
    """Lines by path, within the bounds."""

    def __init__(self, room_bytes: int) -> None:
        self._room_bytes = room_bytes
        self._lines: dict[tuple[str, ...], str] = {}
        self.cut = False

    def add_all(self, lines: dict[tuple[str, ...], str], *, instead_of: tuple[str, ...]) -> bool:
        """Puts in what a folder holds instead of the folder's own line, or leaves it closed."""
        freed = self._size(self._lines[instead_of]) if instead_of in self._lines else 0
        needed = sum(map(self._size, lines.values()))
        if needed > self._room_bytes + freed or len(self._lines) + len(lines) > MAX_ENTRIES + 1:
            self.cut = True
            return False
        self._lines.pop(instead_of, None)
        self._room_bytes += freed - needed
        self._lines.update(lines)
        return True

    def add_some(self, lines: dict[tuple[str, ...], str]) -> None:
        """Puts in as many as fit."""
        for parts, line in lines.items():
            if not self.add_all({parts: line}, instead_of=parts):
                return

    def sorted_lines(self) -> list[str]:
        return [self._lines[parts] for parts in sorted(self._lines)]

    def _size(self, line: str) -> int:
        return len(line.encode()) + 1


def _breadth_first(root_fd: int, start: tuple[str, ...], tally: Tally, room: int) -> tuple[list[str], bool]:
    """Opens folder after folder, nearest first, as long as what is in them fits."""
    page = _Page(room)
    todo: deque[tuple[tuple[str, ...], IgnoreRules | None]] = deque([(start, rules_above(root_fd, start))])
    while todo and not tally.is_due():
        parts, rules = todo.popleft()
        try:
            folder_fd = open_beneath(root_fd, parts, _FOLDER)
        except OSError:
            if parts == start:
                raise
            tally.unreadable += 1
            continue
        try:
            rules = load_rules(folder_fd, depth=len(parts), above=rules)
            entries = read_folder(folder_fd, parts, rules, tally)
            lines = {entry.parts: _line(entry, folder_fd) for entry in entries}
        finally:
            os.close(folder_fd)
        if page.add_all(lines or {parts: f"{show_path(parts)}/ (empty)"}, instead_of=parts):
            todo += [(entry.parts, rules) for entry in entries if entry.kind == "folder"]
        elif parts == start:
            page.add_some(lines)
    return page.sorted_lines(), page.cut or bool(todo)


def _line(entry: Entry, folder_fd: int) -> str:
    path = show_path(entry.parts)
    if entry.kind == "folder":
        return path + "/"
    if entry.kind == "special":
        return path + " (not a regular file)"
    if entry.kind == "link":
        try:
            return f"{path} -> {show_path([os.readlink(entry.parts[-1], dir_fd=folder_fd)])}"
        except OSError:
            return path
    return path


def _notes(tally: Tally, *, cut: bool, empty: bool) -> list[str]:
    notes: list[str] = []
    if tally.timed_out:
        notes.append("[cut: this took too long; name a folder]")
    elif cut:
        notes.append("[cut: more than can be shown; name a folder, or a glob]")
    elif empty:
        notes.append("[nothing found]")
    if tally.ignored:
        notes.append(f"[left out: {tally.ignored} names that git ignores; name a folder to see them]")
    if tally.unreadable:
        notes.append(f"[left out: {tally.unreadable} folders that can't be read]")
    return notes
