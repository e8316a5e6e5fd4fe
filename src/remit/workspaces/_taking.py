"""Taking what has to be given back, in a thread: a cancel in between leaves nothing taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from remit.primitives import once_more
from remit.workspaces._outlasting import outlast
from remit.workspaces.keeper._storage import remove_unless_held

__all__ = ["take_back", "take_in_thread"]

_TRIED: Final = 20
_PAUSE_S: Final = 0.05

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
    raise once_more(cancelled)


async def take_back(storage: Path) -> None:
    """Remove what an opening that failed has made, unless another process has opened it."""
    for _ in range(_TRIED):
        with suppress(OSError):
            if await asyncio.to_thread(remove_unless_held, storage):
                return
        await asyncio.sleep(_PAUSE_S)  # its keeper is about to end
