"""Lines and their ends, kept apart, so that an edit changes the lines it names and no other byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LF = b"\n"
CRLF = b"\r\n"


class Line(NamedTuple):
    """One line: its bytes, and how it ends (nothing for a last line without end)."""

    body: bytes
    end: bytes

    @property
    def whole(self) -> bytes:
        """The line as it stands in the file."""
        return self.body + self.end


def split_lines(data: bytes) -> list[Line]:
    """The lines of a file; a lone carriage return is part of a line."""
    *pieces, last = data.split(LF)
    lines = [Line(piece[:-1], CRLF) if piece.endswith(b"\r") else Line(piece, LF) for piece in pieces]
    return [*lines, Line(last, b"")] if last else lines


def end_near(data: bytes, position: int) -> bytes:
    """How the lines around a position end: the next one, else the one before, else LF."""
    at = data.find(LF, position)
    if at < 0:
        at = data.rfind(LF, 0, position)
    return CRLF if at > 0 and data[at - 1 : at] == b"\r" else LF


def adapt_ends(new: bytes, *, segment: bytes, default: bytes) -> bytes:
    """Gives each line of a replacement the end that fits the bytes it replaces.

    Lines that begin or end both texts alike keep their bytes; the others take the ends of those they replace
    in turn, then the default. `new` holds only LF ends.
    """
    before, after = split_lines(segment), split_lines(new)
    start = _common(before, after)
    stop = _common(before[start:][::-1], after[start:][::-1])
    middle = before[start : len(before) - stop]
    kept = before[len(before) - stop :] if stop else []
    changed = after[start : len(after) - stop]
    lines = [*before[:start], *_with_ends(changed, middle, default), *kept]
    return b"".join(line.whole for line in lines)


def _common(before: Sequence[Line], after: Sequence[Line]) -> int:
    count = 0
    for one, other in zip(before, after, strict=False):
        if one.body != other.body or bool(one.end) is not bool(other.end):
            break
        count += 1
    return count


def _with_ends(lines: Sequence[Line], replaced: Sequence[Line], default: bytes) -> list[Line]:
    ends = [line.end for line in replaced if line.end]
    fallback = ends[-1] if ends else default
    return [
        Line(line.body, (ends[index] if index < len(ends) else fallback) if line.end else b"")
        for index, line in enumerate(lines)
    ]
