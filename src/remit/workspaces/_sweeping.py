"""Removes what nobody needs any more under a node's data folder, by age and size."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from remit.workspaces._in_place_record import RECORD
from remit.workspaces._kept import KEPT, KeepLimits, collect_kept
from remit.workspaces._owner import read_owner, remove_dead_owners
from remit.workspaces._setups_kept import collect_setups
from remit.workspaces.keeper._storage import remove_tree, remove_unless_held

__all__ = ["RUN_FOLDERS_BYTES", "sweep_node"]

_LEFT_S = 24 * 3_600
"""A run's checkout that no process holds, and that no host has asked to keep or remove since then."""
_SCRATCH_S = 24 * 3_600
_UNUSED_S = 14 * 24 * 3_600
"""Bases that no run has started from for so long; the next one makes them anew."""

_RUN_FOLDER_S = 30 * 24 * 3_600
"""What the node keeps of a run that nobody touched for so long: a delivery can't be undone any more."""
RUN_FOLDERS_BYTES = 4 << 30
"""What is kept of all runs together; the oldest go first, but none of the last day."""
_RECENT_S = 24 * 3_600


def sweep_node(data: Path, now: float, *, keep: KeepLimits) -> None:
    """Remove what dead processes left, kept checkouts that are too old or too many, unused bases, old runs.

    What a kept checkout goes on from stays: its base, and what is known of its run. What a living process
    holds or is just making stays.

    Args:
        data: The node's data folder.
        now: The time, as file times are counted.
        keep: How much is kept of ended runs.
    """
    living = remove_dead_owners(data)
    _sweep_checkouts(data, now, living, left_s=max(_LEFT_S, keep.max_age_s))
    collect_kept(data, now, keep)
    _sweep_bases(data, now)
    for entry in (data / "scratch").glob("*"):
        with suppress(OSError):
            if entry.name not in living:
                remove_tree(entry)
    for entry in _older(data, "probe-*", now - _SCRATCH_S):  # of a keeper killed while it tried things out
        with suppress(OSError):
            remove_tree(entry)
    collect_setups(data, now, keep)
    for entry in _older(data / "facts", "*", now - _UNUSED_S):
        with suppress(OSError):
            entry.unlink()
    _sweep_runs(data, now)


def _sweep_checkouts(data: Path, now: float, living: frozenset[str], *, left_s: float) -> None:
    for entry in (data / "checkouts").glob("*"):
        with suppress(OSError):
            if (entry / KEPT).exists():
                continue
            owner = read_owner(entry)
            is_left = entry.lstat().st_mtime < now - left_s if owner is None else owner not in living
            if is_left:
                remove_unless_held(entry)


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
    """The folders of the bases that kept checkouts were made from, and that runs in place are undone to."""
    needed: set[Path] = set()
    kept = [path.parent.name for path in (data / "checkouts").glob(f"*/{KEPT}")]
    for record in [
        *((data / "runs" / run_id / "workspace.json") for run_id in kept),
        *(data / "runs").glob(f"*/{RECORD}"),
    ]:
        with suppress(OSError, ValueError, KeyError):
            text = record.read_text()
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
    """Whether something of it was applied, or done in place, and can still be undone."""
    with suppress(FileNotFoundError):
        if (run / RECORD).stat().st_mtime > now - _RUN_FOLDER_S:
            return True
    receipts = run / "deliveries"
    for receipt in (*receipts.glob("*.json"), *receipts.glob("*.branch")):
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
