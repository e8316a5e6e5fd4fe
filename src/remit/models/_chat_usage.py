"""The six numbers out of a Chat Completions usage object, from whichever server it comes.

Ours: input includes cache reads and writes, output includes reasoning, total = input + output. Servers
differ in whether `completion_tokens` holds the reasoning and `prompt_tokens` the cached part; their own
total tells, and where it doesn't, that a part can't be larger than its whole. What doesn't add up is
flagged and stays visible in the raw object (R18, R20).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.contract import AttemptCoverage, AttemptUsage
from remit.models._wire import is_array, is_object

_MAX_RAW_ENTRIES = 200
_MAX_RAW_TEXT = 200


@dataclass(slots=True)
class _Reader:
    """Takes numbers out of untrusted objects, and remembers what was wrong with them."""

    flags: list[str] = field(default_factory=list[str])
    bad: bool = False

    def number(self, value: Any, *path: str) -> int | None:
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
        for path in paths:
            found = self.number(value, *path)
            if found is not None:
                return found
        return None

    def flag(self, word: str) -> None:
        if word not in self.flags:
            self.flags.append(word)


@dataclass(slots=True)
class _Counts:
    prompt: int | None
    completion: int | None
    total: int | None
    read: int | None
    written: int | None
    reasoning: int | None


def read_chat_usage(raw: Mapping[str, Any]) -> AttemptUsage:
    """The usage that a whole reply reports: coverage `reported`, or `partial` where numbers are missing."""
    reader = _Reader()
    counts = _Counts(
        prompt=reader.number(raw, "prompt_tokens"),
        completion=reader.number(raw, "completion_tokens"),
        total=reader.number(raw, "total_tokens"),
        read=reader.first(
            raw,
            ("prompt_tokens_details", "cached_tokens"),
            ("prompt_cache_hit_tokens",),
            ("cached_tokens",),
            ("cache_read_input_tokens",),
        ),
        written=reader.first(
            raw,
            ("prompt_tokens_details", "cache_write_tokens"),
            ("prompt_tokens_details", "cache_creation_tokens"),
            ("cache_creation_input_tokens",),
        ),
        reasoning=reader.first(raw, ("completion_tokens_details", "reasoning_tokens"), ("reasoning_tokens",)),
    )
    # Whoever breaks a number down and names no such part has none.
    if counts.written is None and is_object(raw.get("prompt_tokens_details")) and counts.read is not None:
        counts.written = 0
    if counts.reasoning is None and is_object(raw.get("completion_tokens_details")) and not reader.bad:
        counts.reasoning = 0
    hidden = _settle(counts, reader)
    known = counts.prompt is not None and counts.completion is not None
    coverage: AttemptCoverage = "reported" if known and not hidden and not reader.bad else "partial"
    return AttemptUsage(
        input_tokens=counts.prompt,
        output_tokens=counts.completion,
        cache_read_tokens=counts.read,
        cache_write_tokens=counts.written,
        reasoning_tokens=counts.reasoning,
        total_tokens=_sum(counts.prompt, counts.completion),
        coverage=coverage,
        raw=presentable(raw),
        flags=tuple(reader.flags),
    )


def _settle(counts: _Counts, reader: _Reader) -> bool:
    """Bring the counts into our meaning; True when the provider's total holds tokens that nobody names."""
    if counts.prompt is None or counts.completion is None:
        return False
    cached = (counts.read or 0) + (counts.written or 0)
    reasoning = counts.reasoning or 0
    missing = None if counts.total is None else counts.total - counts.prompt - counts.completion
    if missing is None or missing < 0:
        add_reasoning, add_cached = reasoning > counts.completion, cached > counts.prompt
    else:
        add_reasoning = reasoning > 0 and missing in (reasoning, reasoning + cached)
        add_cached = cached > 0 and missing in (cached, reasoning + cached) and missing != reasoning
    if add_reasoning:
        counts.completion += reasoning
        reader.flag("reasoning_added")
    if add_cached:
        counts.prompt += cached
        reader.flag("cache_added")
    if counts.total is not None and counts.total != counts.prompt + counts.completion:
        reader.flag("total_mismatch")
    if cached > counts.prompt or reasoning > counts.completion:
        reader.flag("part_exceeds_whole")
        return True
    return counts.total is not None and counts.total > counts.prompt + counts.completion


def _sum(*numbers: int | None) -> int | None:
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
