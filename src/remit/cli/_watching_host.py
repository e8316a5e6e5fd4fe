"""What `remit top` does: reads what a host does now, and draws it, once or again and again."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

from rich.console import Group
from rich.live import Live

from remit.cli._remote import secret_for_host
from remit.cli._screen import Results, console_on, glyphs_of, wants_live
from remit.cli._top_picture import HostPicture, cut, top_lines
from remit.client import Client
from remit.contract import RunStatus, RunView
from remit.errors import NotFound
from remit.primitives import SystemClock

_EVERY_S: Final = 1.0
_MOST_RUNS: Final = 200
_MOST_COSTS: Final = 50
"""Runs whose bill is read for each picture; of more the cost isn't shown."""
_GOING_ON: Final = ",".join(status.value for status in RunStatus if not status.ended)


def watch_host(url: str, *, once: bool, as_json: bool) -> int:
    """Show what a host does, until Ctrl-C; returns the exit code.

    Args:
        url: Where it is.
        once: One picture, on stdout.
        as_json: That picture as a document.

    Raises:
        RemitError: The host doesn't answer, or the key isn't known there.
    """
    with Client(url, api_key=secret_for_host()) as client:
        if once or not wants_live(sys.stdout):
            print_picture(read_picture(client, url), as_json=as_json)
            return 0
        try:
            _draw(client, url)
        except KeyboardInterrupt:
            return 0
    return 0


def read_picture(client: Client, url: str) -> HostPicture:
    """Ask a host what it does now."""
    runs, _ = client.list(status=_GOING_ON, limit=_MOST_RUNS)
    return HostPicture(
        url=url,
        at=SystemClock().now(),
        host=client.read("host"),
        nodes=client.read("nodes", calls="1")["data"],
        runs=tuple(reversed(runs)),
        costs={run.id: _cost_of(client, run) for run in runs[-_MOST_COSTS:]},
        work=client.read("work", tree="1")["data"],
    )


def _cost_of(client: Client, run: RunView) -> float | None:
    if run.status is RunStatus.QUEUED:
        return 0.0
    try:
        bill: dict[str, Any] = client.read(f"runs/{run.id}/usage")
    except NotFound:
        return None
    cost = bill["cost_usd"]
    return bill["estimated_max_cost_usd"] if cost is None else cost


def print_picture(picture: HostPicture, *, as_json: bool) -> None:
    """One picture on stdout, as lines for a person or as a document.

    Raises:
        OSError: Not everything could be written.
    """
    if as_json:
        results = Results()
        results.write_json(_document(picture))
        results.require_written()
        return
    console, glyphs = console_on(sys.stdout), glyphs_of(sys.stdout)
    for line in top_lines(picture, glyphs):
        console.print(line, soft_wrap=True)


def _document(picture: HostPicture) -> dict[str, Any]:
    return {
        "host": picture.host,
        "nodes": picture.nodes,
        "runs": [run.model_dump(mode="json", by_alias=True) for run in picture.runs],
        "cost_usd": dict(picture.costs),
        "work": picture.work,
    }


def _draw(client: Client, url: str) -> None:
    console, glyphs = console_on(sys.stdout), glyphs_of(sys.stdout)
    with Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
        while True:
            lines = list(top_lines(read_picture(client, url), glyphs))
            for line in lines:
                line.truncate(console.width, overflow="ellipsis")
            live.update(Group(*cut(lines, most=max(2, console.height - 1))), refresh=True)
            time.sleep(_EVERY_S)
