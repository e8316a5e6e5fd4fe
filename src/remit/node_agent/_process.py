"""A node in a process of its own, from the host's side: started, watched, and started anew when it dies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from remit.errors import MisuseError, NodeError
from remit.node_agent._child import NodeChild
from remit.node_agent._look import NodeLook
from remit.node_agent._states import NodeState, NodeTrigger, next_node_state
from remit.nodes.wire import (
    CallsListed,
    Drain,
    Drained,
    KeeperStarted,
    ListCalls,
    Look,
    Looked,
    NodeMessage,
    NodeSetup,
    Ping,
    Ready,
    SocketLink,
    Unable,
    Wire,
)
from remit.primitives import Clock
from remit.workspaces import RunningCall

__all__ = ["NodeProcess", "NodeTimes"]

_log = logging.getLogger("remit.node")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimes:
    """How long the parts of a node's life may take."""

    start_s: float = 600.0
    """From the start of the process until it takes requests: first it puts right what others left."""
    ready_within_s: float = 10.0
    """How long a request waits for a node to be there."""
    beat_s: float = 5.0
    """Between two questions whether it still answers."""
    silent_beats: int = 6
    """So many of them without a word, and it is taken for stuck, and killed."""
    drain_s: float = 30.0
    """For an end in order; then it is killed."""
    pauses_s: tuple[float, ...] = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
    """Before each further start of a node that doesn't stay; the last one counts on."""
    steady_s: float = 60.0
    """A node that has lived so long is taken for well: the pauses begin anew."""


