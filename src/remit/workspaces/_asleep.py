"""The place of a checkout that nobody has looked into yet: held, empty, without a process."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Final, Self

from remit.workspaces._link import KeeperLink
from remit.workspaces._taking import take_in_thread
from remit.workspaces.keeper._storage import Storage, remove_what_can_be

__all__ = ["Asleep", "Begun"]

_ENDED_WITHIN_S: Final = 5.0
_PAUSE_S: Final = 0.002

Begun = tuple[KeeperLink, dict[str, Any]]
"""The link to a checkout's keeper, and what it said of the opening."""


class Asleep:
    """Stands for a keeper that wasn't started yet.

    Its folder is there, as an overlay's in which nothing was changed, so that whoever comes after this
    process finds of the run what it would have found; and it is locked, so that nobody comes before.
    """

    def __init__(self, folder: Path, place: FileIO, begin: Callable[[], Awaitable[Begun]]) -> None:
        self._folder = folder
        self._place = place
        self._begin = begin

    @classmethod
    async def lie_down(cls, folder: Path, begin: Callable[[], Awaitable[Begun]]) -> Self:
        """Take the folder.

        Args:
            folder: The checkout's own, which isn't there yet.
            begin: Starts the keeper in it.

        Raises:
            OSError: It can't be made, or is another process's (BlockingIOError).
        """
        return cls(folder, await take_in_thread(partial(_take, folder), partial(_undo, folder)), begin)

    async def begin(self) -> Begun:
        """Hand the folder to a keeper; raises what its opening raises, with the folder taken again."""
        self.end()
        try:
            return await self._begin()
        except BaseException:
            with suppress(OSError):  # it went bad, or is another's by now: the next opening says so
                self._place = await take_in_thread(partial(_take_again, self._folder), FileIO.close)
            raise

    def end(self) -> None:
        """Give the folder up; it stays as it is. Safe to call twice."""
        self._place.close()


def _undo(folder: Path, place: FileIO) -> None:
    """Remove a place that nobody waits for any more; at once, since its caller may be cancelled twice."""
    remove_what_can_be(folder)
    place.close()


def _take_again(folder: Path) -> FileIO:
    """Take it from a keeper whose opening was taken back, which is about to end."""
    deadline = time.monotonic() + _ENDED_WITHIN_S
    while True:
        try:
            return _take(folder)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)


def _take(folder: Path) -> FileIO:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    storage = Storage(folder)
    place = FileIO(storage.lock(), "r+")
    try:
        storage.upper.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        place.close()
        raise
    return place
