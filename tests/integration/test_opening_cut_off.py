"""A host, and its node, that is told to stop while it opens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from host_kit import make_config
from remit.host import Host
from remit.primitives import SystemClock, SystemIds
from remit.workspaces import NodeService

MOST_STEPS = 100


def threads_of_ours() -> set[str]:
    """Names of the threads that would keep this process from its end."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("remit")}


async def cut_off_everywhere(
    open_it: Callable[[], Awaitable[Any]], close: Callable[[Any], Awaitable[Any]], *, step_s: float
) -> None:
    """Cancel an opening ever later, until one gets through; each must leave nothing."""
    cut = 0
    for step in range(MOST_STEPS):
        opening = asyncio.ensure_future(open_it())  # noqa: TID251 - awaited below
        await asyncio.sleep(step * step_s)
        opening.cancel()
        try:
            opened = await opening
        except asyncio.CancelledError:
            cut += 1
        else:
            await close(opened)
            break
        assert threads_of_ours() == set(), f"after {step * step_s * 1000:.1f} ms"
    assert cut, "an opening takes more than one step"
    assert threads_of_ours() == set()


async def test_a_node_cut_off_anywhere_leaves_nothing(tmp_path: Path) -> None:
    """R9: whichever step a cancel meets, what was opened is closed: no thread, so the process can end."""
    await cut_off_everywhere(
        lambda: NodeService.start([], data=tmp_path / "node", clock=SystemClock(), ids=SystemIds()),
        lambda service: service.aclose(),
        step_s=0.0005,
    )


@pytest.mark.parametrize("own_process", [False, True], ids=["node within", "node beside"])
async def test_a_host_cut_off_anywhere_leaves_nothing(tmp_path: Path, own_process: bool) -> None:
    """R9: the same of a whole host, wherever its node lives."""
    config = make_config(tmp_path)
    await cut_off_everywhere(
        lambda: Host(config, node_process=own_process).__aenter__(),
        lambda host: host.__aexit__(None, None, None),
        step_s=0.025 if own_process else 0.003,
    )
