"""Which files git would leave out, from the `.gitignore` files of a tree."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from remit.workspaces.keeper._patterns import PartsPattern, part_expression

_MAX_BYTES: Final = 262_144
_MAX_RULES: Final = 2_000
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _Rule:
    parts: tuple[str, ...]
    anchored: bool
    negated: bool
    folders_only: bool
    pattern: PartsPattern


class IgnoreRules:
    """The rules of one folder's `.gitignore`, and those of the folders above it."""

    __slots__ = ("_above", "_depth", "_firsts", "_names", "_rules")

    def __init__(self, text: str, *, depth: int = 0, above: IgnoreRules | None = None) -> None:
        self._above = above
        self._depth = depth
        lines = text.removeprefix("\ufeff").split("\n")[:_MAX_RULES]
        self._rules = [rule for line in lines if (rule := _parse(line)) is not None]
        # Two looks tell for most paths that no rule is about them.
        self._names = _any_of(rule.parts[-1] for rule in self._rules if not _has_fixed_start(rule))
        self._firsts = _any_of(rule.parts[0] for rule in self._rules if _has_fixed_start(rule))

    def ignores(self, parts: Sequence[str], *, folder: bool) -> bool:
        """Whether a path from the root is left out; its parents are assumed not to be."""
        rules: IgnoreRules | None = self
        while rules is not None:
            verdict = rules._verdict(parts, folder)
            if verdict is not None:
                return verdict
            rules = rules._above
        return False

    def _verdict(self, parts: Sequence[str], folder: bool) -> bool | None:
        below = parts[self._depth :]
        by_name = self._names is not None and self._names.match(below[-1]) is not None
        if not by_name and (self._firsts is None or self._firsts.match(below[0]) is None):
            return None
        for rule in reversed(self._rules):
            if (folder or not rule.folders_only) and rule.pattern.matches(below):
                return not rule.negated
        return None


def _has_fixed_start(rule: _Rule) -> bool:
    return rule.anchored and rule.parts[0] != "**"


def _any_of(parts: Iterable[str]) -> re.Pattern[str] | None:
    expressions = [part_expression(part) for part in parts]
    return re.compile("|".join(expressions)) if expressions else None


def _parse(line: str) -> _Rule | None:
    text = line.removesuffix("\r")
    if text.startswith("#"):
        return None
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    negated = text.startswith("!")
    text = text[negated:]
    folders_only = text.endswith("/")
    parts = tuple(part for part in text.split("/") if part)
    if not parts:
        return None
    anchored = "/" in text.removesuffix("/")
    if anchored and parts[-1] == "**":
        parts = (*parts, "*")  # what is inside, not the folder itself
    pattern = PartsPattern(parts if anchored else ("**", *parts))
    return _Rule(parts, anchored, negated, folders_only, pattern)


def load_rules(folder_fd: int, *, depth: int, above: IgnoreRules | None) -> IgnoreRules | None:
    """The rules that hold in an opened folder: its own, if it has any, before those above."""
    try:
        fd = os.open(".gitignore", _FLAGS, dir_fd=folder_fd)
    except OSError:
        return above
    try:
        text = os.read(fd, _MAX_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return above
    finally:
        os.close(fd)
    return IgnoreRules(text, depth=depth, above=above)
