"""What a node remembers of bases that it has pinned, so that the next run on the same tree asks git once.

Nothing here is believed of a tree: `git status` has looked at it first, each time, and said that it is what
its commit says.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from remit.workspaces._base import BasePin, Listing

__all__ = ["KnownBases"]

_MAX_PINS: Final = 64
_MAX_LISTED: Final = 400_000
"""Entries of all remembered listings together: some 100 MB."""
_SETTLED_NS: Final = 100_000_000
"""A file that changed this short before it was read may change again without a new time."""

_Facts = tuple[int, int, int, int]


class KnownBases:
    """The memory of one node's process."""

    def __init__(self) -> None:
        self._pins: OrderedDict[tuple[object, ...], BasePin] = OrderedDict()
        self._listings: OrderedDict[str, Listing] = OrderedDict()
        self._settings: dict[Path, tuple[_Facts, dict[str, str]]] = {}

    def find_clean(self, key: tuple[object, ...]) -> BasePin | None:
        """The pin of a clean tree at the commit of this key; None where it isn't known, or is gone."""
        pin = self._pins.get(key)
        if pin is None or not Path(pin.store).is_dir():
            return None
        self._pins.move_to_end(key)
        return pin

    def keep_clean(self, key: tuple[object, ...], pin: BasePin) -> None:
        """Remember the pin of a tree that is its commit, byte for byte."""
        self._pins[key] = pin
        while len(self._pins) > _MAX_PINS:
            self._pins.popitem(last=False)

    def find_listing(self, pin: BasePin) -> Listing | None:
        """The files of a pin; its folder is named by their content."""
        return self._listings.get(pin.store)

    def keep_listing(self, pin: BasePin, listing: Listing) -> None:
        """Remember the files of a pin; the oldest are forgotten when there are too many."""
        self._listings[pin.store] = listing
        while len(self._listings) > 1 and sum(map(len, self._listings.values())) > _MAX_LISTED:
            self._listings.popitem(last=False)

    def find_settings(self, path: Path) -> Mapping[str, str] | None:
        """What a config file says, where it lies as it was when it was read."""
        known = self._settings.get(path)
        return known[1] if known is not None and known[0] == _facts(path) else None

    def keep_settings(self, path: Path, facts: _Facts | None, settings: dict[str, str]) -> None:
        """Remember what a config file says.

        Args:
            path: The file.
            facts: `facts_of(path)` from before it was read; None: don't remember.
            settings: What it says.
        """
        if facts is not None:
            self._settings[path] = facts, settings

    @staticmethod
    def facts_of(path: Path) -> _Facts | None:
        """By what it is told whether a file was changed; None while that can't be told."""
        facts = _facts(path)
        return facts if facts is not None and facts[1] < time.time_ns() - _SETTLED_NS else None


def _facts(path: Path) -> _Facts | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino
