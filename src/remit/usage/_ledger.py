"""The bill of a run, read from its ledger: one row per physical request, each counted once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from remit.contract import (
    AttemptCoverage,
    AttemptEnded,
    AttemptStarted,
    AttemptUsage,
    Coverage,
    TokenCounts,
    Usage,
    UsageCause,
    UsageShare,
)
from remit.errors import InternalError
from remit.primitives import usd_from_micros

_FIELDS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "total_tokens",
)
_ZERO: Final = TokenCounts(**dict.fromkeys(_FIELDS, 0))
_WHOLE: Final = frozenset({"reported", "refused"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One physical provider request, as it is stored."""

    run_id: str
    attempt_id: str
    stage_id: str
    model: str
    usage: AttemptUsage
    """Coverage `interrupted` and no number where it never ended."""
    cost_micros: int | None
    """None: not known, or no price."""
    reserved_micros: int | None
    """Its worst case; None: no price."""

    @classmethod
    def of(cls, run_id: str, started: AttemptStarted, ended: AttemptEnded | None) -> LedgerRow:
        """The row of a stored attempt. One that never ended was cut by a crash."""
        usage = ended.usage if ended is not None else None
        return cls(
            run_id=run_id,
            attempt_id=started.attempt_id,
            stage_id=started.stage_id,
            model=started.model,
            usage=usage or AttemptUsage(coverage="interrupted"),
            cost_micros=ended.cost_micros if ended is not None else None,
            reserved_micros=started.reserved_micros,
        )

    @property
    def coverage(self) -> AttemptCoverage:
        """How much of its usage is known."""
        return self.usage.coverage

    @property
    def whole(self) -> bool:
        """Whether all of its usage is known."""
        return self.coverage in _WHOLE

    @property
    def priced(self) -> bool:
        """Whether it has a price: where nothing was used, nothing needs one."""
        return self.reserved_micros is not None or self.coverage == "refused"

    @property
    def settled_micros(self) -> int | None:
        """What it cost; None where that isn't known for sure."""
        if self.coverage == "refused":
            return 0
        return self.cost_micros if self.whole else None

    @property
    def most_micros(self) -> int | None:
        """The most that it can have cost; None where it has no price."""
        if self.settled_micros is not None:
            return self.settled_micros
        if self.reserved_micros is None:
            return None
        return max(self.reserved_micros, self.cost_micros or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """A run's usage and cost, read after all its work has ended."""

    usage: Usage
    cost_usd: float | None
    """A number only when every attempt is complete and priced."""
    estimated_max_cost_usd: float | None
    """The most that it can have cost; the cost itself where that is known; None where a price is missing."""


def summarise_attempts(
    own: Iterable[tuple[AttemptStarted, AttemptEnded | None]],
    *,
    run_id: str = "",
    children: Sequence[LedgerRow] = (),
    readable: bool = True,
    pending_repair: bool = False,
) -> Bill:
    """`summarise`, for a run's attempts as their events hold them."""
    rows = [LedgerRow.of(run_id, started, ended) for started, ended in own]
    return summarise(rows, children, readable=readable, pending_repair=pending_repair)


def summarise(
    own: Sequence[LedgerRow],
    children: Sequence[LedgerRow] = (),
    *,
    readable: bool = True,
    pending_repair: bool = False,
) -> Bill:
    """The bill of a run.

    Args:
        own: The run's own rows.
        children: The rows of its child runs, however deep.
        readable: False: a part of the ledger couldn't be read, so nothing is known for sure.
        pending_repair: The ledger is behind and is being repaired.

    Raises:
        InternalError: A row stands twice.
    """
    rows = (*own, *children)
    if len({(row.run_id, row.attempt_id) for row in rows}) != len(rows):
        raise InternalError("an attempt stands twice in the ledger")
    causes = _causes(rows, readable=readable, pending_repair=pending_repair)
    known = readable and not pending_repair
    usage = Usage(
        **_total(rows).model_dump(),
        complete=not causes,
        causes=causes,
        coverage=_coverage(rows),
        own=_total(own),
        subtree=_total(rows),
        by_stage=_shares(rows, lambda row: row.stage_id.partition("-")[0], known=known),
        by_model=_shares(rows, lambda row: row.model, known=known),
    )
    return Bill(
        usage=usage,
        cost_usd=_usd(row.settled_micros for row in rows) if known else None,
        estimated_max_cost_usd=_usd(row.most_micros for row in rows) if known else None,
    )


def strict_causes(
    rows: Sequence[LedgerRow], *, readable: bool = True, pending_repair: bool = False
) -> tuple[UsageCause, ...]:
    """Why a bill isn't complete, in the strict view and its fixed order.

    There an interrupted attempt counts as partial when some of its usage was read, else as missing.
    """
    found = {strict_coverage(row.usage) for row in rows}
    return _in_order(
        unreadable=not readable,
        pending=pending_repair,
        partial="partial" in found,
        missing="missing" in found,
    )


def strict_coverage(usage: AttemptUsage) -> AttemptCoverage:
    """An attempt's coverage in the strict view, which knows no `interrupted`."""
    if usage.coverage != "interrupted":
        return usage.coverage
    some = any(getattr(usage, name) is not None for name in _FIELDS)
    return "partial" if some else "missing"


def _causes(rows: Sequence[LedgerRow], *, readable: bool, pending_repair: bool) -> tuple[UsageCause, ...]:
    found = {row.coverage for row in rows}
    causes = _in_order(
        unreadable=not readable,
        pending=pending_repair,
        partial="partial" in found,
        missing="missing" in found,
    )
    return (*causes, "interrupted") if "interrupted" in found else causes


def _in_order(*, unreadable: bool, pending: bool, partial: bool, missing: bool) -> tuple[UsageCause, ...]:
    causes: list[UsageCause] = []
    if unreadable:
        causes.append("unreadable_usage_record")
    if pending:
        causes.append("pending_usage_repair")
    if partial:
        causes.append("partial_attempt_usage")
    if missing:
        causes.append("missing_attempt_usage")
    return tuple(causes)


def _coverage(rows: Sequence[LedgerRow]) -> Coverage:
    counts: dict[str, int] = {"attempts": len(rows)}
    for row in rows:
        counts[row.coverage] = counts.get(row.coverage, 0) + 1
    priced = sum(row.priced for row in rows)
    return Coverage(**counts, priced=priced, unpriced=len(rows) - priced)


def _total(rows: Sequence[LedgerRow]) -> TokenCounts:
    """The sum of what is known: a lower bound where an attempt isn't whole; None where no number is."""
    if not rows:
        return _ZERO
    return TokenCounts(**{name: _known_sum(rows, name) for name in _FIELDS})


def _known_sum(rows: Sequence[LedgerRow], name: str) -> int | None:
    values = [0 if row.coverage == "refused" else getattr(row.usage, name) for row in rows]
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _shares(
    rows: Sequence[LedgerRow], key_of: Callable[[LedgerRow], str], *, known: bool
) -> dict[str, UsageShare]:
    groups: dict[str, list[LedgerRow]] = {}
    for row in rows:
        groups.setdefault(key_of(row), []).append(row)
    shares: dict[str, UsageShare] = {}
    for key, group in sorted(groups.items()):
        cost = _usd(row.settled_micros for row in group) if known else None
        shares[key] = UsageShare(**_total(group).model_dump(), cost_usd=cost)
    return shares


def _usd(amounts_micros: Iterable[int | None]) -> float | None:
    total = 0
    for micros in amounts_micros:
        if micros is None:
            return None
        total += micros
    return usd_from_micros(total)
