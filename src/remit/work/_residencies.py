"""Counted, labelled reasons why a run, or the host, can't be settled yet."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Residency:
    """One reason. Release it once; again changes nothing."""

    __slots__ = ("_held", "_owner", "_parent", "kept", "label")

    def __init__(self, owner: Residencies, label: str, *, kept: bool, parent: Residency | None) -> None:
        self.label = label
        self.kept = kept
        self._owner = owner
        self._parent = parent
        self._held = True

    @property
    def held(self) -> bool:
        """Whether it still holds the run back."""
        return self._held

    def keep(self) -> None:
        """The preserve policy keeps it: from now on only who waits for all residencies waits for it."""
        self.kept = True
        if self._parent is not None:
            self._parent.keep()
        self._owner._wake()  # pyright: ignore[reportPrivateUsage] - the two are one thing

    def release(self) -> bool:
        """Give it up; true the first time."""
        if not self._held:
            return False
        self._held = False
        self._owner._released(self)  # pyright: ignore[reportPrivateUsage] - the two are one thing
        if self._parent is not None:
            self._parent.release()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Residencies:
    """What holds one run, or one host, back. Belongs to the loop's thread.

    Two barriers: `wait_all_drained` waits for every residency; `wait_drained` for all but those that the
    preserve policy keeps (`kept`). Which of them is right is decided when the run's end is known: the first
    where a cancel had been requested by then.

    Args:
        parent: Where each of these counts too: a run's residencies are also the host's.
    """

    def __init__(self, *, parent: Residencies | None = None) -> None:
        self._parent = parent
        self._held: dict[Residency, None] = {}
        self._waiters: list[asyncio.Future[None]] = []

    def acquire(self, label: str, *, kept: bool = False) -> Residency:
        """Hold back. `label` says why, for people: `tool`, `checkout`, `usage_writer`."""
        above = None if self._parent is None else self._parent.acquire(label, kept=kept)
        residency = Residency(self, label, kept=kept, parent=above)
        self._held[residency] = None
        return residency

    def by_label(self) -> dict[str, int]:
        """How many there are of each label, ordered by label."""
        counts: dict[str, int] = {}
        for residency in self._held:
            counts[residency.label] = counts.get(residency.label, 0) + 1
        return dict(sorted(counts.items()))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._held)

    async def wait_all_drained(self) -> None:
        """Return once there is none. Cancellation: the wait just ends."""
        while self._held:
            await self._next_release()

    async def wait_drained(self) -> None:
        """Return once there is none but kept ones. Cancellation: the wait just ends."""
        while any(not residency.kept for residency in self._held):
            await self._next_release()

    async def wait_gone(self, label: str) -> None:
        """Return once there is none of this label. Cancellation: the wait just ends."""
        while any(residency.label == label for residency in self._held):
            await self._next_release()

    async def _next_release(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def abandon(self) -> dict[str, int]:
        """Give up all that are left, and say what they were: whoever calls this names them in the record."""
        left = self.by_label()
        for residency in tuple(self._held):
            residency.release()
        return left

    def _released(self, residency: Residency) -> None:
        self._held.pop(residency, None)
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
