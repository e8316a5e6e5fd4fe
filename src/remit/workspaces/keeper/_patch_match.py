"""Puts the hunks of a patch into a file's lines; what they don't name keeps its bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from remit.workspaces.keeper._line_ends import LF, Line, end_near, split_lines
from remit.workspaces.keeper._nearest import nearest_text
from remit.workspaces.keeper._patch_text import FileChange, Hunk
from remit.workspaces.keeper._refusals import OperationRefused

_LOOKS_LIKE: Final = str.maketrans(
    "\u2010\u2011\u2012\u2013\u2014\u2212\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00a0\u2009\u202f\u3000",
    "------''''\"\"\"\"    ",
)

_LENIENCE: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: text,
    str.rstrip,
    str.strip,
    lambda text: text.translate(_LOOKS_LIKE).strip(),
)
"""How lines are compared, strictest first: as they are; without white space; with plain punctuation."""


class _Texts:
    """The lines of a file as texts, in each form that they are compared in."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._forms: dict[int, list[str]] = {}

    def find(self, wanted: Sequence[str], position: int) -> int | None:
        """Where lines stand one after another, at or after a position, compared as strictly as possible."""
        for level, norm in enumerate(_LENIENCE):
            if level not in self._forms:
                self._forms[level] = [norm(line) for line in self.lines]
            found = _find_run(self._forms[level], [norm(text) for text in wanted], position)
            if found is not None:
                return found
        return None


def _find_run(lines: list[str], wanted: list[str], position: int) -> int | None:
    while True:
        try:
            start = lines.index(wanted[0], position, max(0, len(lines) - len(wanted) + 1))
        except ValueError:
            return None
        if lines[start : start + len(wanted)] == wanted:
            return start
        position = start + 1


def apply_hunks(data: bytes, change: FileChange) -> bytes:
    """The file's bytes after all hunks of a change.

    Raises:
        OperationRefused: a hunk's lines don't stand in the file in this order.
    """
    lines = split_lines(data)
    texts = _Texts([line.body.decode("utf-8", "replace") for line in lines])
    pieces: list[Line] = []
    position = 0
    for hunk in change.hunks:
        start = _locate(hunk, texts, position, path=change.path)
        pieces += lines[position:start]
        old_count = sum(sign != "+" for sign, _ in hunk.lines)
        pieces += _changed_lines(
            hunk, lines[start : start + old_count], end_near(data, _offset(lines, start))
        )
        position = start + old_count
    pieces += lines[position:]
    return _joined(pieces, default=end_near(data, len(data)))


def _offset(lines: Sequence[Line], index: int) -> int:
    return sum(len(line.whole) for line in lines[:index])


def _locate(hunk: Hunk, texts: _Texts, position: int, *, path: str) -> int:
    """The index of the line at which the hunk begins."""
    for above in hunk.above:
        found = texts.find([above], position)
        if found is None:
            raise _refusal(path, [above], texts.lines)
        position = found + 1
    old = [text for sign, text in hunk.lines if sign != "+"]
    if not old:
        return position if hunk.above else len(texts.lines)
    if hunk.at_end:
        found = texts.find(old, max(position, len(texts.lines) - len(old)))
        if found is not None:
            return found
    found = texts.find(old, position)
    if found is None and hunk.above:
        # The line above may itself be the first of the hunk.
        found = texts.find(old, position - 1)
    if found is None:
        raise _refusal(path, old, texts.lines)
    return found


def _changed_lines(hunk: Hunk, found: Sequence[Line], default: bytes) -> list[Line]:
    """The lines in place of those found: context as it stands, new ones ending like those they replace."""
    result: list[Line] = []
    ends: list[bytes] = []  # of the lines just removed, as far as no new line has taken them
    open_end = False
    index = 0
    for position, (sign, text) in enumerate(hunk.lines):
        if sign == "+":
            following = hunk.lines[position + 1 : position + 2]
            end = ends.pop(0) if ends else default
            if open_end and (not following or following[0][0] != "+"):
                end = b""  # the last line had no end, so the line in its place has none
            result.append(Line(text.encode("utf-8", "replace"), end))
            continue
        line = found[index]
        index += 1
        if sign == " ":
            ends = []
            result.append(line)
        else:
            ends.append(line.end or default)
        open_end = sign == "-" and not line.end
    return result


def _joined(lines: Sequence[Line], *, default: bytes) -> bytes:
    """The lines as bytes; only the last may lack an end."""
    last = len(lines) - 1
    return b"".join(
        line.whole if line.end or index == last else line.body + (default or LF)
        for index, line in enumerate(lines)
    )


def _refusal(path: str, wanted: Sequence[str], texts: Sequence[str]) -> OperationRefused:
    near = nearest_text("\n".join(texts), "\n".join(wanted))
    shown = wanted[0][:120] if wanted else ""
    return OperationRefused(
        "conflict", f"{path}: the lines of the patch that begin with {shown!r} don't stand there; {near}"
    )
