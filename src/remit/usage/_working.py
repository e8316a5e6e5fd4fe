"""Time that was worked: wall time without the waits for a queue or a rate limit."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from remit.primitives import Clock

_SHORTEST_LOOK_S = 0.05


class WorkingTime:
    """A stopwatch that stands still while anything waits. Waits that overlap count once.

    So 0 <= working <= wall, whatever runs beside one another.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._waits = 0
        self._wait_began = 0.0
        self._waited = 0.0

    @contextmanager
    def waiting(self) -> Generator[None]:
        """The time inside doesn't count."""
        if self._waits == 0:
            self._wait_began = self._clock.monotonic()
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if self._waits == 0:
                self._waited += max(0.0, self._clock.monotonic() - self._wait_began)

    def wall_ms(self) -> int:
        """Milliseconds since it was made."""
        return _whole_ms(self._wall())

    def waited_ms(self) -> int:
        """Milliseconds waited so far, a wait that goes on included."""
        return _whole_ms(self._waited_so_far())

    def working_ms(self) -> int:
        """Milliseconds worked so far."""
        return _whole_ms(max(0.0, self._wall() - self._waited_so_far()))

    async def wait_until_worked(self, limit_ms: int) -> None:
        """Return once so much was worked. Cancellation: the wait just ends."""
        while (left_ms := limit_ms - self.working_ms()) > 0:
            # Working time never runs faster than the clock; while something waits it stands still.
            left_s = left_ms / 1000
            await self._clock.sleep(max(left_s, _SHORTEST_LOOK_S) if self._waits else left_s)

    def _wall(self) -> float:
        return max(0.0, self._clock.monotonic() - self._started)

    def _waited_so_far(self) -> float:
        ongoing = max(0.0, self._clock.monotonic() - self._wait_began) if self._waits else 0.0
        return self._waited + ongoing


def _whole_ms(seconds: float) -> int:
    # By way of microseconds: differences of floats fall just short of what they mean.
    return round(seconds * 1_000_000) // 1000
