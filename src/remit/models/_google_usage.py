"""The six numbers out of a Gemini usage object.

Gemini counts what it thought beside what it said: output is `candidatesTokenCount` and
`thoughtsTokenCount` (R20). Input holds the cached part, and what its own tools put into the prompt stands
beside it. Counts that are zero are left out of the JSON, so what isn't named is zero where the total adds up.

Source: the API reference of `UsageMetadata`, 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.contract import AttemptCoverage, AttemptUsage
from remit.models._usage_reader import UsageReader, presentable, sum_known

COUNTS = (
    "promptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "cachedContentTokenCount",
    "toolUsePromptTokenCount",
    "totalTokenCount",
)


def read_gemini_usage(raw: Mapping[str, Any], *, final: bool) -> AttemptUsage:
    """The usage that a record reports.

    Args:
        raw: Its `usageMetadata`.
        final: It came with the reason why the model stopped, or after it, so it counts the whole reply.
    """
    reader = UsageReader()
    prompt, said, thought, cached, by_tools, total = (reader.number(raw, name) for name in COUNTS)
    sent = None if prompt is None else prompt + (by_tools or 0)
    output = _output(said, thought, sent, total)
    whole = sum_known(sent, output)
    hidden = total is not None and whole is not None and total > whole
    if total is not None and whole is not None and total != whole:
        reader.flag("total_mismatch")
    if cached is not None and sent is not None and cached > sent:
        reader.flag("part_exceeds_whole")
        hidden = True
    known = whole is not None and final and not hidden and not reader.bad
    coverage: AttemptCoverage = "reported" if known else "partial"
    return AttemptUsage(
        input_tokens=sent,
        output_tokens=output,
        cache_read_tokens=None if sent is None else cached or 0,
        cache_write_tokens=None if sent is None else 0,
        reasoning_tokens=None if output is None else thought or 0,
        total_tokens=whole,
        coverage=coverage,
        raw=presentable(raw),
        flags=tuple(reader.flags),
    )


def _output(said: int | None, thought: int | None, sent: int | None, total: int | None) -> int | None:
    """All that the model wrote; None where nobody says so."""
    if said is not None or thought is not None:
        return (said or 0) + (thought or 0)
    return 0 if sent is not None and total == sent else None
