"""What a run used, as `usage.query` answers it: from its ledger, in the strict view. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from remit.runs._operations import (
    UsageCoverage,
    UsageProvenance,
    UsageRange,
    UsageSummarised,
    UsageSummary,
    UsageTotals,
)
from remit.runs._ports import AttemptRow
from remit.usage import Bill, LedgerRow, strict_coverage, summarise


def answer_usage(attempts: Sequence[AttemptRow], looked_at: UsageRange | None) -> UsageSummarised:
    """The summary of a ledger, and how far it can be trusted.

    An attempt that was refused used nothing, for certain; one that was cut counts as partial where some of
    its usage was read, else as missing.

    Args:
        attempts: The run's ledger.
        looked_at: Between which moments the caller looked; it selects nothing.
    """
    rows = [LedgerRow.of(attempt.run_id, attempt.started, attempt.ended) for attempt in attempts]
    bill = summarise(rows)
    summary = UsageSummary(
        range=looked_at,
        request_count=len(rows),
        cost_usd=bill.cost_usd,
        totals=_totals(bill),
        cache_hit_count=sum(bool(row.usage.cache_read_tokens) for row in rows),
        cache_create_count=sum(bool(row.usage.cache_write_tokens) for row in rows),
        error_count=sum(one.ended is None or one.ended.status != "completed" for one in attempts),
    )
    return UsageSummarised(summary=summary, provenance=UsageProvenance(coverage=_coverage(rows)))


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
    provenance = UsageProvenance(coverage=_coverage([]), unreadable_records=1)
    return UsageSummarised(summary=nothing, provenance=provenance)


def _totals(bill: Bill) -> UsageTotals:
    usage = bill.usage
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


def _coverage(rows: Sequence[LedgerRow]) -> UsageCoverage:
    found = [strict_coverage(row.usage) for row in rows]
    priced = sum(row.priced for row in rows)
    return UsageCoverage(
        attempts=len(rows),
        priced=priced,
        unpriced=len(rows) - priced,
        reported=found.count("reported") + found.count("refused"),
        partial=found.count("partial"),
        missing=found.count("missing"),
    )
