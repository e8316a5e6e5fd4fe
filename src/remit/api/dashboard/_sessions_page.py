"""Threads of runs: what was asked in each, how that went, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from remit.api.dashboard._render import first_line
from remit.api.dashboard._view import View
from remit.contract import RunView
from remit.runs import SessionRow

_PAGE: Final = 25
_RUNS_READ: Final = 50
"""Of a session; a longer one's cost is that of its newest ones, and says so."""
_RUNS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRun:
    """A run, and the first line of what it was asked."""

    view: RunView
    asked: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionShown:
    """A session as its page shows it."""

    row: SessionRow
    runs: tuple[AskedRun, ...]
    """The newest ones, newest first."""
    left_out: int
    """Runs that aren't shown."""
    cost_usd: float | None
    """Of the runs that were read and have ended; None: not all are known."""
    estimate_usd: float | None
    """The most that they have cost; None: nobody knows."""
    not_counted: int
    """Runs whose cost isn't in the sum, since they are too old."""


async def sessions(view: View) -> Response:
    """Threads of runs, the one with the newest run first."""
    cursor = view.request.query_params.get("cursor")
    rows, following = await view.host.store.list_sessions(tenant=view.tenant, after=cursor, limit=_PAGE)
    return view.page(
        "sessions.html",
        sessions=[await _read(view, row) for row in rows],
        older=None if following is None else f"/sessions?{urlencode({'cursor': following})}",
        first_page=cursor is None,
    )


async def _read(view: View, row: SessionRow) -> SessionShown:
    found, _ = await view.host.store.list_runs(
        tenant=view.tenant,
        statuses=(),
        session_id=row.id,
        binding=None,
        created_after=None,
        after=None,
        limit=_RUNS_READ,
    )
    cost_usd, estimate_usd = sum_of_costs([stored.view for stored in found])
    return SessionShown(
        row=row,
        runs=tuple(
            AskedRun(
                view=view.host.placed(stored.view, tenant=view.tenant),
                asked=first_line(stored.request.prompt),
            )
            for stored in found[:_RUNS_SHOWN]
        ),
        left_out=max(0, row.runs - _RUNS_SHOWN),
        cost_usd=cost_usd,
        estimate_usd=estimate_usd,
        not_counted=max(0, row.runs - len(found)),
    )


def sum_of_costs(runs: Sequence[RunView]) -> tuple[float | None, float | None]:
    """What those of the runs that have ended cost, and the most that it can be; None: that isn't known."""
    ended = [run for run in runs if run.status.ended]
    known = [run.cost_usd for run in ended if run.cost_usd is not None]
    most = [run.cost_usd if run.cost_usd is not None else run.estimated_max_cost_usd for run in ended]
    bounded = [value for value in most if value is not None]
    return (
        float(sum(known)) if len(known) == len(ended) else None,
        float(sum(bounded)) if len(bounded) == len(ended) else None,
    )
