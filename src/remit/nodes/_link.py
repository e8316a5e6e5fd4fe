"""A host's link to one node: typed questions out, typed answers in."""

from __future__ import annotations

import asyncio
import itertools
import logging
from types import TracebackType
from typing import Any, Protocol, TypeVar

from remit.contract import (
    ArtifactRequest,
    ArtifactStored,
    Cancelled,
    CancelRequest,
    ChecksDone,
    ChecksRequest,
    CleanedUp,
    CleanupRequest,
    Delivered,
    DeliverRequest,
    NodeFailure,
    NodeRequest,
    NodeResponse,
    Opened,
    OpenRequest,
    Prepared,
    PrepareRequest,
    Snapshot,
    SnapshotRequest,
    ToolRequest,
    ToolResponse,
)
from remit.errors import InternalError, NodeError, StaleGeneration
from remit.nodes._waiters import Waiters, WaitKey

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class NodeHandler(Protocol):
    """The node's side of a link."""

    async def handle(self, request: NodeRequest) -> NodeResponse:
        """Answer one request; a fault of the node's own is a `NodeFailure`, never an exception."""
        ...


class NodeLink(Protocol):
    """What a run asks its node.

    Every method raises `NodeError` when the node can't do it or is lost, and `StaleGeneration` when another
    host owns the run. Cancellation: the waiter is gone at once and a late answer is dropped; the node goes
    on with what it was asked until it is told to `cancel`.
    """

    node_id: str

    async def prepare(self, request: PrepareRequest) -> Prepared:
        """Pin the base, make the brief, run the checks on the base."""
        ...

    async def open(self, request: OpenRequest) -> Opened:
        """Make the run's checkout."""
        ...

    async def artifact(self, request: ArtifactRequest) -> ArtifactStored:
        """Store a named text of the run."""
        ...

    async def tool(self, request: ToolRequest) -> ToolResponse:
        """Use one tool once."""
        ...

    async def cancel(self, request: CancelRequest) -> Cancelled:
        """Stop one tool call, or all of a run's; answers when the processes are gone."""
        ...

    async def checks(self, request: ChecksRequest) -> ChecksDone:
        """Run the checks on the checkout."""
        ...

    async def snapshot(self, request: SnapshotRequest) -> Snapshot:
        """What the checkout holds now."""
        ...

    async def deliver(self, request: DeliverRequest) -> Delivered:
        """Put a reviewed patch into the user's tree."""
        ...

    async def cleanup(self, request: CleanupRequest) -> CleanedUp:
        """Remove or keep the checkout."""
        ...

    def pending_count(self, run_id: str | None = None) -> int:
        """Answers that are waited for, of one run or of all."""
        ...


class InProcessLink:
    """The link to the node that lives in the host's own process.

    The node's work is owned by this link, not by who asked: a caller that goes away drops its waiter, and the
    node goes on until it is told to cancel, exactly as over a wire.
    """

    def __init__(self, handler: NodeHandler, *, node_id: str = "local") -> None:
        self.node_id = node_id
        self.waiters = Waiters()
        self._handler = handler
        self._numbers = itertools.count(1)
        self._group: asyncio.TaskGroup | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> InProcessLink:
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group, self._group = self._group, None
        if group is not None:
            for task in self._serving:
                task.cancel()  # nobody is left to hear the answer, or to say stop
            await group.__aexit__(None, None, None)  # an error of the block's stays what it is

    def pending_count(self, run_id: str | None = None) -> int:
        """Answers that are waited for, of one run or of all."""
        return self.waiters.pending_count(run_id)

    async def prepare(self, request: PrepareRequest) -> Prepared:
        """Pin the base, make the brief, run the checks on the base."""
        return await self._ask(request, Prepared)

    async def open(self, request: OpenRequest) -> Opened:
        """Make the run's checkout."""
        return await self._ask(request, Opened)

    async def artifact(self, request: ArtifactRequest) -> ArtifactStored:
        """Store a named text of the run."""
        return await self._ask(request, ArtifactStored)

    async def tool(self, request: ToolRequest) -> ToolResponse:
        """Use one tool once."""
        return await self._ask(request, ToolResponse)

    async def cancel(self, request: CancelRequest) -> Cancelled:
        """Stop one tool call, or all of a run's."""
        return await self._ask(request, Cancelled)

    async def checks(self, request: ChecksRequest) -> ChecksDone:
        """Run the checks on the checkout."""
        return await self._ask(request, ChecksDone)

    async def snapshot(self, request: SnapshotRequest) -> Snapshot:
        """What the checkout holds now."""
        return await self._ask(request, Snapshot)

    async def deliver(self, request: DeliverRequest) -> Delivered:
        """Put a reviewed patch into the user's tree."""
        return await self._ask(request, Delivered)

    async def cleanup(self, request: CleanupRequest) -> CleanedUp:
        """Remove or keep the checkout."""
        return await self._ask(request, CleanedUp)

    async def _ask(self, request: NodeRequest, shape: type[_Answer]) -> _Answer:
        if self._group is None:
            raise NodeError("the link to the node is closed", reason="lost")
        key = self._key(request)
        future = self.waiters.expect(key)
        try:
            self._start(self._group, key, request)
            return _typed(await future, shape)
        finally:
            self.waiters.forget(key)

    def _start(self, group: asyncio.TaskGroup, key: WaitKey, request: NodeRequest) -> None:
        task = group.create_task(self._serve(key, request), name=f"node {request.kind} {request.run_id}")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, key: WaitKey, request: NodeRequest) -> None:
        try:
            response = await self._handler.handle(request)
        except Exception as error:  # noqa: BLE001 - one call's fault must not end the others
            _log.exception("node %s: %s failed", self.node_id, request.kind)
            response = NodeFailure(
                run_id=request.run_id,
                reason="unavailable",
                message=f"the node failed: {type(error).__name__}",
            )
        self.waiters.deliver(key, response)

    def _key(self, request: NodeRequest) -> WaitKey:
        if isinstance(request, ToolRequest):
            return WaitKey(request.run_id, "tool", request.stage_id, request.tool_call_id)
        return WaitKey(request.run_id, f"{request.kind} {next(self._numbers)}")


def _typed(response: Any, shape: type[_Answer]) -> _Answer:
    if isinstance(response, NodeFailure):
        if response.reason == "stale_generation":
            raise StaleGeneration(response.message, run_id=response.run_id)
        raise NodeError(response.message, reason=response.reason)
    if not isinstance(response, shape):
        raise InternalError(f"a node answered {type(response).__name__} where {shape.__name__} was due")
    return response
