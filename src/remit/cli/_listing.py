"""What `remit ps` does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime

from rich.text import Text

from remit.cli._finding import RunReader, newest, open_reader
from remit.cli._formats import between_ms, delivery_words, duration, money
from remit.cli._screen import Results, console_on
from remit.cli._words import one_line, say
from remit.contract import RunStatus, RunView
from remit.primitives import SystemClock
from remit.runs import StoredRun

_RECENT = 20
_PAGE = 500
_UNFINISHED = tuple(status.value for status in RunStatus if not status.ended)
_PROMPT_CHARS = 200
_NAMES = ("run", "status", "age", "took", "cost", "change", "request")
_GAP = 2
_LEAST_ROOM = 16
"""What the request gets at least."""
_LEFT_OUT_FIRST = ("took", "cost", "change", "age", "status")


def list_them(*, show_all: bool, as_json: bool, host: str | None = None) -> int:
    """List the runs."""
    with open_reader(host) as reader:
        runs = [] if reader is None else list(_runs(reader, show_all=show_all))
        if as_json:
            results = Results()
            for run in runs:
                results.write_json(run.view.to_json())
            results.require_written()
            return 0
        if not runs or reader is None:
            say("no runs yet; `remit run` or `remit demo` makes one")
            return 0
        now = SystemClock().now()
        rows = [list(_cells(run, is_alive=reader.is_alive(run.epoch), now=now)) for run in runs]
        console = console_on(sys.stdout)
        width = console.width if console.is_terminal else None
        for line in _lines(rows, width=width):
            console.print(line, soft_wrap=True)
    return 0


def _lines(rows: list[list[Text]], *, width: int | None) -> Iterator[Text]:
    """The rows under their names, in columns.

    Args:
        rows: Cells, as many in each as there are names.
        width: The screen's: the least important columns are left out, the request is cut. None: nothing is.
    """
    table = [[Text(name, style="dim") for name in _NAMES], *rows]
    widths = [max(row[column].cell_len for row in table) for column in range(len(_NAMES))]
    shown = _columns_that_fit(widths, width)
    for row in table:
        line = Text()
        for column in shown[:-1]:
            line.append_text(row[column])
            line.append(" " * (widths[column] - row[column].cell_len + _GAP))
        line.append_text(row[-1])
        if width is not None:
            line.truncate(width, overflow="ellipsis")
        yield line


def _columns_that_fit(widths: list[int], width: int | None) -> list[int]:
    shown = list(range(len(widths)))
    for name in _LEFT_OUT_FIRST:
        if width is None or sum(widths[column] + _GAP for column in shown[:-1]) + _LEAST_ROOM <= width:
            break
        shown.remove(_NAMES.index(name))
    return shown


def _runs(reader: RunReader, *, show_all: bool) -> Iterator[StoredRun]:
    if show_all:
        cursor: str | None = None
        while True:
            page, cursor = reader.list_runs(after=cursor, limit=_PAGE)
            yield from (newest(reader, run) for run in page)
            if cursor is None:
                return
    recent, _ = reader.list_runs(limit=_RECENT)
    running, _ = reader.list_runs(statuses=_UNFINISHED, limit=_PAGE)
    known = {run.view.id for run in recent}
    yield from (run for run in running if run.view.id not in known)
    yield from (newest(reader, run) for run in recent)


def _cells(run: StoredRun, *, is_alive: bool, now: datetime) -> Iterator[Text]:
    view = run.view
    yield Text(view.id)
    yield _status(view, is_alive=is_alive)
    yield Text(_age(between_ms(view.created_at, now)), style="dim")
    yield Text(duration(between_ms(view.created_at, view.ended_at or now)), style="dim")
    yield Text("" if view.usage is None else money(view.cost_usd), style="dim")
    yield Text(_result(view), style="dim")
    yield Text(one_line(run.request.text(), width=_PROMPT_CHARS))


def _status(view: RunView, *, is_alive: bool) -> Text:
    if view.terminal is not None:
        styles = {"completed": "green", "cancelled": "yellow"}
        code = f" ({view.terminal.code})" if view.terminal.code else ""
        return Text(view.terminal.kind + code, style=styles.get(view.terminal.kind, "red"))
    if not is_alive:
        return Text(f"{view.status.value}, died", style="yellow")
    place = "" if view.queue_position is None else f", number {view.queue_position}"
    return Text(view.status.value + place, style="cyan")


def _result(view: RunView) -> str:
    if view.patch is None or not view.patch.files:
        return ""
    words = {"not applied": "kept"}
    delivered = delivery_words(view).partition(":")[0]
    return f"+{view.patch.insertions} -{view.patch.deletions} {words.get(delivered, delivered)}"


def _age(ms: float) -> str:
    """How long ago, roughly."""
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= size_ms:
            return f"{ms // size_ms:.0f} {unit}"
    return f"{ms / 1_000:.0f} s"
