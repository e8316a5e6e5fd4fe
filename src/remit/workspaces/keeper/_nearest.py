"""Shows what in a text is most like another, for whoever named a text that isn't there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Final

from remit.workspaces.keeper._walking import escape_controls

_MAX_LINES: Final = 20_000
_MAX_COMPARED: Final = 4_000
_MAX_LINE_CHARS: Final = 200
_SHOWN_LINES: Final = 15
_LIKE_ENOUGH: Final = 0.6


def nearest_text(text: str, wanted: str) -> str:
    """A sentence with the lines of `text` most like `wanted`, numbered; or that there are none."""
    lines = text.split("\n")[:_MAX_LINES]
    asked = wanted.strip("\n").split("\n")
    squeezed = [_squeeze(line) for line in lines]
    asked_squeezed = [_squeeze(line) for line in asked]
    start = _find_window(squeezed, asked_squeezed)
    if start is not None:
        return "the nearest differs only in white space:\n" + _numbered(lines, start, len(asked))
    start = _find_by_votes(squeezed, asked_squeezed)
    if start is None:
        start = _find_by_likeness(squeezed, asked_squeezed)
    if start is None:
        return "nothing in the file is like it; read the file again"
    return "the nearest is:\n" + _numbered(lines, start, len(asked))


def _squeeze(line: str) -> str:
    return " ".join(line.split())


def _find_window(lines: Sequence[str], asked: Sequence[str]) -> int | None:
    """Where all the lines stand one after another."""
    anchor = max(range(len(asked)), key=lambda index: len(asked[index]))
    if not asked[anchor]:
        return None
    for index, line in enumerate(lines):
        start = index - anchor
        if line == asked[anchor] and start >= 0 and list(lines[start : start + len(asked)]) == list(asked):
            return start
    return None


def _find_by_votes(lines: Sequence[str], asked: Sequence[str]) -> int | None:
    """Where the most of the lines stand at their distances from each other; rare lines count more."""
    places: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        if line:
            places.setdefault(line, []).append(index)
    votes: Counter[int] = Counter()
    for index, line in enumerate(asked):
        found = places.get(line, [])
        for place in found[:100]:
            votes[place - index] += len(line)
    if not votes:
        return None
    best = max(votes, key=lambda start: (votes[start], -start))
    # A lone brace says nothing.
    return max(0, best) if votes[best] >= max(4, len("".join(asked)) // 5) else None


def _find_by_likeness(lines: Sequence[str], asked: Sequence[str]) -> int | None:
    """Where a line stands that is most like the longest one."""
    anchor = max(range(len(asked)), key=lambda index: len(asked[index]))
    matcher = SequenceMatcher(None, "", asked[anchor][:_MAX_LINE_CHARS], autojunk=False)
    best, best_ratio = None, _LIKE_ENOUGH
    for index, line in enumerate(lines[:_MAX_COMPARED]):
        matcher.set_seq1(line[:_MAX_LINE_CHARS])
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best, best_ratio = index, ratio
    return None if best is None else max(0, best - anchor)


def _numbered(lines: Sequence[str], start: int, count: int) -> str:
    shown = lines[start : start + min(count, _SHOWN_LINES)]
    return "\n".join(f"{start + index + 1:>5}| {_cut(line)}" for index, line in enumerate(shown))


def _cut(line: str) -> str:
    text = escape_controls(line.removesuffix("\r"))
    return text if len(text) <= _MAX_LINE_CHARS else text[:_MAX_LINE_CHARS] + "..."
