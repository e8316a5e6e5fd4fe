"""Taking what has to be given back, in a thread: a cancel in between leaves nothing taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from remit.workspaces._outlasting import outlast

__all__ = ["take_in_thread"]

_Taken = TypeVar("_Taken")


async def take_in_thread(take: Callable[[], _Taken], give_back: Callable[[_Taken], object]) -> _Taken:
    """Do a blocking `take` in a thread.

    Args:
        take: Opens or locks something, and bounds its own time.
        give_back: Undoes that, without blocking.

    Cancellation: raised once the thread is through, and what it took has been given back.
    """
    taking = asyncio.get_running_loop().run_in_executor(None, take)
    cancelled = await outlast(taking)
    if cancelled is None:
        return taking.result()
    if taking.exception() is None:
        give_back(taking.result())
    raise cancelled
