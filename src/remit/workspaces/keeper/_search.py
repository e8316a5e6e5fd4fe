"""Searches files for a regular expression, within a time that no expression can exceed.

Python's matcher looks for signals while it backtracks, so a timer ends even the worst expression, and what
was found before is still told. The operation's own process is the second bound: it can be killed.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from remit.workspaces.keeper._arguments import Arguments, number_argument, text_argument
from remit.workspaces.keeper._files import looks_binary
from remit.workspaces.keeper._listing import parse_glob
from remit.workspaces.keeper._paths import opened_file, split_path
from remit.workspaces.keeper._patterns import Glob
from remit.workspaces.keeper._refusals import OperationRefused, refusal_from
from remit.workspaces.keeper._walking import Tally, escape_controls, show_path, walk

DEFAULT_TIMEOUT_MS: Final = 20_000
MAX_MATCHES: Final = 200
MAX_FILE_BYTES: Final = 4_194_304
MAX_PATTERN_CHARS: Final = 2_000

_SHOWN_LINE_CHARS: Final = 300
_NOTE_ROOM_BYTES: Final = 512
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _TimeUp(BaseException):
    """The search's time is over; no `except Exception` in between may keep it."""


@dataclass(slots=True)
class _Found:
    """What a search has to tell so far."""

    room_bytes: int
    lines: list[str] = field(default_factory=list[str])
    skipped: int = 0
    full: bool = False
    timed_out: bool = False

    def add(self, line: str) -> None:
        """Takes one more match, or notes that there is no room."""
        self.room_bytes -= len(line.encode("utf-8", "replace")) + 1
        if self.room_bytes < 0 or len(self.lines) == MAX_MATCHES:
            self.full = True
        else:
            self.lines.append(line)


def search(root_fd: int, arguments: Arguments) -> dict[str, object]:
    """`{pattern, relative_path?, glob?}`: the lines that match, as `path:line: text`.

    Binary files, files over 4 MiB, links, pipes and what git ignores are left out; a file or an ignored
    folder that is named itself is searched.
    """
    start = split_path(text_argument(arguments, "relative_path", ""), may_be_root=True)
    pattern = text_argument(arguments, "pattern")
    glob_text = text_argument(arguments, "glob", "")
    glob = parse_glob(glob_text) if glob_text else None
    timeout_ms = number_argument(arguments, "timeout_ms", DEFAULT_TIMEOUT_MS, minimum=1)
    room = number_argument(arguments, "max_shown_bytes", 16_384, minimum=1) - _NOTE_ROOM_BYTES
    tally = Tally(timeout_ms=timeout_ms)
    found = _Found(room_bytes=room)
    try:
        with _time_limit(timeout_ms):
            expression = _compile(pattern)
            for parts, text in _texts_below(root_fd, start, glob, tally, found):
                _search_text(parts, text, expression, found)
                if found.full:
                    break
    except _TimeUp:
        found.timed_out = True
    except OSError as error:
        raise refusal_from(error, path=show_path(start)) from None
    found.timed_out = found.timed_out or tally.timed_out
    content = "".join(f"{line}\n" for line in found.lines + _notes(found, tally))
    return {"content": content, "truncated": found.full or found.timed_out}


def _compile(pattern: str) -> re.Pattern[str]:
    if not pattern:
        raise OperationRefused("invalid_arguments", "the pattern is empty")
    if len(pattern) > MAX_PATTERN_CHARS:
        raise OperationRefused("invalid_arguments", f"the pattern has over {MAX_PATTERN_CHARS} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise OperationRefused("invalid_arguments", f"not a regular expression: {error}") from None


def _texts_below(
    root_fd: int, start: tuple[str, ...], glob: Glob | None, tally: Tally, found: _Found
) -> Iterator[tuple[tuple[str, ...], str]]:
    """The text files of a folder, or the one file that the path names; the others are counted."""
    try:
        for entry, folder_fd in walk(root_fd, start, tally):
            if entry.kind != "file" or (glob and not glob.matches(entry.parts[len(start) :])):
                continue
            text = _read_entry(entry.parts[-1], folder_fd)
            if text is None:
                found.skipped += 1
            else:
                yield entry.parts, text
    except NotADirectoryError:
        with opened_file(root_fd, start) as fd:
            text = _read_text(fd)
        if text is None:
            found.skipped += 1
        else:
            yield start, text


def _search_text(parts: Sequence[str], text: str, expression: re.Pattern[str], found: _Found) -> None:
    # One pass in C tells for most files that there is nothing.
    if expression.search(text) is None:
        return
    before = len(found.lines)
    path = show_path(parts)
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        match = expression.search(line)
        if match is not None:
            found.add(f"{path}:{number}: {_excerpt(line, match.start())}")
            if found.full:
                return
    if len(found.lines) == before:
        _add_spanning(text, path, expression, found)


def _add_spanning(text: str, path: str, expression: re.Pattern[str], found: _Found) -> None:
    """Matches that only several lines together make, each told at its first line."""
    for match in expression.finditer(text):
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", start)
        line = text[start : end if end >= 0 else len(text)]
        found.add(f"{path}:{text.count(chr(10), 0, start) + 1}: {_excerpt(line, match.start() - start)}")
        if found.full:
            return


def _excerpt(line: str, at: int) -> str:
    """A line on one line: without its carriage return, control characters escaped, cut around the match."""
    line = line.removesuffix("\r")
    start = max(0, at - _SHOWN_LINE_CHARS // 3) if len(line) > _SHOWN_LINE_CHARS else 0
    part = line[start : start + _SHOWN_LINE_CHARS]
    return f"{'...' if start else ''}{escape_controls(part)}{'...' if start + len(part) < len(line) else ''}"


def _read_entry(name: str, folder_fd: int) -> str | None:
    try:
        fd = os.open(name, _FILE, dir_fd=folder_fd)
    except OSError:
        return None
    try:
        return _read_text(fd)
    finally:
        os.close(fd)


def _read_text(fd: int) -> str | None:
    """A file's text; None where it isn't a text file of bearable size."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
        return None
    try:
        data = os.read(fd, MAX_FILE_BYTES)
    except OSError:
        return None
    return None if looks_binary(data) else data.decode("utf-8", "replace")


def _notes(found: _Found, tally: Tally) -> list[str]:
    notes: list[str] = []
    if found.timed_out:
        notes.append("[cut: the search took too long; name a folder or a glob, or a simpler pattern]")
    elif found.full:
        notes.append(f"[cut after {len(found.lines)} matches; name a folder or a glob]")
    elif not found.lines:
        notes.append("[no match]")
    if found.skipped:
        notes.append(f"[left out: {found.skipped} binary, large or unreadable files]")
    if not found.lines and tally.ignored:
        notes.append(f"[left out: {tally.ignored} names that git ignores]")
    return notes


@contextmanager
def _time_limit(timeout_ms: int) -> Generator[None]:
    """Raises _TimeUp inside the block when the time is over, even amid a match."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a search needs its process's main thread: its time limit is a signal")
    ended = False

    def ring(number: int, frame: FrameType | None) -> None:
        if not ended:
            raise _TimeUp

    before: Callable[[int, FrameType | None], object] | int | None = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout_ms / 1000)
    try:
        yield
    finally:
        ended = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before if before is not None else signal.SIG_DFL)
