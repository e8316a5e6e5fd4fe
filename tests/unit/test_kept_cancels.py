"""A cancel that was kept while something was finished leaves no ring of frames behind."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from remit.primitives import once_more
from remit.runs import despite_cancel
from remit.storage._readers import settled
from remit.workspaces._receipt_writer import despite_cancels
from remit.workspaces._service_runs import to_the_end
from remit.workspaces._taking import take_in_thread


class Held:
    """Something that a caller's frame has."""


def soon() -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.call_later(0.02, future.set_result, None)
    return future


def slowly() -> None:
    time.sleep(0.02)


WAITS: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
    "runs": lambda: despite_cancel(asyncio.sleep(0.02)),
    "storage": lambda: settled(soon()),
    "receipts": lambda: despite_cancels(soon()),
    "node": lambda: to_the_end(slowly),
    "taking": lambda: take_in_thread(slowly, lambda _: None),
}


@pytest.mark.parametrize("name", WAITS)
async def test_what_its_callers_had_goes_with_it(name: str) -> None:
    """R3: the cancel is raised once the work has ended, and no frame waits for the collector."""

    async def caller() -> None:
        held = Held()
        await WAITS[name]()
        del held

    gc.collect()
    gc.disable()
    try:
        task = asyncio.get_running_loop().create_task(caller())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel("why")
        await asyncio.wait({task})
        assert task.cancelled()
        del task
        await asyncio.sleep(0)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert not [found for found in gc.garbage if isinstance(found, Held | asyncio.CancelledError)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_it_is_the_same_cancel() -> None:
    """Its message stays; its trace doesn't."""
    try:
        raise asyncio.CancelledError("why")
    except asyncio.CancelledError as error:
        first = error
    again = once_more(first)
    assert (type(again), again.args) == (asyncio.CancelledError, ("why",))
    assert first.__traceback__ is None
