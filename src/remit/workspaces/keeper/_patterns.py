"""File name patterns, matched part by part so that no pattern can take long.

`*` and `?` stay within one part, `**` spans any number of parts, `[a-z]` and `[!a-z]` are sets, and `{a,b}`
gives alternatives. A pattern without a slash means a name at any depth.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

PartMatch = Callable[[str], object]

_ANY_PARTS: Final = "**"
_MAX_ALTERNATIVES: Final = 64
_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MAX_PATTERN_CHARS: Final = 1024


class PatternTooLarge(ValueError):
    """The pattern is too long, or stands for too many alternatives."""


class PartsPattern:
    """A pattern of parts; each is a part's matcher, or None for any number of parts."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts: list[PartMatch | None] = [
            None if part == _ANY_PARTS else part_match(part) for part in parts
        ]

    def matches(self, parts: Sequence[str]) -> bool:
        """Whether the whole path matches; time is the product of both lengths."""
        states = self._with_skips({0})
        for part in parts:
            following: set[int] = set()
            for state in states:
                if state == len(self._parts):
                    continue
                match = self._parts[state]
                if match is None:
                    following.add(state)
                elif match(part):
                    following.add(state + 1)
            states = self._with_skips(following)
        return len(self._parts) in states

    def _with_skips(self, states: set[int]) -> set[int]:
        """Adds the states reached when `**` stands for nothing."""
        for state in sorted(states):
            while state < len(self._parts) and self._parts[state] is None:
                state += 1
                states.add(state)
        return states


class Glob:
    """A pattern as a model writes it, such as `src/**/*.{ts,tsx}` or `*.py`."""

    __slots__ = ("_alternatives",)

    def __init__(self, pattern: str) -> None:
        self._alternatives = [PartsPattern(_glob_parts(text)) for text in expand_braces(pattern)]

    def matches(self, parts: Sequence[str]) -> bool:
        """Whether a path matches, given as its parts below the folder that the pattern is relative to."""
        return any(alternative.matches(parts) for alternative in self._alternatives)


def _glob_parts(pattern: str) -> list[str]:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if "/" not in pattern:
        return [_ANY_PARTS, *parts]
    if pattern.endswith("/"):
        parts.append(_ANY_PARTS)
    return parts


def expand_braces(pattern: str) -> list[str]:
    """The alternatives that a pattern's braces stand for.

    Raises:
        PatternTooLarge: more than 64 of them, or a pattern of more than 1024 characters.
    """
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise PatternTooLarge(f"the pattern has {len(pattern)} characters; at most {_MAX_PATTERN_CHARS}")
    done: list[str] = []
    todo = [pattern]
    while todo:
        text = todo.pop()
        found = _BRACES.search(text)
        if found is None:
            done.append(text)
        else:
            todo += [text[: found.start()] + choice + text[found.end() :] for choice in found[1].split(",")]
        if len(done) + len(todo) > _MAX_ALTERNATIVES:
            raise PatternTooLarge(f"the pattern has more than {_MAX_ALTERNATIVES} alternatives")
    return done


@lru_cache(maxsize=4096)
def part_match(part: str) -> PartMatch:
    """A matcher for one part; runs without backtracking over its stars."""
    return re.compile(part_expression(part)).match


def part_expression(part: str) -> str:
    """The regular expression of one part, with sets and escapes as git and shells write them."""
    # fnmatch knows no backslash, and writes a set's negation as `!`.
    text = re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] not in "^!]" else found[1], part)
    return fnmatch.translate(text.replace("[^", "[!"))
