"""What a run used, as `usage.query` answers it: from its ledger, in the strict view. Pure.

The bill of an ended run holds its child runs too; how their requests are covered is told by its counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from remit.contract import Coverage, Usage
from remit.runs._operations import (
    UsageCoverage,
    UsageProvenance,
    UsageRange,
    UsageSummarised,
    UsageSummary,
    UsageTotals,
)
from remit.runs._ports import AttemptRow
from remit.usage import LedgerRow, strict_coverage, summarise


def answer_usage(
    attempts: Sequence[AttemptRow],
    looked_at: UsageRange | None,
    *,
    usage: Usage | None = None,
    cost_usd: float | None = None,
) -> UsageSummarised:
    """The summary of a ledger, and how far it can be trusted.

    An attempt that was refused used nothing, for certain; one that was cut counts as partial where some of
    its usage was read, else as missing.

    Args:
        attempts: The run's own ledger.
        looked_at: Between which moments the caller looked; it selects nothing.
        usage: Of the whole tree of the run, once it has ended; None: its children aren't counted yet.
        cost_usd: Of the same.
    """
    rows = [LedgerRow.of(attempt.run_id, attempt.started, attempt.ended) for attempt in attempts]
    own = summarise(rows)
    if usage is None or usage.coverage.attempts < len(rows):  # less than there is: it couldn't be read then
        usage, cost_usd = own.usage, own.cost_usd
    summary = UsageSummary(
        range=looked_at,
        request_count=usage.coverage.attempts,
        cost_usd=cost_usd,
        totals=_totals(usage),
        cache_hit_count=sum(bool(row.usage.cache_read_tokens) for row in rows),
        cache_create_count=sum(bool(row.usage.cache_write_tokens) for row in rows),
        error_count=sum(one.ended is None or one.ended.status != "completed" for one in attempts),
    )
    below = _less(usage.coverage, own.usage.coverage)
    return UsageSummarised(summary=summary, provenance=UsageProvenance(coverage=_coverage(rows, below=below)))


def unreadable_usage(looked_at: UsageRange | None) -> UsageSummarised:
    """The answer where the ledger can't be read: no number is known."""
    nothing = UsageSummary(
        range=looked_at,
        request_count=0,
        cost_usd=None,
        totals=UsageTotals(),
        cache_hit_count=0,
        cache_create_count=0,
        error_count=0,
    )
    provenance = UsageProvenance(coverage=_coverage([], below=Coverage()), unreadable_records=1)
    return UsageSummarised(summary=nothing, provenance=provenance)


def _less(tree: Coverage, own: Coverage) -> Coverage:
    """What is below a run: its tree's counts without its own."""
    counts = own.model_dump()
    return Coverage(**{name: count - counts[name] for name, count in tree.model_dump().items()})


def _totals(usage: Usage) -> UsageTotals:
    known = usage.input_tokens is not None and usage.cache_read_tokens is not None
    return UsageTotals(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.total_tokens,
        cache_miss_tokens=(usage.input_tokens or 0) - (usage.cache_read_tokens or 0) if known else None,
    )


def _coverage(rows: Sequence[LedgerRow], *, below: Coverage) -> UsageCoverage:
    """Of the run's own requests, and of those below it, where a cut one counts as missing."""
    found = [strict_coverage(row.usage) for row in rows]
    priced = sum(row.priced for row in rows)
    return UsageCoverage(
        attempts=len(rows) + below.attempts,
        priced=priced + below.priced,
        unpriced=len(rows) - priced + below.unpriced,
        reported=found.count("reported") + found.count("refused") + below.reported + below.refused,
        partial=found.count("partial") + below.partial,
        missing=found.count("missing") + below.missing + below.interrupted,
    )
