"""The six numbers out of a Chat Completions usage object, from whichever server it comes.

Ours: input includes cache reads and writes, output includes reasoning, total = input + output. Servers
differ in whether `completion_tokens` holds the reasoning and `prompt_tokens` the cached part; their own
total tells, and where it doesn't, that a part can't be larger than its whole. What doesn't add up is
flagged and stays visible in the raw object (R18, R20).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remit.contract import AttemptCoverage, AttemptUsage
from remit.models._usage_reader import UsageReader, presentable, sum_known
from remit.models._wire import is_object


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
    reader = UsageReader()
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
        total_tokens=sum_known(counts.prompt, counts.completion),
        coverage=coverage,
        raw=presentable(raw),
        flags=tuple(reader.flags),
    )


def _settle(counts: _Counts, reader: UsageReader) -> bool:
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
