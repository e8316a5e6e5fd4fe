"""Finishing what must be finished, whatever the caller's cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_shielded(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Run the work to its end; the second value says that a cancel came meanwhile.

    The caller owns that cancel: it must raise `CancelledError` once it has used the result.

    Cancellation: noted and kept for the caller; the work isn't told.
    """
    task = asyncio.get_running_loop().create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled
