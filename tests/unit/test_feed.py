"""What viewers see while a run goes on, and when nothing more can come."""

from __future__ import annotations

import asyncio
import gc
from contextlib import aclosing
from typing import Any

import pytest

from remit.cli._ready import calm_collector
from remit.errors import StorageError
from remit.events import Event
from remit.primitives import SystemClock
from remit.runs import Feed
from remit.testing import MemoryStore


class _Closed(MemoryStore):
    """A store that is closed while somebody waits for events."""

    async def read_events(self, run_id: str, **_: Any) -> tuple[Event, ...]:
        return ()

    async def wait_for_events(self, run_id: str, **_: Any) -> None:
        await asyncio.sleep(0)
        raise StorageError("the store is closed")


async def test_a_viewer_of_a_closed_store_is_told_so() -> None:
    """The store's own error comes out, not a group of it: whoever serves the viewer waits for that one."""
    feed = Feed(_Closed(clock=SystemClock()), SystemClock())
    async with aclosing(feed.follow("run_1")) as events:
        with pytest.raises(StorageError, match="closed"):
            await anext(events)


def test_everything_is_looked_at_before_rings_have_grown_large() -> None:
    """What became a ring when it was old goes only then; a ring's objects have some 150 bytes each."""
    before = gc.get_threshold()
    try:
        calm_collector()
        young, middle, old = gc.get_threshold()
    finally:
        gc.set_threshold(*before)
    assert young * middle * old <= 400_000
