"""What a node knows of the runs it works for, and what is going on for them right now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from remit.contract import How, StoppedCall
from remit.errors import NodeError
from remit.primitives import Clock, once_more
from remit.workspaces._changes import Changes
from remit.workspaces._checkout import Checkout
from remit.workspaces._collect import MAX_CHANGED, IgnoreMemory
from remit.workspaces._failures import KeeperLost
from remit.workspaces._mcp_servers import McpServers
from remit.workspaces._outlasting import outlast
from remit.workspaces._patch import Patch
from remit.workspaces._plugins import WorkspacePlugins
from remit.workspaces._prepared import PreparedWorkspace
from remit.workspaces._tools import ToolRunner
from remit.workspaces.keeper._tree import Facts, Scan, scan_recorded, scan_upper

__all__ = [
    "Activity",
    "Interrupted",
    "NodeRun",
    "stop_all",
    "to_the_end",
]


_Value = TypeVar("_Value")
_ENDING_S = 0.05
_FORGOTTEN_S = 3_600


class Interrupted(Exception):
    """The work was ended by a `cancel`; its processes are gone."""


@dataclass(frozen=True, slots=True)
class _Done(Generic[_Value]):
    value: _Value


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


async def _settle(work: Coroutine[Any, Any, _Value]) -> _Done[_Value] | _Failed:
    """Errors are values here: a task group would wrap them."""
    try:
        return _Done(await work)
    except Exception as error:  # noqa: BLE001 - raised again by who waits
        return _Failed(error)


@dataclass(slots=True, eq=False)
class Activity:
    """One thing that goes on for a run, and that a cancel can end."""

    label: str
    stage_id: str = ""
    tool_call_id: str = ""
    command_id: str | None = None
    """What the checkout knows its command by; None: it has none of its own."""
    ends_as: Literal["closed", "notified"] = "closed"
    """How it is ended where it has no process of its own."""
    task: asyncio.Task[Any] | None = None
    interrupted: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing of it goes on."""
        return self.task is None or self.task.done()

    async def run(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """Do the work so that `stop` can end it.

        Raises:
            Interrupted: It was ended by `stop`.

        Cancellation: the work is cancelled too, and has ended.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self.task = group.create_task(_settle(work), name=self.label)
        finally:
            work.close()  # cancelled before its first step, it was never begun
        if self.task.cancelled():
            raise Interrupted(self.label)
        result = self.task.result()
        if isinstance(result, _Failed):
            raise result.error
        return result.value

    async def stop(self, checkout: Checkout | None, *, grace_ms: int, clock: Clock) -> StoppedCall:
        """End it; answers when its processes are gone."""
        began = clock.monotonic()
        self.interrupted = True
        how: How = self.ends_as
        pids: tuple[int, ...] = ()
        if checkout is not None and self.command_id is not None:
            try:
                for stopped in await checkout.stop(self.command_id, grace_ms=grace_ms):
                    how, pids = (stopped.how, stopped.pids) if stopped.pids else (how, pids)
            except KeeperLost:  # and with it everything that ran
                how = "kill"
        if self.task is not None:
            if how == self.ends_as:  # no process of its own, or none any more
                # One that had begun may just be writing its end down. One that wakes its checkout has not.
                begun = self.command_id is not None and checkout is not None and checkout.is_awake
                await asyncio.wait({self.task}, timeout=_ENDING_S if begun else 0)
                self.task.cancel()
            await asyncio.wait({self.task})
        return StoppedCall(
            stage_id=self.stage_id,
            tool_call_id=self.tool_call_id,
            label=self.label,
            how=how,
            ms=int((clock.monotonic() - began) * 1000),
            pids=pids,
        )


@dataclass(slots=True)
class NodeRun:
    """A run on this node."""

    run_id: str
    generation: int
    seen_s: float
    """When it was last asked for, on the node's own clock."""
    prepared: PreparedWorkspace | None = None
    checkout: Checkout | None = None
    tools: ToolRunner | None = None
    plugins: WorkspacePlugins | None = None
    """What its workspace's MCP servers offer, as it was prepared."""
    servers: McpServers | None = None
    """Those servers, in its checkout."""
    facts: Facts = field(default_factory=dict[str, tuple[int, int, int, int, int]])
    """Of a copied tree, right after it was made."""
    fork: Changes | None = None
    """A child's: what its parent's checkout held when it was copied; its changes are told against it."""
    ignored: IgnoreMemory = field(default_factory=IgnoreMemory)
    last_patch: dict[str, Patch] = field(default_factory=dict[str, Patch])
    """By content hash, the patch that was kept last."""
    activities: set[Activity] = field(default_factory=set[Activity])
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    put_away: asyncio.Event = field(default_factory=asyncio.Event)
    """Set unless a checkout is open, or is just being closed."""

    def __post_init__(self) -> None:
        self.put_away.set()

    def is_idle(self, now_s: float) -> bool:
        """Whether nobody seems to want it: no checkout, so no clean-up comes, and nothing heard for long."""
        return self.checkout is None and not self.activities and now_s - self.seen_s > _FORGOTTEN_S

    def get_prepared(self) -> PreparedWorkspace:
        """What its checkout is made from.

        Raises:
            NodeError: It wasn't prepared here.
        """
        if self.prepared is None:
            raise NodeError("this run wasn't prepared on this node", reason="lost")
        return self.prepared

    def get_checkout(self) -> Checkout:
        """Its open checkout.

        Raises:
            NodeError: There is none.
        """
        if self.checkout is None:
            raise NodeError("this run has no checkout open on this node", reason="lost")
        return self.checkout

    async def stop_servers(self) -> tuple[StoppedCall, ...]:
        """End its MCP servers; the next use starts one anew."""
        return await self.servers.stop_all() if self.servers is not None else ()

    @property
    def layer(self) -> Path:
        """Where the checkout's own files lie: an overlay's changes, a copy, or the tree itself."""
        checkout = self.get_checkout()
        if checkout.isolation == "in_place":
            return Path(self.get_prepared().pin.root)
        return checkout.storage / ("upper" if checkout.isolation == "overlay" else "tree")

    def scan(self) -> Scan:
        """Look through the checkout's files. Blocking."""
        checkout = self.get_checkout()
        if not checkout.is_awake:
            return Scan()
        if checkout.isolation == "overlay":
            return scan_upper(str(self.layer), max_entries=MAX_CHANGED)
        return scan_recorded(str(self.layer), self.facts, max_entries=MAX_CHANGED)

    @contextmanager
    def active(self, activity: Activity) -> Generator[Activity]:
        """Let a cancel find the activity for the length of a block."""
        self.activities.add(activity)
        try:
            yield activity
        finally:
            self.activities.discard(activity)

    def find(self, stage_id: str | None, tool_call_id: str) -> Activity | None:
        """The tool call that goes on under this id."""
        for activity in self.activities:
            if activity.tool_call_id == tool_call_id and stage_id in (None, activity.stage_id):
                return activity
        return None


async def stop_all(run: NodeRun, *, clock: Clock, grace_ms: int) -> tuple[StoppedCall, ...]:
    """End whatever goes on for a run, all at once."""
    activities = sorted(run.activities, key=lambda activity: (activity.stage_id, activity.tool_call_id))
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(activity.stop(run.checkout, grace_ms=grace_ms, clock=clock))
            for activity in activities
        ]
    return tuple(task.result() for task in tasks)


async def to_the_end(work: Callable[[], _Value]) -> _Value:
    """Do blocking work in a thread, and wait for it whatever happens.

    Cancellation: raised once the work has ended.
    """
    future = asyncio.get_running_loop().run_in_executor(None, work)
    cancelled = await outlast(future)
    if cancelled is not None:
        raise once_more(cancelled)
    return future.result()
