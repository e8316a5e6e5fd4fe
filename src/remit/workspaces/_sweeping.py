"""Removes what nobody needs any more under a node's data folder: once per start, by age."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from remit.workspaces.keeper._storage import Storage, remove_tree

__all__ = ["KEPT", "RUN_FOLDERS_BYTES", "sweep_node"]

KEPT = "kept"
"""A file of this name in a checkout's folder says that it is kept on purpose."""

_ABANDONED_S = 600
"""A checkout that no process holds, and that isn't being made just now."""
_SCRATCH_S = 24 * 3_600
_UNUSED_S = 14 * 24 * 3_600
"""Bases that no run has started from for so long; the next one makes them anew."""

_RUN_FOLDER_S = 30 * 24 * 3_600
"""What the node keeps of a run that nobody touched for so long: a delivery can't be undone any more."""
RUN_FOLDERS_BYTES = 4 << 30
"""What is kept of all runs together; the oldest go first, but none of the last day."""
_RECENT_S = 24 * 3_600


def sweep_node(data: Path, now: float) -> None:
    """Remove checkouts that a dead process left, old scratch folders, bases long unused, and old runs.

    What a kept checkout goes on from stays: its base, and what is known of its run.

    Args:
        data: The node's data folder.
        now: The time, as file times are counted.
    """
    for entry in _older(data / "checkouts", "*", now - _ABANDONED_S):
        with suppress(OSError):
            if not (entry / KEPT).exists():
                os.close(Storage(entry).lock())  # refused while a keeper holds it
                remove_tree(entry)
    _sweep_bases(data, now)
    for entry in _older(data / "scratch", "*", now - 2 * _SCRATCH_S):
        with suppress(OSError):
            remove_tree(entry)
    for entry in _older(data / "facts", "*", now - _UNUSED_S):
        with suppress(OSError):
            entry.unlink()
    _sweep_runs(data, now)


def _sweep_bases(data: Path, now: float) -> None:
    needed = _needed_bases(data)
    # Pins read from the commits.
    ages = {
        "*/scratch-*": _SCRATCH_S,
        "*/pins/*": _UNUSED_S,
        "*/trees/*": _UNUSED_S,
        "*/commits/*": 2 * _UNUSED_S,
    }
    for pattern, age in ages.items():
        for entry in _older(data / "bases", pattern, now - age):
            if not any(folder.is_relative_to(entry) for folder in needed):
                with suppress(OSError):
                    remove_tree(entry)


def _needed_bases(data: Path) -> set[Path]:
    """The folders of the bases that kept checkouts were made from."""
    needed: set[Path] = set()
    for marker in (data / "checkouts").glob(f"*/{KEPT}"):
        with suppress(OSError, ValueError, KeyError):
            text = (data / "runs" / marker.parent.name / "workspace.json").read_text()
            pin: dict[str, Any] = json.loads(text)["pin"]
            needed |= {Path(folder) for folder in (pin["store"], pin["lower"], *pin["object_stores"])}
    return needed


# ---- what is kept of runs


def _sweep_runs(data: Path, now: float) -> None:
    """At most once a day, since it looks at every file."""
    swept = data / "runs.swept"
    with suppress(OSError):
        if abs(now - swept.stat().st_mtime) < _RECENT_S:
            return
    with suppress(OSError):
        swept.touch(mode=0o600)
        os.utime(swept, (now, now))
    ages: list[tuple[float, int, Path]] = []
    for entry in (data / "runs").glob("*"):
        with suppress(OSError):
            ages.append((*_look_at(entry), entry))
    total = sum(size for _, size, _ in ages)
    for used_at, size, entry in sorted(ages):
        over = total > RUN_FOLDERS_BYTES and used_at < now - _RECENT_S and not _is_applied(entry, now)
        if not (used_at < now - _RUN_FOLDER_S or over) or _has_checkout(data, entry):
            continue
        with suppress(OSError):
            remove_tree(entry)
            total -= size


def _look_at(folder: Path) -> tuple[float, int]:
    """When something in it last changed, and how many bytes it holds."""
    info = folder.lstat()
    newest, size = info.st_mtime, info.st_size
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                info = os.lstat(os.path.join(parent, name))
                newest, size = max(newest, info.st_mtime), size + info.st_size
    return newest, size


def _has_checkout(data: Path, run: Path) -> bool:
    """Whether the run's checkout is kept or open, in whatever process."""
    return (data / "checkouts" / run.name).exists()


def _is_applied(run: Path, now: float) -> bool:
    """Whether something of it was applied, and can still be undone."""
    for receipt in (run / "deliveries").glob("*.json"):
        with suppress(OSError, ValueError):
            applied = json.loads(receipt.read_text()).get("status") == "delivered"
            if applied and receipt.stat().st_mtime > now - _RUN_FOLDER_S:
                return True
    return False


def _older(folder: Path, pattern: str, than: float) -> Iterator[Path]:
    for entry in sorted(folder.glob(pattern)):
        with suppress(OSError):
            if entry.lstat().st_mtime < than:
                yield entry
