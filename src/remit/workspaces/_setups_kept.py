"""What setup commands have made, and how long it is kept: it costs only time to be made again.

data/setups/KEY/         one result; its time is the last use
                done.json    it is whole; also of which workspace it is
                size         bytes on disk, once that was looked for: a result doesn't change
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from remit.workspaces._kept import KeepLimits, size_on_disk
from remit.workspaces.keeper._storage import remove_tree

__all__ = ["DONE", "SetupsKept", "collect_setups", "setups_kept"]

DONE: Final = "done.json"
_SIZE: Final = "size"
_RECENT_S: Final = 24 * 3_600
"""A run that began since may be at work on it."""
_UNUSED_S: Final = 14 * 24 * 3_600


@dataclass(frozen=True, slots=True)
class SetupsKept:
    """All results together, for people."""

    folder: Path
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True, order=True)
class _Kept:
    used_at: float
    size_bytes: int
    folder: Path


def setups_kept(data: Path) -> SetupsKept:
    """How much is kept. Blocking.

    Args:
        data: The node's data folder.
    """
    kept = list(_look(data))
    return SetupsKept(data / "setups", len(kept), sum(one.size_bytes for one in kept))


def collect_setups(data: Path, now: float, limits: KeepLimits) -> None:
    """Remove results that nobody will want: unused for two weeks, or of a workspace that is gone.

    While all are too large together, or the disk is nearly full, the oldest go too. None of the last day: a
    run may be at work on it. Blocking.

    Args:
        data: The node's data folder.
        now: The time, as file times are counted.
        limits: How much may be kept.
    """
    kept = sorted(_look(data))
    over = sum(one.size_bytes for one in kept) - limits.max_setups_bytes
    if kept:
        over = max(over, limits.min_free_bytes - shutil.disk_usage(data).free)
    for one in kept:
        if one.used_at >= now - _RECENT_S:
            break
        if one.used_at < now - _UNUSED_S or over > 0 or _is_orphan(one.folder):
            with suppress(OSError):
                remove_tree(one.folder)
                over -= one.size_bytes


def _look(data: Path) -> Iterator[_Kept]:
    for folder in (data / "setups").glob("*"):
        with suppress(OSError):
            yield _Kept(folder.lstat().st_mtime, _size_of(folder), folder)


def _size_of(folder: Path) -> int:
    with suppress(OSError, ValueError):
        return int((folder / _SIZE).read_text())
    size = size_on_disk(folder)
    if (folder / DONE).is_file():
        used_at = folder.lstat().st_mtime_ns
        (folder / _SIZE).write_text(str(size))
        os.utime(folder, ns=(used_at, used_at))
    return size


def _is_orphan(folder: Path) -> bool:
    """Whether nothing can ever ask for it: its workspace is gone, or whoever was making it died."""
    try:
        root = json.loads((folder / DONE).read_text()).get("root")
    except FileNotFoundError:
        return True
    except (OSError, ValueError, AttributeError):
        return False
    return isinstance(root, str) and not os.path.isdir(root)
