"""A patch as coloured lines. Pure: text in, pieces of text with a class out; nothing of it is markup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from remit.primitives import patched_path

if TYPE_CHECKING:
    from pygments.lexer import Lexer

MOST_LINES: Final = 4_000
"""Of a patch that are shown; the page links to the whole."""
MOST_COLOURED: Final = 1_500
"""Lines whose words get colours: it costs about 50 us a line."""
MOST_CHARACTERS: Final = 2_000
"""Of a line; a longer one is shown cut, without colours."""

Piece = tuple[str, str]
"""A class (may be empty), and text."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file's part."""

    kind: str
    """add | del | same | hunk | meta"""
    old: int | None
    new: int | None
    pieces: tuple[Piece, ...]


@dataclass(slots=True)
class FilePart:
    """What a patch does to one file."""

    path: str
    lines: list[Line] = field(default_factory=list[Line])
    insertions: int = 0
    deletions: int = 0


@dataclass(frozen=True, slots=True)
class Diff:
    """A patch, as far as it is shown."""

    files: tuple[FilePart, ...]
    cut: bool
    """More lines than are shown."""


def read_diff(patch: str) -> Diff:
    """Read a unified diff with git's extended headers. What isn't understood is shown as it stands."""
    lines = patch.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    reader = _Reader()
    for line in lines[:MOST_LINES]:
        reader.take(line)
    return Diff(tuple(reader.files), cut=len(lines) > MOST_LINES)


class _Reader:
    def __init__(self) -> None:
        self.files: list[FilePart] = []
        self._old = self._new = 0
        self._left_old = self._left_new = 0
        self._coloured = 0

    def take(self, line: str) -> None:
        if line.startswith("diff --git ") and not self._left_old and not self._left_new:
            self.files.append(FilePart(patched_path(line) or line))
            return
        if not self.files:
            self.files.append(FilePart("patch"))
        part = self.files[-1]
        if self._left_old or self._left_new:
            self._content(part, line)
        elif line.startswith("@@"):
            self._hunk(part, line)
        else:
            if line.startswith(("+++ b/", "--- a/")):
                part.path = line[6:].rstrip("\t")
            part.lines.append(Line("meta", None, None, (("", line[:MOST_CHARACTERS]),)))

    def _hunk(self, part: FilePart, line: str) -> None:
        try:
            old, new = line.split("@@")[1].split()[:2]
            self._old, self._left_old = _range(old.removeprefix("-"))
            self._new, self._left_new = _range(new.removeprefix("+"))
        except ValueError:
            self._left_old = self._left_new = 0
        part.lines.append(Line("hunk", None, None, (("", line[:MOST_CHARACTERS]),)))

    def _content(self, part: FilePart, line: str) -> None:
        mark, text = line[:1], line[1:]
        old = new = None
        kind = {"+": "add", "-": "del", "\\": "meta"}.get(mark, "same")
        if kind in {"del", "same"}:
            old, self._old, self._left_old = self._old, self._old + 1, max(0, self._left_old - 1)
        if kind in {"add", "same"}:
            new, self._new, self._left_new = self._new, self._new + 1, max(0, self._left_new - 1)
        part.insertions += kind == "add"
        part.deletions += kind == "del"
        part.lines.append(Line(kind, old, new, tuple(self._pieces(part.path, text))))

    def _pieces(self, path: str, text: str) -> Iterator[Piece]:
        lexer = _lexer_of(path.rpartition("/")[2]) if self._coloured < MOST_COLOURED else None
        if lexer is None or len(text) > MOST_CHARACTERS:
            shown = text[:MOST_CHARACTERS]
            yield ("", shown + (" …" if len(text) > MOST_CHARACTERS else ""))
            return
        self._coloured += 1
        yield from _merged(_words(lexer, text))


def _words(lexer: Lexer, text: str) -> Iterator[Piece]:
    from pygments.token import STANDARD_TYPES  # noqa: PLC0415 - as below

    for kind, word in lexer.get_tokens(text):
        name: str | None = None
        while kind is not None and name is None:
            name, kind = STANDARD_TYPES.get(kind), kind.parent
        yield (f"k-{name}" if name else "", word.rstrip("\n"))


def _merged(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Neighbours of one class together: half as many elements on the page."""
    held: Piece | None = None
    for kind, text in pieces:
        if not text:
            continue
        if held is not None and held[0] == kind:
            held = (kind, held[1] + text)
            continue
        if held is not None:
            yield held
        held = (kind, text)
    if held is not None:
        yield held


def _range(text: str) -> tuple[int, int]:
    start, _, count = text.partition(",")
    return int(start), int(count) if count else 1


@lru_cache(maxsize=128)
def _lexer_of(name: str) -> Lexer | None:
    from pygments.lexers import (  # noqa: PLC0415 - 1.3 MB that a host without a viewer doesn't load
        get_lexer_for_filename,  # pyright: ignore[reportUnknownVariableType] - pygments has no types
    )
    from pygments.util import ClassNotFound  # noqa: PLC0415 - as above

    try:
        return get_lexer_for_filename(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
