"""A host, and its node, that is told to stop while it opens."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from host_kit import make_config
from remit.host import Host
from remit.primitives import SystemClock, SystemIds
from remit.workspaces import NodeService, _service
from remit.workspaces._delivery import Deliveries
from remit.workspaces._owner import NodeOwner

MOST_STEPS = 100


def threads_of_ours() -> set[str]:
    """Names of the threads that would keep this process from its end."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("remit")}


def held_below(folder: Path) -> list[str]:
    """Files below a folder that this process has open."""
    held: list[str] = []
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            held.append(os.readlink(handle))
    return [name for name in held if Path(name).is_relative_to(folder)]


async def cut_off_everywhere(
    open_it: Callable[[], Awaitable[Any]],
    close: Callable[[Any], Awaitable[Any]],
    *,
    folder: Path,
    step_s: float,
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
        assert (threads_of_ours(), held_below(folder)) == (set(), []), f"after {step * step_s * 1000:.1f} ms"
    assert cut, "an opening takes more than one step"
    assert (threads_of_ours(), held_below(folder)) == (set(), [])


STEPS = {
    "its lock": (NodeOwner, "take"),
    "deliveries": (Deliveries, "recover"),
    "branches": (_service, "recover_branches"),
    "a sweep": (_service, "sweep_node"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("cut", [False, True])
async def test_a_node_that_fails_at_a_step_leaves_nothing(
    step: str, cut: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R9: an error or a cancel at any step: what was open before is closed, once the step is through."""
    entered, go = threading.Event(), threading.Event()

    def fail(*_: Any, **__: Any) -> None:
        entered.set()
        go.wait(30)
        raise OSError(errno.EIO, "a fault")

    monkeypatch.setattr(*STEPS[step], fail)
    opening = asyncio.ensure_future(  # noqa: TID251 - awaited below
        NodeService.start([], data=tmp_path / "node", clock=SystemClock(), ids=SystemIds())
    )
    await asyncio.to_thread(entered.wait, 30)
    if cut:
        opening.cancel()
        await asyncio.sleep(0.05)
        # A sweep holds whatever it removes, so it may go on by itself; all else is waited for.
        assert opening.done() is (step == "a sweep")
    go.set()
    with pytest.raises(asyncio.CancelledError if cut else OSError):
        await opening
    assert (threads_of_ours(), held_below(tmp_path)) == (set(), [])


async def test_a_node_cut_off_anywhere_leaves_nothing(tmp_path: Path) -> None:
    """R9: whichever step a cancel meets, what was opened is closed: no thread, so the process can end."""
    await cut_off_everywhere(
        lambda: NodeService.start([], data=tmp_path / "node", clock=SystemClock(), ids=SystemIds()),
        lambda service: service.aclose(),
        folder=tmp_path,
        step_s=0.0005,
    )


@pytest.mark.parametrize("own_process", [False, True], ids=["node within", "node beside"])
async def test_a_host_cut_off_anywhere_leaves_nothing(tmp_path: Path, own_process: bool) -> None:
    """R9: the same of a whole host, wherever its node lives."""
    config = make_config(tmp_path)
    await cut_off_everywhere(
        lambda: Host(config, node_process=own_process).__aenter__(),
        lambda host: host.__aexit__(None, None, None),
        folder=tmp_path,
        step_s=0.025 if own_process else 0.003,
    )
