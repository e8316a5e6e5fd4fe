"""What `remit run --dry-run` prints: what would happen, and what it may cost. Nothing is started."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

from rich.console import Group
from rich.table import Table
from rich.text import Text

from remit.cli._driving import make_host
from remit.cli._formats import limit_amount, money
from remit.cli._place import Place
from remit.cli._screen import Results, console_on
from remit.cli._words import one_line, say
from remit.contract import DryRun, FoundCheck, ModelPrice, RunRequest

_SHOWN_LIMITS = (
    "wall_clock_ms",
    "max_cost_usd",
    "max_total_tokens",
    "max_tool_rounds",
    "max_corrections",
    "max_revisions",
)


def show_dry_run(place: Place, request: RunRequest, *, as_json: bool, asks: bool) -> int:
    """Print what a request would become; returns the exit code: 1 where its workspace can't be made ready."""

    async def look() -> DryRun:
        async with make_host(place, door_delivery="patch" if asks else "apply") as host:
            return await host.dry_run(request)

    found = asyncio.run(look())
    print_dry_run(found, as_json=as_json, asks=asks, notes=place.notes)
    return 0 if found.problem is None else 1


def print_dry_run(found: DryRun, *, as_json: bool, asks: bool = False, notes: tuple[str, ...] = ()) -> None:
    """Print it: a document for programs, a table for people."""
    if as_json:
        Results().write_json(found.to_json())
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _rows(found, asks=asks):
        table.add_row(name, text)
    console_on(sys.stdout).print(Group(table))
    for note in (*notes, *(found.workspace.notes if found.workspace is not None else ())):
        say(one_line(note, width=400))
    if found.problem is not None:
        say(f"it would fail: {one_line(found.problem, width=600)}")
    say("nothing was started, and nothing spent")


def _rows(found: DryRun, *, asks: bool) -> Iterator[tuple[str, str | Text]]:
    run, workspace = found.run, found.workspace
    yield "would", found.would.replace("_", " ")
    yield "binding", f"{one_line(run.binding, width=60)} (profile {run.profile})"
    if run.continues is not None:
        yield "continues", run.continues
    elif run.session_id != run.id:
        yield "session", one_line(run.session_id, width=100)
    if run.workspace is not None:
        yield "workspace", one_line(run.workspace.ref, width=100)
    if workspace is not None:
        yield "base", workspace.base
        confined = "NO SANDBOX" if workspace.sandbox == "none" else workspace.sandbox
        yield "sandbox", f"{confined}, {workspace.isolation}"
    for number, (stage, models) in enumerate(found.models.items()):
        yield ("models" if number == 0 else ""), f"{stage}: {', '.join(models)}"
    for number, (model, price) in enumerate(found.prices.items()):
        yield ("prices" if number == 0 else ""), f"{model}: {_price(price)}"
    limits = run.limits.model_dump()
    shown = [name for name in _SHOWN_LIMITS if limits[name] is not None]
    for number, name in enumerate(shown):
        yield ("limits" if number == 0 else ""), f"{name} {limit_amount(name, limits[name])}"
    if workspace is not None:
        yield from _checks(workspace.checks)
    yield "delivery", "you are asked" if asks else found.delivery


def _checks(checks: tuple[FoundCheck, ...]) -> Iterator[tuple[str, str]]:
    if not checks:
        yield "checks", "none found"
    for number, check in enumerate(checks):
        why = f"{one_line(check.command, width=100)} ({one_line(check.why, width=80)})"
        problem = f"; can't run: {one_line(check.problem, width=120)}" if check.problem is not None else ""
        yield ("checks" if number == 0 else ""), f"{one_line(check.id, width=40)}: {why}{problem}"


def _price(price: ModelPrice | None) -> str:
    if price is None:
        return "not known"
    if price.source == "free":
        return "free"
    return (
        f"{money(price.input_usd_per_mtok)} in, {money(price.output_usd_per_mtok)} out for a million tokens "
        f"({price.source})"
    )
