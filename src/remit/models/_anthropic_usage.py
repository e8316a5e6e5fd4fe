"""The six numbers out of the usage objects of an Anthropic stream.

Anthropic counts disjointly: `input_tokens` is what came neither from the cache nor into it. Ours is the
sum of the three (R18). The numbers come twice, in the first record and in the last; they are totals, so
the last one wins and nothing is added (R19).

Source: Messages API, streaming and prompt caching pages, 2026-11.
"""

from __future__ import annotations

from typing import Any

from remit.contract import AttemptCoverage, AttemptUsage
from remit.models._usage_reader import UsageReader, presentable, sum_known


class UsageTally:
    """What was read of the usage so far."""

    def __init__(self) -> None:
        self._raw: dict[str, Any] = {}
        self._final = False
        self._shrank = False

    def add(self, raw: dict[str, Any], *, final: bool) -> AttemptUsage:
        """Take over a usage object; what it doesn't name keeps the value it had.

        Args:
            raw: The object.
            final: It came with the reason why the model stopped, so its output count is the whole.
        """
        for key, value in raw.items():
            if value is None:
                continue
            before = self._raw.get(key)
            self._shrank |= _is_count(before) and _is_count(value) and value < before
            self._raw[key] = value
        self._final |= final and raw.get("output_tokens") is not None
        return self._read()

    def _read(self) -> AttemptUsage:
        raw, reader = self._raw, UsageReader()
        plain = reader.number(raw, "input_tokens")
        # Whoever doesn't name the cache didn't use it; the API itself always does.
        read = reader.number(raw, "cache_read_input_tokens") or 0
        written = reader.number(raw, "cache_creation_input_tokens") or 0
        output = reader.number(raw, "output_tokens")
        reasoning = reader.number(raw, "output_tokens_details", "thinking_tokens")
        sent = None if plain is None else plain + read + written
        if reasoning is not None and output is not None and reasoning > output:
            reader.flag("part_exceeds_whole")
        if self._shrank:
            reader.flag("usage_shrank")
        known = sent is not None and output is not None and self._final
        odd = reader.bad or "part_exceeds_whole" in reader.flags
        coverage: AttemptCoverage = "reported" if known and not odd else "partial"
        return AttemptUsage(
            input_tokens=sent,
            output_tokens=output,
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=reasoning,
            total_tokens=sum_known(sent, output),
            coverage=coverage,
            raw=presentable(raw),
            flags=tuple(reader.flags),
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
