"""Ids that sort by the moment they were made in."""

from __future__ import annotations

import os
import re
import secrets
import time
from typing import Protocol

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BYTES = 10
_DRAWN_AT_ONCE = 64
_drawn: list[bytes] = []
if hasattr(os, "register_at_fork"):  # a forked process must not use its parent's
    os.register_at_fork(after_in_child=_drawn.clear)
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")


class Ids(Protocol):
    """Where a module gets its ids from."""

    def new(self, prefix: str) -> str:
        """A fresh id: `PREFIX_` and 26 characters (ULID: 48 bits of ms, 80 random bits)."""
        ...


class SystemIds:
    """Ids from the machine's clock and its random source."""

    def new(self, prefix: str) -> str:
        """A fresh id, `run_01K…`."""
        try:
            drawn = _drawn.pop()  # one step, so no two threads get the same
        except IndexError:
            drawn = _draw()
        value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(drawn, "big")
        return f"{prefix}_{_crockford(value)}"


def _draw() -> bytes:
    """Random bits for some ids at once: each call into the system may cost a thread its turn."""
    drawn = secrets.token_bytes(_RANDOM_BYTES * _DRAWN_AT_ONCE)
    first, *others = (drawn[at : at + _RANDOM_BYTES] for at in range(0, len(drawn), _RANDOM_BYTES))
    _drawn.extend(others)
    return first


def _crockford(value: int) -> str:
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def is_run_id(text: str) -> bool:
    """Whether a caller may use this text as a run's id: `[A-Za-z0-9_-]{1,128}`."""
    return _RUN_ID.match(text) is not None
