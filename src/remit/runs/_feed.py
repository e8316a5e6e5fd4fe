"""What viewers see: the stored log, and beside it what isn't stored.

A viewer never holds up a run: stored events are read from the store, at the viewer's own pace; the
others wait in a bounded line per viewer and fall off its far end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator

from remit.contract import RunView
from remit.events import TERMINAL_TYPES, Ephemeral, Event
from remit.primitives import Clock
from remit.runs._naming import name_in_host
from remit.runs._ports import RunStore

_LINE = 1_000


class _Viewer:
    __slots__ = ("closed", "line", "wake")

    def __init__(self) -> None:
        self.line: deque[Event] = deque(maxlen=_LINE)
        self.wake = asyncio.Event()

    def nudge(self, _: object = None) -> None:
        """Let it look for something new."""
        self.wake.set()


class Feed:
    """The viewers of all runs of this process."""

    def __init__(self, store: RunStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._viewers: dict[str, set[_Viewer]] = {}

    def publish(self, view: RunView, ephemeral: Ephemeral, *, tenant: str = "local") -> None:
        """Hand something to whoever looks at this run now."""
        viewers = self._viewers.get(name_in_host(tenant, view.id))
        if not viewers:
            return
        event = Event(
            type=ephemeral.type,
            seq=None,
            run_id=view.id,
            session_id=view.session_id,
            at=self._clock.now(),
            work_id=ephemeral.work_id,
            data=ephemeral.data,
        )
        for viewer in viewers:
            viewer.line.append(event)
            viewer.wake.set()

    def close(self, run_id: str, *, tenant: str = "local") -> None:
        """The run has ended: its viewers needn't wait any more."""
        for viewer in self._viewers.get(name_in_host(tenant, run_id), ()):
            viewer.wake.set()

    async def follow(self, run_id: str, *, after: int = 0, tenant: str = "local") -> AsyncGenerator[Event]:
        """A run's events from `after` on, in order, to its terminal; ephemeral ones in between.

        Cancellation: the viewer is gone; nothing else changes.
        """
        viewer, name = _Viewer(), name_in_host(tenant, run_id)
        self._viewers.setdefault(name, set()).add(viewer)
        try:
            async for event in self._merged(run_id, viewer, after, tenant):
                yield event
                if event.type in TERMINAL_TYPES:
                    return
        except asyncio.CancelledError as cancel:
            # A cancelled task group's frame holds the error, and the error's trace the frame: a ring, and in
            # it all that a viewer has. Most viewers end so, and the collector comes seldom.
            raise cancel.with_traceback(None)  # noqa: B904 - it is the very same
        finally:
            viewers = self._viewers[name]
            viewers.discard(viewer)
            if not viewers:
                del self._viewers[name]

    async def _merged(self, run_id: str, viewer: _Viewer, after: int, tenant: str) -> AsyncIterator[Event]:
        while True:
            viewer.wake.clear()
            while stored := await self._store.read_events(run_id, after=after, tenant=tenant):
                for event in stored:
                    after = event.seq or after
                    yield event
            while viewer.line:
                yield viewer.line.popleft()
            await self._wait(run_id, viewer, after, tenant)

    async def _wait(self, run_id: str, viewer: _Viewer, after: int, tenant: str) -> None:
        """Until there is something stored, or something in the line.

        Raises:
            StorageError: Nothing more will be stored.
        """
        try:
            async with asyncio.TaskGroup() as group:
                stored = group.create_task(self._store.wait_for_events(run_id, after=after, tenant=tenant))
                stored.add_done_callback(viewer.nudge)
                await viewer.wake.wait()
                stored.cancel()
        except ExceptionGroup as errors:  # by `except*` it stayed in a group, before Python 3.11.4
            raise errors.exceptions[0] from None
