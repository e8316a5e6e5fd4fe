"""Embedded in a program whose event loop isn't asyncio's own: uvloop, which web servers like to bring."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from remit.host import Host
from whole_kit import MEND, NO_CHECKS, Ended, World, nonce, processes_with, reviewed, shell

pytestmark = pytest.mark.timeout(180)


async def _with_host(world: World, action: Callable[[Host], Awaitable[Any]], **more: Any) -> Any:
    async with Host(world.config()[0], door_delivery="apply", **more) as host:
        return await action(host)


@pytest.mark.parametrize("node_process", [False, True], ids=["in process", "node of its own"])
def test_a_reviewed_run_completes_and_is_applied(world: World, node_process: bool) -> None:
    """Streams, commands, storage and delivery work on uvloop as on asyncio's own loop."""
    world.fake.script(*reviewed(shell("cat README.md"), MEND))
    world.workspace = NO_CHECKS

    async def act(host: Host) -> Ended:
        return await Ended.of(host, await host.start(world.request()))

    ended = uvloop.run(_with_host(world, act, node_process=node_process))
    assert ended.view.status == "completed", ended.view.terminal
    ended.check_story()
    assert "a + b" in (world.root / "calc/__init__.py").read_text()


def test_a_cancel_ends_the_command(world: World) -> None:
    """S6: on uvloop too a cancel in the middle of a tool leaves no process, and its receipt is complete."""
    mark = nonce()
    world.fake.script(*reviewed(shell(f"exec -a {mark} sleep 300")))
    world.workspace = NO_CHECKS

    async def act(host: Host) -> Any:
        run = await host.start(world.request())
        async for event in run.events():
            if event.type == "tool.started":
                break
        return await run.cancel()

    outcome = uvloop.run(_with_host(world, act))
    assert outcome.run.status == "cancelled"
    assert outcome.receipt is not None
    assert outcome.receipt.complete
    assert not processes_with(mark)
