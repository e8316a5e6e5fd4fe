"""The call that says what a tenant has used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from pydantic import Field

from remit.api._operation import Answer, Call, Operation, Says, json_answer
from remit.api._shapes import UsageLine, UsageReport
from remit.contract import Model, Moment
from remit.errors import InvalidRequest
from remit.runs import BilledAttempt
from remit.usage import LedgerRow, summarise

GroupBy = Literal["binding", "pool", "model", "session", "key", "day"]
_GROUPS: Final[dict[GroupBy, Callable[[BilledAttempt], str | None]]] = {
    "binding": lambda line: line.binding,
    "pool": lambda line: line.attempt.started.pool,
    "model": lambda line: line.attempt.started.model,
    "session": lambda line: line.session_id,
    "key": lambda line: line.key_id,
    "day": lambda line: line.attempt.started_at.date().isoformat(),
}


class UsageQuery(Model):
    """Which attempts, and how they are counted together."""

    from_: Moment | None = Field(default=None, alias="from")
    """Those that started from here on; None: from the beginning."""
    to: Moment | None = None
    """Those that started before; None: up to now."""
    group_by: GroupBy = "day"


async def _usage(call: Call) -> Answer:
    query = call.query
    assert isinstance(query, UsageQuery), "as the table says"
    if query.from_ is not None and query.to is not None and query.from_ > query.to:
        raise InvalidRequest("`from` lies after `to`", param="from")
    ledger = await call.host.store.read_ledger(tenant=call.tenant, start=query.from_, end=query.to)
    return json_answer(report_of(ledger, group_by=query.group_by))


def report_of(ledger: Sequence[BilledAttempt], *, group_by: GroupBy) -> UsageReport:
    """The report. Pure: each attempt counts once, under one heading."""
    heading = _GROUPS[group_by]
    groups: dict[str | None, list[BilledAttempt]] = {}
    for line in ledger:
        groups.setdefault(heading(line), []).append(line)
    ordered = sorted(groups.items(), key=lambda group: (group[0] is None, group[0] or ""))
    return UsageReport(
        group_by=group_by,
        data=tuple(_line(name, lines) for name, lines in ordered),
        total=_line(None, ledger),
    )


def _line(group: str | None, lines: Sequence[BilledAttempt]) -> UsageLine:
    rows = [LedgerRow.of(one.attempt.run_id, one.attempt.started, one.attempt.ended) for one in lines]
    bill = summarise(rows)
    return UsageLine(
        group=group,
        runs=len({one.attempt.run_id for one in lines}),
        input_tokens=bill.usage.input_tokens,
        output_tokens=bill.usage.output_tokens,
        cache_read_tokens=bill.usage.cache_read_tokens,
        cache_write_tokens=bill.usage.cache_write_tokens,
        reasoning_tokens=bill.usage.reasoning_tokens,
        total_tokens=bill.usage.total_tokens,
        cost_usd=bill.cost_usd,
        estimated_max_cost_usd=bill.estimated_max_cost_usd,
        complete=bill.usage.complete,
        coverage=bill.usage.coverage,
    )


OPERATIONS = (
    Operation(
        id="read_usage",
        method="GET",
        path="/api/v1/usage",
        summary="What the tenant has used, by day, binding, pool, model, session or key.",
        handle=_usage,
        scope="read",
        query=UsageQuery,
        says={200: Says(text="Each attempt counted once, where it belongs.", shape=UsageReport)},
    ),
)