class NodeProcess:
    """The node of this machine in a process of its own. Used by `async with`.

    Its process is begun at once and waited for by `wait_ready`. One that dies is followed by another, after a
    pause; `link` goes on over all of them. At the end of the block it is told to end, and is gone.

    Args:
        setup: What it serves.
        clock: Where time comes from.
        times: How long it may take.
    """

    def __init__(self, setup: NodeSetup, *, clock: Clock, times: NodeTimes | None = None) -> None:
        self._setup = setup
        self._clock = clock
        self._times: Final = times or NodeTimes()
        self._state = NodeState.STARTING
        self._child: NodeChild | None = None
        self._group: asyncio.TaskGroup | None = None
        self._watching: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self.restarts = 0
        """How often another process had to be begun."""
        self.link = SocketLink(ready_within_s=self._times.ready_within_s, on_unasked=self._note)

    # ---- opening and closing

    async def __aenter__(self) -> Self:
        self._first = asyncio.get_running_loop().create_future()
        self._group = await asyncio.TaskGroup().__aenter__()
        self._watching = self._group.create_task(self._watch(self._first), name="the node's process")
        return self

    async def wait_ready(self) -> None:
        """Return once it takes requests.

        Raises:
            NodeError: It doesn't start; the message says why.
        """
        if self._first is None:
            raise MisuseError("the node isn't open: use `async with NodeProcess(...)`")
        await asyncio.shield(self._first)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group, self._group = self._group, None
        if group is None or self._watching is None:
            return
        was_ready = self._state is NodeState.READY
        self._move(NodeTrigger.CLOSE)
        try:
            if was_ready:
                await self._end_in_order(self._watching)
        finally:
            self.link.close()
            self._watching.cancel()
            await group.__aexit__(None, None, None)
            self._forget_first()

    def _forget_first(self) -> None:
        """Whoever still waits for the first start is told; that nobody does is no fault."""
        if self._first is None:
            return
        if not self._first.done():
            self._first.set_exception(NodeError("the node was closed while it started", reason="lost"))
        self._first.exception()

    async def _end_in_order(self, watching: asyncio.Task[None]) -> None:
        try:
            async with asyncio.timeout(self._times.drain_s):
                answer = await self.link.control(Drain())
                if isinstance(answer, Drained):
                    await asyncio.wait({watching})
        except TimeoutError:
            _log.warning("node %s doesn't end in time: it is killed", self.pid)
        except NodeError:
            return

    # ---- what is known of it

    @property
    def pid(self) -> int | None:
        """Its process; None: there is none just now."""
        return self._child.pid if self._child is not None else None

    @property
    def state(self) -> NodeState:
        """Where it is."""
        return self._state

    async def look(self) -> NodeLook:
        """What this machine allows; starts the keeper.

        Raises:
            NodeError: The node can't say.
        """
        await self.wait_ready()
        answer = await self.link.control(Look())
        if isinstance(answer, Looked) and self.pid is not None:
            return NodeLook(pid=self.pid, keeper_pid=answer.keeper_pid, probe=answer.probe)
        raise _refusal(answer)

    async def running_calls(self) -> tuple[RunningCall, ...]:
        """The tool calls that have processes now; none while there is no node."""
        try:
            answer = await self.link.control(ListCalls())
        except NodeError:
            return ()
        return answer.calls if isinstance(answer, CallsListed) else ()

    def _note(self, said: NodeMessage) -> None:
        if isinstance(said, KeeperStarted) and self._child is not None:
            self._child.follow_keeper(said.pid)

    def _move(self, trigger: NodeTrigger) -> None:
        self._state = next_node_state(self._state, trigger)

    # ---- its lives

    async def _watch(self, first: asyncio.Future[None]) -> None:
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                why = await self._live(first)
            except NodeError as error:
                why = error.message
            self._move(NodeTrigger.END)
            if not first.done():
                first.set_exception(NodeError(f"the node doesn't start: {why}", reason="unavailable"))
            if self._state is NodeState.CLOSED or first.exception() is not None:
                return
            steady = self._clock.monotonic() - began >= self._times.steady_s
            failures = 0 if steady else failures
            pause_s = self._times.pauses_s[min(failures, len(self._times.pauses_s) - 1)]
            failures += 1
            self.restarts += 1
            _log.warning(
                "the node has ended (%s); what ran there is lost. Another one is started%s",
                why,
                f" in {pause_s:g} s" if pause_s else "",
            )
            await self._clock.sleep(pause_s)
            if self._state is not NodeState.LOST:
                return
            self._move(NodeTrigger.START)

    async def _live(self, first: asyncio.Future[None]) -> str:
        """One life of it; how it ended, in words.

        Raises:
            NodeError: Its process can't be started.
        """
        async with NodeChild() as child:
            self._child = child
            try:
                problem = await self._carry(child, first)
                how = await child.wait(within_s=0.0 if problem else self._times.ready_within_s)
            finally:
                self._child = None
        return problem or how or "it had hung up, and was killed"

    async def _carry(self, child: NodeChild, first: asyncio.Future[None]) -> str | None:
        """Talk to it until the link ends; why it had to end, where that is known."""
        async with Wire(child.end) as wire, asyncio.TaskGroup() as group:
            self.link.use(wire)
            carrying = group.create_task(_settled(self.link.carry(wire)), name="what the node says")
            beating: asyncio.Task[None] | None = None
            problem = await self._start(child)
            if problem is None:
                self._tell_ready(child, first)
                beating = group.create_task(self._beat(child), name="the node's heartbeat")
                await asyncio.wait({carrying})
                beating.cancel()
            else:
                wire.close()
            await asyncio.wait({carrying})
            return problem or carrying.result()

    async def _start(self, child: NodeChild) -> str | None:
        """Tell it what it serves; why it can't, or None."""
        try:
            async with asyncio.timeout(self._times.start_s):
                answer = await self.link.control(self._setup)
        except TimeoutError:
            return "it doesn't say that it is ready"
        except NodeError as error:
            return error.message
        if isinstance(answer, Ready):
            return None
        if isinstance(answer, Unable) and answer.reason == "lost":
            return await child.wait(within_s=self._times.ready_within_s) or "it hung up"
        return _refusal(answer).message

    def _tell_ready(self, child: NodeChild, first: asyncio.Future[None]) -> None:
        self._move(NodeTrigger.ANSWER)
        if not first.done():
            first.set_result(None)
        else:
            _log.warning("the node is back (pid %d)", child.pid)

    async def _beat(self, child: NodeChild) -> None:
        """Kill it once it has said nothing for long, whatever it was asked.

        Beats are counted, not seconds: a machine that slept hasn't been let down by its node.
        """
        silent = 0
        while silent < self._times.silent_beats:
            await self._clock.sleep(self._times.beat_s)
            heard = self.link.heard
            try:
                async with asyncio.timeout(self._times.beat_s):
                    await self.link.control(Ping())
            except TimeoutError:
                pass
            except NodeError:
                return
            silent = silent + 1 if self.link.heard == heard else 0
        _log.warning("node %d doesn't answer any more: it is killed", child.pid)
        child.kill()


def _refusal(answer: NodeMessage) -> NodeError:
    if isinstance(answer, Unable):
        reason = "refused" if answer.reason == "too_large" else answer.reason
        return NodeError(answer.message, reason=reason)
    return NodeError(f"the node answered {answer.kind} where something else was due", reason="unavailable")


async def _settled(work: Coroutine[Any, Any, None]) -> str | None:
    """What went wrong, in words: a task group would end with an error."""
    try:
        await work
    except NodeError as error:
        return error.message
    return None
