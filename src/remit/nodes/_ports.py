"""What a run asks its node, and what answers on the node's side."""

from __future__ import annotations

from typing import Protocol

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
