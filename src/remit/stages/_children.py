"""Tasks that end with the block that started them.

Like `asyncio.TaskGroup`, but the error of a child comes out as it is, and before Python 3.13 too a
failed child leaves no cancel count behind in the waiting task, which would make an enclosing
`asyncio.timeout` lose its `TimeoutError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from remit.primitives import once_more

_Value = TypeVar("_Value")


def was_cancelled() -> bool:
    """Whether somebody has asked the running task to stop; false where a cancellation came up from below."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Children:
    """A scope of child tasks: whatever still runs when the block is left is cancelled and waited for.

    A cancel of the waiting task wins over whatever the children end with.
    """

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        return self

    def start(self, work: Coroutine[Any, Any, _Value]) -> asyncio.Task[_Value]:
        """Start a child."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        return task

    async def join(self) -> None:
        """Wait until all children have ended, or one has failed.

        Raises:
            BaseException: What the first failed child failed with, in order of their start.
        """
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        cancelled: asyncio.CancelledError | None = None
        while pending := [task for task in self._tasks if not task.done()]:
            try:
                await asyncio.wait(pending)
            except asyncio.CancelledError as again:
                cancelled = again
        for task in self._tasks:
            if not task.cancelled():
                task.exception()  # seen, so that the loop doesn't complain about it
        if cancelled is not None:
            raise once_more(cancelled)
