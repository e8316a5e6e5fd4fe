"""The wait for a part of the tree: asking to stop is one thing, waiting for the end another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from remit.contract import How
from remit.work._elapsed import elapsed_ms
from remit.work._items import ClosedItem, OpenItem

if TYPE_CHECKING:
    from remit.work._entry import Entry


class Subtree:
    """An item and all that hangs, or comes to hang, below it.

    It is *closed* when no more work is expected there: its top has ended, or the top's owner says so by
    waiting for the rest. It is *empty* when none of its items is registered. What once belonged to it does so
    until it ends, whatever becomes of its parent.
    """

    __slots__ = ("_alone", "_ended", "_open", "_waiters", "top")

    def __init__(self, top: Entry) -> None:
        self.top = top
        self._alone: tuple[Subtree, ...] = ()
        self._open: dict[Entry, None] = {}
        self._ended: list[ClosedItem] = []
        self._waiters: list[asyncio.Future[None]] = []

    def alone(self) -> tuple[Subtree, ...]:
        """Itself, shared by all items that belong to this subtree and no other: a large one has many."""
        if not self._alone:
            self._alone = (self,)
        return self._alone

    def add(self, entry: Entry) -> bool:
        """Count an item in; false when it was already."""
        if entry in self._open:
            return False
        self._open[entry] = None
        return True

    def replace(self, old: Entry, new: Entry) -> None:
        """The item was registered again."""
        self._open.pop(old, None)
        self._open[new] = None
        if self.top is old:
            self.top = new

    def remove(self, entry: Entry, *, how: How, pids: Sequence[int], now: float) -> None:
        """The item has ended."""
        self._open.pop(entry, None)
        if not self._open:
            self._alone = ()  # a ring, which would stay until the collector looks
        if entry.cancelled and self.top.cancelled:  # its own cancel, or one that came from above
            self._ended.append(
                ClosedItem(
                    session_id=entry.session_id,
                    work_id=entry.work_id,
                    kind=entry.spec.kind,
                    label=entry.spec.label,
                    how=how,
                    ms=elapsed_ms(self.top.cancelled_at, now),
                    pids=tuple(pids),
                )
            )
        if self._waiters and len(self._open) <= 1:
            self._wake()

    def is_settled(self, *, below: bool) -> bool:
        """Whether it is closed and empty (`below`: but for its top)."""
        return not self._open or (below and len(self._open) == 1 and self.top in self._open)

    def ended(self) -> tuple[ClosedItem, ...]:
        """What ended since the cancel, in that order."""
        return tuple(self._ended)

    def open_items(self) -> tuple[OpenItem, ...]:
        """What hasn't ended, in order of arrival."""
        return tuple(
            OpenItem(
                session_id=entry.session_id,
                work_id=entry.work_id,
                kind=entry.spec.kind,
                label=entry.spec.label,
            )
            for entry in self._open
        )

    def _wake(self) -> None:
        """Let those who wait look again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, *, below: bool) -> None:
        """Return once it is settled. Cancellation: the wait just ends."""
        while not self.is_settled(below=below):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
