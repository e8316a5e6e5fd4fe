"""What runs on a node now, to the process: for whoever watches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from remit.errors import RemitError
from remit.workspaces._service_runs import NodeRun

__all__ = ["RunningCall", "find_running"]

_WITHIN_S: Final = 2.0
"""A keeper that is busy for longer is left out: who watches asks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCall:
    """A tool call that has processes now."""

    run_id: str
    """What the run is called on nodes."""
    stage_id: str
    tool_call_id: str
    pids: tuple[int, ...]
    """On the node's machine."""


async def find_running(runs: Iterable[NodeRun]) -> tuple[RunningCall, ...]:
    """The tool calls that have processes now, by run, stage and call."""
    busy = [run for run in runs if run.checkout is not None and run.activities]
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_calls_of(run)) for run in busy]
    found = [call for task in asked for call in task.result()]
    return tuple(sorted(found, key=lambda call: (call.run_id, call.stage_id, call.tool_call_id)))


async def _calls_of(run: NodeRun) -> list[RunningCall]:
    checkout = run.checkout
    if checkout is None:
        return []
    try:
        async with asyncio.timeout(_WITHIN_S):
            pids = await checkout.pids()
    except (RemitError, TimeoutError):  # it ends just now, or is busy
        return []
    return [
        RunningCall(
            run_id=run.run_id,
            stage_id=activity.stage_id,
            tool_call_id=activity.tool_call_id,
            pids=pids[activity.command_id],
        )
        for activity in run.activities
        if activity.tool_call_id and activity.command_id is not None and pids.get(activity.command_id)
    ]
