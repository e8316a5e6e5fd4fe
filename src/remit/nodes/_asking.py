"""What every link does alike: a waiter for each question, a type for each answer, a word for each fault."""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from typing import Any, TypeVar

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
from remit.nodes._ports import NodeHandler
from remit.nodes._waiters import Waiters, WaitKey

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class AskingLink(ABC):
    """The host's end of a link, whatever carries it. Implements `NodeLink`."""

    def __init__(self, *, node_id: str) -> None:
        self.node_id = node_id
        self.waiters = Waiters()
        self._numbers = itertools.count(1)

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
        number = next(self._numbers)
        key = _key_of(request, number)
        future = self.waiters.expect(key)
        try:
            self._send(number, key, request)
            return _typed(await future, shape)
        finally:
            self.waiters.forget(key)

    @abstractmethod
    def _send(self, number: int, key: WaitKey, request: NodeRequest) -> None:
        """Put a question on its way; its answer is handed to the waiter.

        Raises:
            NodeError: It can't be sent.
        """


async def answer_of(handler: NodeHandler, request: NodeRequest, *, node_id: str) -> NodeResponse:
    """What a node answers; a fault of its own is a `NodeFailure`: it must not end other calls."""
    try:
        return await handler.handle(request)
    except Exception as error:  # noqa: BLE001 - one call's fault must not end the others
        _log.exception("node %s: %s failed", node_id, request.kind)
        return failure_of(request, f"the node failed: {type(error).__name__}")


def failure_of(request: NodeRequest, message: str) -> NodeFailure:
    """What a request is answered that nothing came of."""
    return NodeFailure(
        run_id=request.run_id, generation=request.generation, reason="unavailable", message=message
    )


def _key_of(request: NodeRequest, number: int) -> WaitKey:
    if isinstance(request, ToolRequest):
        return WaitKey(request.run_id, "tool", request.stage_id, request.tool_call_id)
    return WaitKey(request.run_id, f"{request.kind} {number}")


def _typed(response: Any, shape: type[_Answer]) -> _Answer:
    if isinstance(response, NodeFailure):
        if response.reason == "stale_generation":
            raise StaleGeneration(response.message, run_id=response.run_id)
        # A run's end has no word of its own for what is too large: the node refused it.
        reason = "refused" if response.reason == "too_large" else response.reason
        raise NodeError(response.message, reason=reason)
    if not isinstance(response, shape):
        raise InternalError(f"a node answered {type(response).__name__} where {shape.__name__} was due")
    return response
