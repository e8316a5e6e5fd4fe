"""When to ask again: what a provider asks for, and our own pace where it says nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

from remit.primitives import Clock

MAX_RETRIES = 4
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 32.0
_DOUBLINGS = 5
"""From the first pause to the longest."""
LONGEST_ASKED_S = 3_600.0
"""What a provider asks for beyond this isn't waited for, even where nothing else bounds the run."""
_RESET_HEADER = re.compile(
    r"(?:x-)?ratelimit-reset(?:-(?P<bucket>\w+))?\Z|.+-ratelimit-(?P<other>.+)-reset\Z"
)
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PLAIN = re.compile(r"[0-9]+(?:\.[0-9]+)?\Z")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhd])")
_IN_BODY = re.compile(
    r"\"retryDelay\"\s*:\s*\"(?P<field>[\d.]+s)\"|try again in (?P<words>\d[\d.]*(?:ms|[smhd])[\d.msh]*)"
)
_EPOCH_S, _EPOCH_MS = 1e9, 1e11

Jitter = Callable[[], float]
"""A random number from 0 to 1."""


def backoff_s(failures: int, jitter: Jitter) -> float:
    """Our own pause after so many failures: 1 s x 2^n up to 32 s, shortened by up to a quarter."""
    # Bounded before the power: a member that fails for thousands of runs would overflow it.
    full = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures - 1, _DOUBLINGS))
    return full * (1 - jitter() / 4)


def asked_pause_s(headers: Mapping[str, str], body: str, *, now: datetime) -> float | None:
    """How long the provider asks us to wait; None when it doesn't say, or not so that we understand it.

    Read, first found wins: `retry-after-ms`, `retry-after` (seconds, or a date), the reset moment of a
    used-up rate limit (`x-ratelimit-reset-requests: 6m0s` and relatives), and what some put in the body.

    Args:
        headers: Of the answer, names in lower case.
        body: Of the answer, its start.
        now: For dates.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    after = headers.get("retry-after")
    if after is not None:
        pause = parse_pause_s(after, now=now)
        if pause is not None:
            return pause
    reset = _reset_pause_s(headers, now)
    if reset is not None:
        return reset
    found = _IN_BODY.search(body)
    return parse_pause_s((found["field"] or found["words"]).rstrip("."), now=now) if found else None


def parse_pause_s(text: str, *, now: datetime) -> float | None:
    """Seconds from a number, a span such as `6m0s` or `120ms`, a moment, or a count since 1970."""
    text = text.strip()
    number = _number(text)
    if number is not None:
        if number >= _EPOCH_MS:
            return max(0.0, number / 1000 - now.timestamp())
        return max(0.0, number - now.timestamp()) if number >= _EPOCH_S else number
    parts = _PART.findall(text)
    if parts and "".join(value + unit for value, unit in parts) == text:
        return sum(float(value) * _UNIT_S[unit] for value, unit in parts)
    moment = _moment(text)
    return None if moment is None else max(0.0, (moment - now).total_seconds())


def _moment(text: str) -> datetime | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text)
        except (ValueError, TypeError, IndexError):
            continue
        return moment if moment.tzinfo is not None else None
    return None


def _reset_pause_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """The latest reset among used-up limits; where none is shown as used up, the earliest of all."""
    used_up: list[float] = []
    others: list[float] = []
    for name, value in headers.items():
        found = _RESET_HEADER.match(name)
        pause = parse_pause_s(value, now=now) if found else None
        if pause is not None:
            remaining = headers.get(name.replace("reset", "remaining"))
            (used_up if remaining is not None and _number(remaining) == 0 else others).append(pause)
    if used_up:
        return max(used_up)
    return min(others, default=None)


def _number(text: str | None) -> float | None:
    if text is None or not _PLAIN.match(text.strip()):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


@dataclass(slots=True)
class KeyPause:
    """The pause that all requests with one key keep, whichever run made it necessary."""

    resume_at: float = 0.0
    """Monotonic seconds."""

    def extend(self, pause_s: float, *, clock: Clock) -> None:
        """Ask everybody to wait at least so long from now."""
        self.resume_at = max(self.resume_at, clock.monotonic() + pause_s)

    def left_s(self, clock: Clock) -> float:
        """Seconds that are still to be waited; 0 when nobody has to."""
        return max(0.0, self.resume_at - clock.monotonic())
