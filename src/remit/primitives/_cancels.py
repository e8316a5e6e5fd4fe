"""A cancel that somebody kept, to be raised when what had to be finished is finished."""

from __future__ import annotations

import asyncio


def once_more(cancel: asyncio.CancelledError) -> asyncio.CancelledError:
    """The same cancel, to be raised by whoever kept it.

    An error that a frame holds, and whose trace leads through that frame, is a ring: all that the frame and
    its callers hold would wait for the collector, which comes seldom. So what was kept loses its trace, and
    another one is raised.
    """
    cancel.__traceback__ = None
    return asyncio.CancelledError(*cancel.args)
