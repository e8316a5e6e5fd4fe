"""What a host does at one moment, as lines: pure, from what its API says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.text import Text

from remit.cli._formats import between_ms, count, duration, money
from remit.cli._screen import Glyphs
from remit.cli._words import one_line
from remit.contract import RunStatus, RunView

_LABEL_COLUMNS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPicture:
    """One moment of a host, as far as the key may see it."""

    url: str
    at: datetime
    host: Mapping[str, Any]
    nodes: Sequence[Mapping[str, Any]]
    runs: Sequence[RunView]
    """Those that haven't ended, the oldest first."""
    costs: Mapping[str, float | None]
    """Run -> what it has cost so far; None: not known."""
    work: Sequence[Mapping[str, Any]]
    """Live work, nested."""


def top_lines(picture: HostPicture, glyphs: Glyphs) -> Iterator[Text]:
    """The picture, a line each: the host, its nodes, its runs with their work, and other work of the host."""
    yield _head(picture, glyphs)
    for node in picture.nodes:
        link = one_line(str(node["state"]), width=20) + (f", pid {node['pid']}" if node["pid"] else "")
        places = ", ".join(one_line(ref, width=40) for ref in node["workspaces"]) or "no workspace"
        yield Text(f"node {one_line(node['id'], width=40)} {glyphs.dot} {link} {glyphs.dot} {places}", "dim")
    if not picture.runs:
        yield Text("no run goes on", "dim")
    below = {root["work_id"]: root for root in picture.work}
    pids = {call["work_id"]: call["pids"] for node in picture.nodes for call in node["calls"] or ()}
    for run in picture.runs:
        yield _run(run, picture, glyphs)
        root = below.pop(run.id, None)
        if root is not None:
            yield from _children(root["children"], glyphs, "", pids)
    others = [root for root in below.values() if root["kind"] != "run"]
    if others:
        yield Text("other work of the host", "bold")
        yield from _children(others, glyphs, "", pids)


def _head(picture: HostPicture, glyphs: Glyphs) -> Text:
    host, dot = picture.host, f" {glyphs.dot} "
    known = [cost for cost in picture.costs.values() if cost is not None]
    cost = f"{money(sum(known))} so far" if known else "cost unknown" if picture.costs else None
    parts = [
        f"{one_line(str(host['status']), width=20)}",
        f"{host['running']} of {host['max_running']} running",
        f"{host['queued']} queued",
        *([] if cost is None else [cost]),  # where nothing runs, nothing is to be said of it
    ]
    return Text.assemble((picture.url, "bold"), dot, dot.join(parts))


def _run(run: RunView, picture: HostPicture, glyphs: Glyphs) -> Text:
    word = "cancelling" if run.cancel_requested else run.status.value
    if run.queue_position is not None:
        word += f", number {run.queue_position} in line"
    since = run.started_at or run.created_at
    cap = run.limits.max_cost_usd
    spent = money(picture.costs.get(run.id))
    waiting = run.status is RunStatus.QUEUED
    dot = f" {glyphs.dot} "
    facts = [
        run.binding,
        duration(between_ms(since, picture.at)),
        spent if cap is None else f"{spent} of {money(cap)}",
    ]
    return Text.assemble(
        ((glyphs.waiting if waiting else glyphs.running) + " ", "dim" if waiting else "cyan"),
        (run.id, "bold"),
        f" {word}",
        (dot + dot.join(one_line(fact, width=60) for fact in facts), "dim"),
    )


def _children(
    nodes: Sequence[Mapping[str, Any]], glyphs: Glyphs, rail: str, pids: Mapping[str, Sequence[int]]
) -> Iterator[Text]:
    for number, node in enumerate(nodes):
        is_last = number == len(nodes) - 1
        elapsed = "" if node["elapsed_ms"] is None else f"  {duration(node['elapsed_ms'])}"
        state = "" if node["status"] == "running" else f"  {node['status']}"
        label = one_line(str(node["label"]), width=_LABEL_COLUMNS)
        running = pids.get(node["work_id"], ())
        processes = f"  pid {' '.join(map(str, running))}" if running else ""
        yield Text.assemble(
            (rail + (glyphs.last if is_last else glyphs.branch), "dim"),
            (str(node["kind"]).replace("_", " "), "cyan"),
            f" {label}",
            (processes, "yellow"),
            (f"{elapsed}{state}  {one_line(str(node['work_id']), width=80)}", "dim"),
        )
        yield from _children(node["children"], glyphs, rail + (glyphs.blank if is_last else glyphs.bar), pids)


def cut(lines: Sequence[Text], *, most: int) -> list[Text]:
    """As many lines as there is room for, the last of them saying how many are left out."""
    if len(lines) <= most:
        return list(lines)
    shown = max(1, most - 1)
    return [*lines[:shown], Text(f"... and {count(len(lines) - shown, 'line')} more", "dim")]
