"""Taking numbers out of a provider's usage object."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.models._wire import is_array, is_object

_MAX_RAW_ENTRIES = 200
_MAX_RAW_TEXT = 200


@dataclass(slots=True)
class UsageReader:
    """Takes numbers out of untrusted objects, and remembers what was wrong with them."""

    flags: list[str] = field(default_factory=list[str])
    bad: bool = False

    def number(self, value: Any, *path: str) -> int | None:
        """The count at this place; None where there is none, or something that is no count."""
        for key in path:
            if not is_object(value):
                return None
            value = value.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.bad = True
            self.flag("bad_number")
            return None
        return value

    def first(self, value: Any, *paths: tuple[str, ...]) -> int | None:
        """The first count that is there."""
        for path in paths:
            found = self.number(value, *path)
            if found is not None:
                return found
        return None

    def flag(self, word: str) -> None:
        """Note an oddity once."""
        if word not in self.flags:
            self.flags.append(word)


def sum_known(*numbers: int | None) -> int | None:
    """Their sum; None where one isn't known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def presentable(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The raw object as we may store it: finite numbers, short texts, not too much of it."""
    budget = [_MAX_RAW_ENTRIES]
    return {str(key)[:_MAX_RAW_TEXT]: _presentable(value, budget, 0) for key, value in raw.items()}


def _presentable(value: Any, budget: list[int], depth: int) -> Any:
    budget[0] -= 1
    if budget[0] < 0 or depth > 8:
        return "…"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) >= 10**30:
        return "…"
    if isinstance(value, str):
        return value[:_MAX_RAW_TEXT].encode(errors="replace").decode()
    if is_object(value):
        return {
            str(key)[:_MAX_RAW_TEXT]: _presentable(item, budget, depth + 1) for key, item in value.items()
        }
    if is_array(value):
        return [_presentable(item, budget, depth + 1) for item in value[:_MAX_RAW_ENTRIES]]
    return value
