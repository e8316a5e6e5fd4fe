"""What a run used, and how sure that is.

`input_tokens` includes cache reads and writes, `output_tokens` includes reasoning, and
total = input + output. A number that isn't known is None, never 0.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from remit.contract._model import Model

UsageCause = Literal[
    "unreadable_usage_record",
    "pending_usage_repair",
    "partial_attempt_usage",
    "missing_attempt_usage",
    "interrupted",
]
"""Why a bill isn't complete; in this order where several hold."""

AttemptCoverage = Literal["reported", "refused", "interrupted", "partial", "missing"]
"""How much of an attempt's usage was read from the wire.

reported: all of it. refused: an error status came instead of a stream, so 0. interrupted: cut by us
or by the provider; what is known is a lower bound. partial: some numbers, not all. missing: none.
"""


class TokenCounts(Model):
    """The six numbers."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None


class AttemptUsage(TokenCounts):
    """One physical provider request's usage."""

    coverage: AttemptCoverage
    raw: dict[str, Any] | None = None
    """The provider's own usage object, as it stood on the wire; None where none came."""
    flags: tuple[str, ...] = ()
    """Oddities seen while reading it, such as `total_mismatch` or `odd_tail`."""


class Coverage(Model):
    """How many attempts there were, and how much of their usage is known."""

    attempts: int = 0
    reported: int = 0
    refused: int = 0
    interrupted: int = 0
    partial: int = 0
    missing: int = 0
    priced: int = 0
    unpriced: int = 0


class UsageShare(TokenCounts):
    """A part of a run's usage, with its cost where that is known."""

    cost_usd: float | None = None


class Usage(TokenCounts):
    """A run's usage, read after its work has ended.

    `own` is the run without its children, `subtree` is with them; the top six numbers are the subtree's.
    """

    complete: bool = True
    causes: tuple[UsageCause, ...] = ()
    coverage: Coverage = Field(default_factory=Coverage)
    own: TokenCounts = Field(default_factory=TokenCounts)
    subtree: TokenCounts = Field(default_factory=TokenCounts)
    by_stage: dict[str, UsageShare] = Field(default_factory=dict[str, UsageShare])
    by_model: dict[str, UsageShare] = Field(default_factory=dict[str, UsageShare])
