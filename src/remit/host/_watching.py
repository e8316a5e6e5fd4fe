"""Callbacks that follow a run. One that raises ends its own run, and no other."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Final, Self, TypeAlias

from remit.errors import MisuseError, RemitError
from remit.events import Event

_log = logging.getLogger(__name__)
_CLOSE_WITHIN_S: Final = 5.0

OnEvent: TypeAlias = Callable[[Event], Awaitable[object] | object]
"""Told of each event of a run, in order. It may be a coroutine function. It holds up nothing but itself."""


class Watch:
    """One callback on its way through one run."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """What the callback raised."""


class Watchers:
    """Owns the tasks in which callbacks are called. Closing it waits for them, for a while."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group, self._group = self._group, None
        if group is None:
            return
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_WITHIN_S)
        for task in self._tasks:
            _log.warning("%s didn't return in time, and is cancelled", task.get_name())
            task.cancel()
        await group.__aexit__(None, None, None)  # an error of the block's stays what it is

    def add(
        self,
        run_id: str,
        *,
        events: AsyncIterator[Event],
        on_event: OnEvent,
        stop: Callable[[str], object],
    ) -> Watch:
        """Follow a run to its end.

        Args:
            run_id: The run.
            events: Its events.
            on_event: Told of each.
            stop: Ends the run, for a reason, where the callback raised.
        """
        if self._group is None:
            raise MisuseError("the host is closed")
        watch = Watch()
        task = self._group.create_task(
            self._follow(run_id, events, on_event, stop, watch), name=f"callback of run {run_id}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return watch

    async def _follow(
        self,
        run_id: str,
        events: AsyncIterator[Event],
        on_event: OnEvent,
        stop: Callable[[str], object],
        watch: Watch,
    ) -> None:
        try:
            async for event in events:
                watch.error = await _call(on_event, event)
                if watch.error is not None:
                    _log.warning("run %s: its callback raised", run_id, exc_info=watch.error)
                    stop(f"a callback of the caller raised {type(watch.error).__name__}")
                    return
        except RemitError as error:
            _log.warning("run %s: its callback can't be told any more: %s", run_id, error.message)


async def _call(on_event: OnEvent, event: Event) -> BaseException | None:
    """What the callback raised, if it did."""
    try:
        answer = on_event(event)
        if inspect.isawaitable(answer):
            await answer
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        return error  # raised by the callback, not for this task
    except (KeyboardInterrupt, SystemExit):
        raise  # the program is being ended, and this is only where it was heard
    except BaseException as error:  # noqa: BLE001 - it is the callback's; the run that it belongs to is told
        return error
    return None
