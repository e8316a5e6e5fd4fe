"""Pages over many runs: the live list, nodes, usage, live work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from remit.api._shapes import UsageLine
from remit.api._usage_report import GroupBy, report_of
from remit.api._work import nest
from remit.api.dashboard._plots import Bar, DayPlot, bars_of, days_of
from remit.api.dashboard._render import count, first_line, usd
from remit.api.dashboard._view import View
from remit.contract import RunStatus
from remit.errors import InvalidRequest

_PAGE: Final = 50
_DAYS: Final = 30
_MOST_BARS: Final = 12
_FILTERS: Final = {
    "all": (),
    "active": tuple(one.value for one in RunStatus if not one.ended),
    **{one.value: (one.value,) for one in RunStatus if one.ended},
}
"""Word in the address -> statuses."""


async def runs(view: View) -> Response:
    """The runs, newest first."""
    asked = view.request.query_params
    show = asked.get("show", "all")
    if show not in _FILTERS:
        raise InvalidRequest(f"`show` is one of {', '.join(_FILTERS)}", param="show")
    kept = {name: asked[name] for name in ("session", "binding") if asked.get(name)}
    found, cursor = await view.host.store.list_runs(
        tenant=view.tenant,
        statuses=_FILTERS[show],
        session_id=kept.get("session"),
        binding=kept.get("binding"),
        created_after=None,
        after=asked.get("cursor"),
        limit=_PAGE,
    )
    return view.page(
        "runs.html",
        runs=[view.host.placed(stored.view, tenant=view.tenant) for stored in found],
        asked={stored.view.id: first_line(stored.request.prompt) for stored in found},
        show=show,
        filters=[(word, f"/?{urlencode({**kept, 'show': word})}") for word in _FILTERS],
        kept=kept,
        older=None if cursor is None else f"/?{urlencode({**kept, 'show': show, 'cursor': cursor})}",
        first_page="cursor" not in asked,
    )


async def nodes(view: View) -> Response:
    """Where runs are done, and what may be done there."""
    return view.page(
        "nodes.html",
        nodes=view.host.nodes(),
        may_see_all="admin" in view.identity.key.scopes,
        workspaces=sorted(view.host.workspaces.items()),
        bindings=[
            binding
            for name, binding in sorted(view.host.bindings.items())
            if view.identity.sees_binding(name)
        ],
    )


async def work(view: View) -> Response:
    """All live work of the tenant, as a tree."""
    rows = view.host.all_work(tenant=view.tenant)
    asked: dict[str, str] = {}
    for run_id in [row.work_id for row in rows if row.kind == "run"][:_PAGE]:
        stored = await view.host.store.find_run(run_id, tenant=view.tenant)
        if stored is not None:
            asked[run_id] = first_line(stored.request.prompt)
    pids = await view.host.running_calls(tenant=view.tenant)
    return view.page("work.html", tree=nest(rows), count=len(rows), asked=asked, pids=pids)


async def usage(view: View) -> Response:
    """What the last days have cost, by day, binding, key and model."""
    start = view.now - timedelta(days=_DAYS)
    ledger = await view.host.store.read_ledger(tenant=view.tenant, start=start, end=None)
    by_day = report_of(ledger, group_by="day")
    names = await _key_names(view)
    groups: tuple[tuple[str, GroupBy], ...] = (
        ("By binding", "binding"),
        ("By key", "key"),
        ("By model", "model"),
    )
    plots = [
        (title, _bars(report_of(ledger, group_by=group_by).data, names if group_by == "key" else {}))
        for title, group_by in groups
    ]
    days = _days(by_day.data, first=start.date(), last=view.now.date())
    table = [line for line in by_day.data if line.total_tokens]
    return view.page("usage.html", days=days, by_day=table, plots=plots, total=by_day.total, length=_DAYS)


def _days(lines: Sequence[UsageLine], *, first: date, last: date) -> tuple[tuple[str, DayPlot], ...]:
    """Two plots of the same days: money (its upper estimate where the bill isn't whole) and tokens."""
    costs = {line.group or "": (_cost(line), _said(line)) for line in lines}
    tokens = {line.group or "": (float(line.total_tokens or 0), count(line.total_tokens)) for line in lines}
    return (
        ("Cost", days_of(costs, first=first, last=last)),
        ("Tokens", days_of(tokens, first=first, last=last)),
    )


async def _key_names(view: View) -> dict[str, str]:
    """Ids of keys -> their names, for who may see other keys."""
    if not view.may("admin"):
        return {view.identity.key.id: view.identity.key.name}
    return {key.id: key.name for key in await view.host.store.list_keys(tenant=view.tenant)}


def _bars(lines: Sequence[UsageLine], names: dict[str, str]) -> tuple[tuple[Bar, ...], tuple[Bar, ...]]:
    """Two plots of the same groups: money (its upper estimate where the bill isn't whole) and tokens."""
    lines = sorted(lines, key=lambda line: -(_cost(line)))[:_MOST_BARS]
    labels = [names.get(line.group or "", line.group or "without") for line in lines]
    cost = [(label, _cost(line), _said(line)) for label, line in zip(labels, lines, strict=True)]
    tokens = [
        (label, float(line.total_tokens or 0), count(line.total_tokens or 0))
        for label, line in zip(labels, lines, strict=True)
    ]
    return bars_of(cost), bars_of(tokens)


def _cost(line: UsageLine) -> float:
    return float(line.cost_usd if line.cost_usd is not None else line.estimated_max_cost_usd or 0.0)


def _said(line: UsageLine) -> str:
    if line.cost_usd is not None:
        return usd(line.cost_usd)
    return "unknown" if line.estimated_max_cost_usd is None else f"≤ {usd(line.estimated_max_cost_usd)}"
