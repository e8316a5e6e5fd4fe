"""What a node in a process of its own costs: its start, and each call, beside the link in process."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from bench.bench_checkout import Figure

from remit.contract import ArtifactRequest, CancelRequest, OpenRequest, PrepareRequest, ToolRequest
from remit.node_agent import EmbeddedNode, NodeProcess, setup_of
from remit.nodes import InProcessLink, NodeLink
from remit.primitives import SystemClock, SystemIds
from remit.workspaces import WorkspaceSettings

ROUNDS: Final = 300
BULK_BYTES: Final = 4_000_000


async def opened(link: NodeLink, run_id: str) -> None:
    """A run with a checkout."""
    prepared = await link.prepare(PrepareRequest(run_id=run_id, workspace_ref="app"))
    await link.open(OpenRequest(run_id=run_id, workspace_ref="app", base=prepared.base))


def reading(run_id: str, number: int) -> ToolRequest:
    """A small tool call."""
    return ToolRequest(
        run_id=run_id,
        stage_id="work-1",
        tool_call_id=f"c{number}",
        name="list_files",
        arguments="{}",
        timeout_ms=60_000,
        remaining_ms=60_000,
    )


async def in_turns(*calls: Callable[[int], Awaitable[object]], rounds: int = ROUNDS) -> list[float]:
    """Milliseconds of each call, the median; taken in turns, so that all see the same machine."""
    took: list[list[float]] = [[] for _ in calls]
    for number in range(rounds):
        for call, times in zip(calls, took, strict=True):
            started = time.perf_counter()
            await call(number)
            times.append((time.perf_counter() - started) * 1e3)
    return [statistics.median(times) for times in took]


async def calls(near: NodeLink, far: NodeLink) -> list[Figure]:
    """The same calls over both links."""
    run_ids = {id(near): "run_near", id(far): "run_far"}
    for link in (near, far):
        await opened(link, run_ids[id(link)])

    def nothing(link: NodeLink) -> Callable[[int], Awaitable[object]]:
        asked = CancelRequest(run_id=run_ids[id(link)], tool_call_id="none")
        return lambda _: link.cancel(asked)

    def tool(link: NodeLink) -> Callable[[int], Awaitable[object]]:
        return lambda number: link.tool(reading(run_ids[id(link)], number))

    def bulk(link: NodeLink) -> Callable[[int], Awaitable[object]]:
        asked = ArtifactRequest(run_id=run_ids[id(link)], name="plan", text="x" * BULK_BYTES)
        return lambda _: link.artifact(asked)

    here, there = await in_turns(nothing(near), nothing(far))
    tool_here, tool_there = await in_turns(tool(near), tool(far))
    bulk_here, bulk_there = await in_turns(bulk(near), bulk(far), rounds=10)
    return [
        Figure(name="a call that does nothing", value=there, floor=here, budget=1, over_floor=True),
        Figure(name="list_files", value=tool_there, floor=tool_here, budget=1, over_floor=True),
        Figure(name="an artifact of 4 MB", value=bulk_there, floor=bulk_here),
    ]


async def restart(node: NodeProcess) -> Figure:
    """From a kill -9 of the node to the next one's first answer."""
    assert node.pid is not None
    os.kill(node.pid, signal.SIGKILL)
    started = time.perf_counter()
    await node.link.cancel(CancelRequest(run_id="run_far"))
    return Figure(name="killed, and there again", value=(time.perf_counter() - started) * 1e3)


async def measure() -> list[Figure]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as name:
        root = Path(name) / "app"
        root.mkdir()
        (root / "readme.txt").write_text("A folder.\n")
        served = {"app": WorkspaceSettings(ref="app", root=root, shell=True, checks=())}
        environment, clock = {"HOME": name, "PATH": os.environ["PATH"]}, SystemClock()
        embedded = EmbeddedNode(
            served, data=Path(name) / "near", clock=clock, ids=SystemIds(), environment=environment
        )
        setup = setup_of(served, data=Path(name) / "far", environment=environment)
        started = time.perf_counter()
        async with embedded, InProcessLink(embedded) as near, NodeProcess(setup, clock=clock) as node:
            await node.wait_ready()
            ready = Figure(name="start", value=(time.perf_counter() - started) * 1e3, budget=1_000)
            return [ready, *await calls(near, node.link), await restart(node)]


def main() -> int:
    """Print the figures; 1 when a budget is passed."""
    figures = asyncio.run(measure())
    print(f"     {'':38} {'here':>10} {'':5} {'floor':>10} {'ratio':>9} {'budget':>8}")
    for figure in figures:
        print(figure.line())
    return 0 if all(figure.kept for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
