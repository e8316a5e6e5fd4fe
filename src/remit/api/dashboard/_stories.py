"""Stories of runs that were looked at lately, so that a second look reads only what is new."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from remit.api._ports import ServedStore
from remit.api.dashboard._story import Story

_KEPT: Final = 8
_PAGE: Final = 1_000


class Stories:
    """Reads stories, and keeps the last few. Several looks at one run read one after the other."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[Story, asyncio.Lock]] = OrderedDict()

    async def read(self, store: ServedStore, run_id: str, *, tenant: str) -> Story:
        """The story up to now. Cancellation: what was read stays read."""
        story, lock = self._kept.setdefault((tenant, run_id), (Story(), asyncio.Lock()))
        self._kept.move_to_end((tenant, run_id))
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        async with lock:
            while not story.ended:
                events = await store.read_events(run_id, after=story.seq, limit=_PAGE, tenant=tenant)
                for event in events:
                    story.feed(event)
                if len(events) < _PAGE:
                    break
        return story
