"""Work that is done once for all who want it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["Shared"]

_Value = TypeVar("_Value")


class Shared(Generic[_Value]):
    """Does something once for all who ask while it is being done.

    Nobody gets what was begun before they asked. Where who does it gives up, the next one does it.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._begun = 0
        self._made: tuple[int, _Value] | None = None
        self.wanted = 0
        """How many wait for it; who keeps it by name drops it at 0."""

    async def get(self, make: Callable[[], Awaitable[_Value]]) -> _Value:
        """The value, made after this call."""
        asked = self._begun
        self.wanted += 1
        try:
            async with self._lock:
                if self._made is not None and self._made[0] > asked:
                    return self._made[1]
                self._begun += 1
                number = self._begun
                value = await make()
                self._made = (number, value)
                return value
        finally:
            self.wanted -= 1
            if not self.wanted:
                self._made = None  # the next one looks for itself
