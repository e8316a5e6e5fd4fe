"""Checkouts that are kept of ended runs, and how long: until they are too old, or too much together."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from remit.workspaces.keeper._storage import remove_unless_held

__all__ = ["KEPT", "KeepLimits", "collect_kept", "mark_kept", "size_on_disk"]

KEPT = "kept"
"""A file of this name in a checkout's folder says that it is kept on purpose. Its time is the last use,
its text the checkout's size in bytes, once that was looked for: a kept tree doesn't change."""

_RECENT_S = 24 * 3_600
_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepLimits:
    """How much is kept of ended runs."""

    max_age_s: float = 14 * 24 * 3_600
    """Seconds since a checkout was kept, or a run went on from it."""
    max_bytes: int = 10 << 30
    """What all of them may take together on disk; the oldest go first, but none of the last day."""
    max_setups_bytes: int = 10 << 30
    """What all that setup commands have made may take together on disk; the same."""
    min_free_bytes: int = 2 << 30
    """While its disk has less free, what setup commands have made goes too."""


def mark_kept(folder: Path) -> None:
    """Say that a checkout is kept, or is of use again. Blocking."""
    (folder / KEPT).touch()


def collect_kept(data: Path, now: float, limits: KeepLimits) -> None:
    """Remove kept checkouts that are too old or, together, too large; never one that is open or being read.

    Args:
        data: The node's data folder.
        now: The time, as file times are counted.
        limits: How much may be kept.
    """
    kept: list[tuple[float, int, Path]] = []
    for marker in (data / "checkouts").glob(f"*/{KEPT}"):
        with suppress(OSError):
            kept.append((marker.stat().st_mtime, _size_of(marker), marker.parent))
    total = sum(size for _, size, _ in kept)
    for used_at, size, folder in sorted(kept):
        is_over = total > limits.max_bytes and used_at < now - _RECENT_S
        if used_at < now - limits.max_age_s or is_over:
            with suppress(OSError):
                if remove_unless_held(folder):
                    total -= size


def _size_of(marker: Path) -> int:
    """Bytes on disk of the checkout that the marker lies in."""
    with suppress(ValueError):
        return int(marker.read_text())
    size = size_on_disk(marker.parent)
    used_at = marker.stat().st_mtime_ns
    marker.write_text(str(size))
    os.utime(marker, ns=(used_at, used_at))
    return size


def size_on_disk(folder: Path) -> int:
    """Bytes that a folder takes, links not followed. Blocking."""
    size = 0
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with suppress(OSError):
                size += os.lstat(os.path.join(parent, name)).st_blocks * _BLOCK_BYTES
    return size
