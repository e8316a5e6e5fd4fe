"""What a run waits for before its clock begins: told when it begins, or when it never does."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, Literal

from remit.contract import QueueTimes
from remit.primitives import Clock

Awaited = Literal["turn", "place", "preparation"]
_WORDS: Final[dict[Awaited, str]] = {
    "turn": "an earlier run of its session was still active",
    "place": "the host had no place for it yet",
    "preparation": "it was being made ready",
}


class QueueWatch:
    """Times one run's way through the queue."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._took_ms: dict[Awaited, int] = {}
        self.waits_for: Awaited | None = None
        """What it is waiting for, or was when the wait was cut off."""

    @contextmanager
    def waiting(self, what: Awaited) -> Generator[None]:
        """The time inside is a wait for this."""
        self.waits_for, began = what, self._clock.monotonic()
        yield
        self._took_ms[what] = int((self._clock.monotonic() - began) * 1000)
        self.waits_for = None

    @property
    def told(self) -> str | None:
        """Why the run hasn't begun, in a few words; None: nothing holds it back."""
        return None if self.waits_for is None else _WORDS[self.waits_for]

    def times(self) -> QueueTimes:
        """How long each wait took."""
        took = self._took_ms
        return QueueTimes(
            turn_ms=took.get("turn", 0),
            place_ms=took.get("place", 0),
            preparation_ms=took.get("preparation", 0),
        )
