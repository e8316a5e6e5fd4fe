"""Removes what nobody needs any more under a node's data folder: once per start, by age."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from remit.workspaces.keeper._storage import Storage, remove_tree

__all__ = ["KEPT", "sweep_node"]

KEPT = "kept"
"""A file of this name in a checkout's folder says that it is kept on purpose."""

_ABANDONED_S = 600
"""A checkout that no process holds, and that isn't being made just now."""
_SCRATCH_S = 24 * 3_600
_UNUSED_S = 14 * 24 * 3_600
"""Bases that no run has started from for so long; the next one makes them anew."""


def sweep_node(data: Path, now: float) -> None:
    """Remove checkouts that a dead process left, old scratch folders, and bases long unused.

    Args:
        data: The node's data folder.
        now: The time, as file times are counted.
    """
    for entry in _older(data / "checkouts", "*", now - _ABANDONED_S):
        with suppress(OSError):
            if not (entry / KEPT).exists():
                os.close(Storage(entry).lock())  # refused while a keeper holds it
                remove_tree(entry)
    for pattern, age in (("*/scratch-*", _SCRATCH_S), ("*/pins/*", _UNUSED_S), ("*/trees/*", _UNUSED_S)):
        for entry in _older(data / "bases", pattern, now - age):
            with suppress(OSError):
                remove_tree(entry)
    for entry in _older(data / "bases", "*/commits/*", now - 2 * _UNUSED_S):  # pins read from them
        with suppress(OSError):
            remove_tree(entry)
    for entry in _older(data / "scratch", "*", now - 2 * _SCRATCH_S):
        with suppress(OSError):
            remove_tree(entry)
    for entry in _older(data / "facts", "*", now - _UNUSED_S):
        with suppress(OSError):
            entry.unlink()


def _older(folder: Path, pattern: str, than: float) -> Iterator[Path]:
    for entry in sorted(folder.glob(pattern)):
        with suppress(OSError):
            if entry.lstat().st_mtime < than:
                yield entry
