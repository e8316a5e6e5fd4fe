"""Lengths of time as whole milliseconds."""

from __future__ import annotations

from typing import Final

_LONGEST_MS: Final = 2**53 - 1


def elapsed_ms(since: float, now: float) -> int:
    """Whole milliseconds between two readings of a monotonic clock, in seconds; saturates at both ends."""
    # By way of microseconds: 5 ms after 1000.1 s is 4.9999999 ms in floats.
    return min(max(round((now - since) * 1_000_000) // 1000, 0), _LONGEST_MS)
