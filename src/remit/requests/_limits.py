"""Limits from several statements, and lengths of time as people write them."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import pairwise
from typing import Final

from remit.contract import LimitRequest, Limits
from remit.errors import InvalidRequest

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")
_BARE: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?\Z")
_LONGEST_MS: Final = 2**53 - 1


def resolve_limits(*requests: LimitRequest) -> Limits:
    """What a run is held to: of each limit the narrowest statement, else its default.

    A stated limit replaces the default also where it is wider: the default is what holds when nobody says
    anything. `max_children = 0` forbids children, `max_corrections = 0` corrections.
    """
    stated = {
        name: min(values)
        for name in LimitRequest.model_fields
        if (values := [value for request in requests if (value := getattr(request, name)) is not None])
    }
    return Limits.model_validate(stated)


def narrow_limits(limits: Limits, *requests: LimitRequest) -> Limits:
    """Limits that are at most as wide as `limits`, for who may only narrow what holds already."""
    holding = LimitRequest.model_validate(
        {name: value for name in LimitRequest.model_fields if (value := getattr(limits, name)) is not None}
    )
    return resolve_limits(holding, *requests)


def parse_duration_ms(text: str) -> int:
    """Milliseconds of `30m`, `1h30m`, `500ms`, `1.5h`, `90` (a bare number is seconds).

    Raises:
        InvalidRequest: Not a length of time, or 0.
    """
    compact = text.strip().lower()
    if _BARE.match(compact):
        compact += "s"
    parts = list(_PART.finditer(compact))
    units = [part.group(2) for part in parts]
    if not parts or "".join(part.group() for part in parts) != compact or not _falling(units):
        raise InvalidRequest(f"{text[:40]!r} isn't a length of time: write 30m, 1h30m, 90s or 500ms")
    total_ms = int(sum(Decimal(part.group(1)) * _UNIT_MS[part.group(2)] for part in parts))
    if not 0 < total_ms <= _LONGEST_MS:
        raise InvalidRequest(f"{text[:40]!r} is not a usable length of time: it must be 1 ms or more")
    return total_ms


def _falling(units: list[str]) -> bool:
    """Whether each unit is smaller than the one before it: `1h30m` is, `30m1h` and `1m1m` aren't."""
    sizes = [_UNIT_MS[unit] for unit in units]
    return all(larger > smaller for larger, smaller in pairwise(sizes))
