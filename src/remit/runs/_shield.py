"""Clean-up that a cancel can't cut in half."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from remit.primitives import once_more

_Value = TypeVar("_Value")


async def despite_cancel(work: Coroutine[Any, Any, _Value]) -> _Value:
    """Finish `work` even when the waiting task is cancelled meanwhile; the cancel is raised afterwards.

    The work must bound its own time. It is owned by this call, which doesn't return before it.

    Raises:
        asyncio.CancelledError: The caller was cancelled while it waited; the work is done all the same.
    """
    # Owned by this frame: awaited to its end below, whatever happens to the caller.
    task = asyncio.ensure_future(work)  # noqa: TID251
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.done() and task.cancelled():
                raise
            cancelled = error
        except Exception:  # noqa: BLE001 - it is raised below, from the task itself
            break
    if cancelled is not None:
        task.exception()
        raise once_more(cancelled)
    return task.result()
