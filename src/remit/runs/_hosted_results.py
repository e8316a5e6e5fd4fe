"""The strict view of an ended turn: what hosted execution answers with, and how it comes about. Pure.

    settled        id, kind, status, six numbers, cost; failure_reason only where it failed
    indeterminate  id, kind, failure_reason

A bill that isn't whole makes the end indeterminate, whatever the turn's status was.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from remit.contract import Model, TokenCounts, UsageCause
from remit.errors import InternalError
from remit.runs._operations import TurnSnapshot, UsageProvenance, UsageSummarised

NOT_ADMITTED: Final = "lost/not_admitted"
"""Aborted before the turn was admitted: there is no usage and no cost."""
COULD_NOT_SETTLE: Final = "lost/unproven"
"""Something went wrong on the way; what, isn't told."""

SettledStatus = Literal["completed", "failed", "cancelled"]


class SettledRun(Model):
    """The turn has ended, and its bill is whole."""

    id: str
    kind: Literal["settled"] = "settled"
    status: SettledStatus
    usage: TokenCounts
    cost_usd: float | None
    failure_reason: str | None = None
    """`CLASS/CODE`; there only where it failed."""

    @model_serializer(mode="wrap")
    def _leave_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        shown: dict[str, Any] = handler(self)
        if self.failure_reason is None:
            del shown["failure_reason"]
        return shown


class IndeterminateRun(Model):
    """How the turn ended, or what it cost, can't be proven."""

    id: str
    kind: Literal["indeterminate"] = "indeterminate"
    failure_reason: str
    """`CLASS/CODE`, one of a closed set."""


HostedResult: TypeAlias = Annotated[SettledRun | IndeterminateRun, Field(discriminator="kind")]


def unsettled_usage(cause: UsageCause) -> str:
    """The reason of a bill that isn't whole."""
    return f"usage/{cause}"


def first_cause(provenance: UsageProvenance) -> UsageCause | None:
    """Why a bill isn't whole: of several causes the first, in their fixed order; None: it is whole.

    Requests that stand in no column of the coverage are missing ones.
    """
    coverage = provenance.coverage
    if provenance.unreadable_records:
        return "unreadable_usage_record"
    if provenance.pending_repairs:
        return "pending_usage_repair"
    if coverage.partial:
        return "partial_attempt_usage"
    if coverage.missing or coverage.attempts > coverage.reported:
        return "missing_attempt_usage"
    return None


def settled_cost(usage: UsageSummarised) -> float | None:
    """The cost; None where a request has no price, or a record is of a time before prices."""
    if usage.provenance.coverage.unpriced or usage.provenance.legacy_records:
        return None
    return usage.summary.cost_usd


def settle_result(turn: TurnSnapshot, usage: UsageSummarised) -> SettledRun | IndeterminateRun:
    """The result of an ended turn, once its usage was read.

    Raises:
        InternalError: The turn hasn't ended, or how it ended isn't known (`lost_result`).
    """
    cause = first_cause(usage.provenance)
    if cause is not None:
        return IndeterminateRun(id=turn.turn_id, failure_reason=unsettled_usage(cause))
    match turn.status.value:
        case "completed" | "failed" | "cancelled" as status:
            return SettledRun(
                id=turn.turn_id,
                status=status,
                usage=TokenCounts(**usage.summary.totals.model_dump(exclude={"cache_miss_tokens"})),
                cost_usd=settled_cost(usage),
                failure_reason=turn.failure_class if status == "failed" else None,
            )
        case _:
            raise InternalError(f"a {turn.status} turn isn't settled by its bill")


def lost_result(turn: TurnSnapshot) -> IndeterminateRun:
    """The result of a turn whose own end isn't known."""
    return IndeterminateRun(id=turn.turn_id, failure_reason=turn.failure_class or COULD_NOT_SETTLE)
