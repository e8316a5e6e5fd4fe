"""Time as something that is passed in."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where a module gets its time from."""

    def now(self) -> datetime:
        """The moment, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait. Cancellation: the wait just ends."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The moment, aware and in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some fixed point."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait on the running loop."""
        await asyncio.sleep(seconds)


def format_time(moment: datetime) -> str:
    """A moment as it is stored and sent: ISO 8601, UTC, microseconds, `Z`."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> datetime:
    """The inverse of `format_time`; takes any ISO 8601 moment that names its zone.

    Raises:
        ValueError: The text isn't such a moment, or has no zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a moment without a zone: {text!r}")
    return moment.astimezone(UTC)
