"""The processes below this one, to show that none is left. Where there is no /proc nothing can be told."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Seen:
    """A process, told apart from a later one of the same number."""

    pid: int
    started: str
    name: str


def descendants() -> tuple[Seen, ...]:
    """Every process below this one, whoever adopted what its parents left behind below us."""
    parents: dict[int, tuple[int, Seen]] = {}
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdigit() and (found := _look_at(int(entry.name))) is not None:
            parents[found[1].pid] = found
    own = {os.getpid()}
    while grown := {pid for pid, (parent, _) in parents.items() if parent in own and pid not in own}:
        own |= grown
    return tuple(parents[pid][1] for pid in sorted(own - {os.getpid()}) if pid in parents)


def still_there(seen: tuple[Seen, ...]) -> tuple[Seen, ...]:
    """Those of them that haven't ended."""
    found = {process.pid: _look_at(process.pid) for process in seen}
    return tuple(
        process
        for process in seen
        if (now := found[process.pid]) is not None and now[1].started == process.started
    )


def _look_at(pid: int) -> tuple[int, Seen] | None:
    """A process and its parent; None when it is gone, or only waits to be collected."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    if fields[0] in ("Z", "X"):
        return None
    return int(fields[1]), Seen(pid, fields[19], name)
