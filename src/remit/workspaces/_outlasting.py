"""Waiting for something that is sure to end, whoever cancels meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["outlast"]


async def outlast(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until it is done, however it ends; it isn't cancelled with its waiter, and bounds its own time.

    Returns:
        The last cancel that came meanwhile, for the caller to raise once it has seen to the result.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
