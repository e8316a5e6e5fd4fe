"""A block of work that ends the run when it takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from remit.contract import Terminal
from remit.runs._endings import Ended


@asynccontextmanager
async def until(ends: float | None, terminal: Terminal) -> AsyncGenerator[None]:
    """Bound a block in time.

    Args:
        ends: A moment on the loop's clock; None: no bound.
        terminal: How the run ends when that moment comes first.

    Raises:
        Ended: It came first; what the block did was cancelled.
    """
    scope = asyncio.timeout_at(ends)
    try:
        async with scope:
            yield
    except TimeoutError:
        if scope.expired():
            raise Ended(terminal) from None
        raise
