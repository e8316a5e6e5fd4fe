"""Ids that sort by the moment they were made in."""

from __future__ import annotations

import re
import secrets
import time
from typing import Protocol

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
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
        value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
        return f"{prefix}_{_crockford(value)}"


def _crockford(value: int) -> str:
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def is_run_id(text: str) -> bool:
    """Whether a caller may use this text as a run's id: `[A-Za-z0-9_-]{1,128}`."""
    return _RUN_ID.match(text) is not None
