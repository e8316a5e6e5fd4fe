"""Where a test may look in on the writer, or end it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from remit.events import Event

CommitMoment = Literal["before", "after"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One transaction of the writer."""

    number: int
    """1, 2, 3 … since the store was opened."""
    events: tuple[Event, ...]
    """The events that it stores."""


CommitHook = Callable[[CommitMoment, Commit], None]
"""Called in the writer's thread right before each commit, and right after it, before anybody hears of it.

What it raises ends the store on the spot, as the death of the process would: before, nothing of the
transaction is stored; after, all of it is, and nobody was told. A `sqlite3.Error` before a commit is
taken for the database's own.
"""
