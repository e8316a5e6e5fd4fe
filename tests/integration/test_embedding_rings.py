"""What a run leaves in memory: nothing that only the collector finds, since the collector comes seldom."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from host_kit import COMPLETES, THINKS, WAITS, open_host, request
from remit.events import Event
from remit.host import Host


@contextmanager
def _without_collector() -> Generator[None]:
    gc.collect()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _rings() -> Counter[str]:
    """Our own objects that are reached by nobody and still there, by type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(
            f"{type(found).__module__}.{type(found).__qualname__}"
            for found in gc.garbage
            if type(found).__module__.startswith("remit.")
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


async def _complete(host: Host) -> None:
    assert (await (await host.start(request(COMPLETES))).ended()).status == "completed"


async def _cancel_in_a_tool(host: Host) -> None:
    run = await host.start(request(WAITS))
    async with aclosing(run.events()) as events:
        async for event in events:
            if event.type == "tool.started":
                break
    assert (await run.cancel()).run.status == "cancelled"


async def _cancel_an_attempt(host: Host) -> None:
    run = await host.start(request(THINKS))
    async with aclosing(run.events()) as events:
        async for event in events:
            if event.type == "attempt.started":
                break
    assert (await run.cancel()).run.status == "cancelled"


async def _cancel_at_once(host: Host) -> None:
    run = await host.start(request(COMPLETES))
    await run.cancel()
    await run.ended()


async def _read(events: AsyncGenerator[Event], begun: asyncio.Event) -> None:
    async with aclosing(events):
        async for _ in events:
            begun.set()


async def _leave(host: Host) -> None:
    """A viewer is cut off while it waits."""
    run, begun = await host.start(request(THINKS)), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        viewer = group.create_task(_read(run.events(), begun))
        await begun.wait()
        await asyncio.sleep(0.1)
        viewer.cancel()
    await run.cancel()


_PLAYS = [_complete, _cancel_in_a_tool, _cancel_an_attempt, _cancel_at_once, _leave]


@pytest.mark.parametrize("play", _PLAYS, ids=lambda play: play.__name__)
async def test_what_a_run_had_goes_with_it(play: Callable[[Host], Awaitable[None]], tmp_path: Path) -> None:
    """A served host's memory would rise by some 20 KiB a run, for as long as the collector doesn't come."""
    async with open_host(tmp_path) as host:
        await play(host)
        await asyncio.sleep(0.2)
        with _without_collector():
            await play(host)
            await asyncio.sleep(0.2)
            assert _rings() == Counter()
