"""The node's side of every request: it owns workspaces and runs tools, and answers only to its hosts."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Self, assert_never

from remit.contract import (
    PROTOCOL_VERSION,
    ArtifactRequest,
    CancelRequest,
    ChecksRequest,
    CleanupRequest,
    DeliverRequest,
    NodeRequest,
    NodeResponse,
    OpenRequest,
    PrepareRequest,
    SnapshotRequest,
    ToolRequest,
)
from remit.errors import NodeError, RemitError
from remit.primitives import Clock, Ids
from remit.workspaces._branching import recover_branches
from remit.workspaces._delivery import Deliveries, DeliveryOrder, Recovered
from remit.workspaces._keeper import Keeper
from remit.workspaces._kept import KeepLimits
from remit.workspaces._mcp_settings import McpServer
from remit.workspaces._merging import Merged, merge_run
from remit.workspaces._owner import NodeOwner
from remit.workspaces._receipts import Receipts
from remit.workspaces._service_answers import failure, reason_of
from remit.workspaces._service_calls import cancel_calls, run_tool, store_artifact
from remit.workspaces._service_checking import run_checks
from remit.workspaces._service_ending import clean_up_run, close_run, deliver_run
from remit.workspaces._service_looking import snapshot_run
from remit.workspaces._service_opening import open_run
from remit.workspaces._service_parts import NodeParts
from remit.workspaces._service_preparing import prepare_run
from remit.workspaces._service_running import RunningCall, find_running
from remit.workspaces._service_runs import Interrupted, stop_all, to_the_end
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._sweeping import sweep_node
from remit.workspaces._taking import take_in_thread
from remit.workspaces.keeper._tree import TreeTooLarge

__all__ = ["NodeService"]

_MERGED_WITHIN_MS = 1_800_000

_FULL = {errno.ENOSPC, errno.EDQUOT}


class NodeService:
    """Everything that hosts may ask of this node. Start it with `await NodeService.start(...)`.

    Requests may be handled at the same time; a slow one holds up no other.
    """

    def __init__(self, parts: NodeParts, *, keep: KeepLimits) -> None:
        self._parts = parts
        self._keep = keep
        self.recovered: tuple[Recovered, ...] = ()
        """Deliveries that a crash had left half done, and what came of them."""

    @classmethod
    async def start(
        cls,
        workspaces: Sequence[WorkspaceSettings],
        *,
        data: Path,
        clock: Clock,
        ids: Ids,
        environment: Mapping[str, str] | None = None,
        allow_unconfined: bool = False,
        servers: Mapping[str, McpServer] | None = None,
        keep: KeepLimits | None = None,
        on_keeper: Callable[[int], object] | None = None,
    ) -> Self:
        """Open the node's store and put right what an earlier process left half done.

        Args:
            workspaces: What this node serves.
            data: Its data folder; made if it isn't there.
            clock: Where time comes from.
            ids: Where ids come from.
            environment: Of whoever works on this machine; None: this process's.
            allow_unconfined: Whether `sandbox = "none"` was allowed.
            servers: MCP servers that workspaces may name.
            keep: How much is kept of ended runs; None: the default.
            on_keeper: Told the pid of each keeper that is started: all processes of runs hang on it.

        Raises:
            StorageError: The receipts can't be opened.

        Cancellation: what was opened is closed again.
        """
        data = await asyncio.to_thread(_make_data, data)
        async with AsyncExitStack() as opened:
            receipts = await Receipts.open(data / "receipts.sqlite", clock=clock, ids=ids)
            opened.push_async_callback(receipts.aclose)
            owner = await take_in_thread(partial(NodeOwner.take, data, ids.new("node")), NodeOwner.release)
            opened.callback(owner.release)
            parts = NodeParts(
                workspaces,
                data=data,
                owner=owner,
                receipts=receipts,
                clock=clock,
                ids=ids,
                environment=os.environ if environment is None else environment,
                allow_unconfined=allow_unconfined,
                servers=servers or {},
                on_keeper=on_keeper,
            )
            service = cls(parts, keep=keep or KeepLimits())
            service.recovered = await to_the_end(service.deliveries.recover)
            await to_the_end(partial(recover_branches, data))
            await service.sweep()
            opened.pop_all()
        return service

    @property
    def deliveries(self) -> Deliveries:
        """What was applied to trees of this node; also the way to undo it. Its methods block."""
        return self._parts.deliveries

    async def merge(
        self,
        workspace_ref: str,
        order: DeliveryOrder,
        *,
        subdir: str = "",
        timeout_ms: int = _MERGED_WITHIN_MS,
    ) -> Merged:
        """Merge a run's changes into a tree that has moved on, check, and apply; for a person who asks.

        Raises:
            NodeError: There is no such workspace, the changes aren't kept, or they can't be written.
            TimeoutError: The checks took too long; nothing was applied.

        Cancellation: before the delivery nothing is changed; from there on it is done whole.
        """
        settings = self._parts.get_settings(workspace_ref)
        return await merge_run(self._parts, settings, order, subdir=subdir, timeout_ms=timeout_ms)

    @property
    def opened_count(self) -> int:
        """Checkouts opened so far; equal to `cleaned_up_count` when no run holds one."""
        return self._parts.opened_count

    @property
    def cleaned_up_count(self) -> int:
        """Checkouts removed or put away so far."""
        return self._parts.cleaned_up_count

    async def get_keeper(self) -> Keeper:
        """The node's keeper, started when it is first needed, and anew when it has died.

        Raises:
            KeeperLost: It doesn't come up.
        """
        return await self._parts.get_keeper()

    async def running_calls(self) -> tuple[RunningCall, ...]:
        """The tool calls that have processes now."""
        return await find_running(list(self._parts.runs.values()))

    async def sweep(self) -> None:
        """Remove what nobody needs any more: at the start and, in a node that lives long, now and then."""
        now_s = self._parts.clock.now().timestamp()
        await asyncio.to_thread(sweep_node, self._parts.data, now_s, keep=self._keep)

    async def abandon(self) -> None:
        """End every process that runs here, at once, and leave the checkouts to whoever comes next."""
        await self._parts.close_keeper()

    async def aclose(self) -> None:
        """End everything that runs here, remove the checkouts, close the store. Safe to call twice."""
        node = self._parts
        for run in list(node.runs.values()):
            await stop_all(run, clock=node.clock, grace_ms=0)
            await close_run(node, run, keep=False)
        node.runs.clear()
        await node.close_keeper()
        await asyncio.to_thread(shutil.rmtree, node.scratch, ignore_errors=True)
        await node.receipts.aclose()
        node.owner.release()

    async def handle(self, request: NodeRequest) -> NodeResponse:
        """Answer one request; what can't be done is a `NodeFailure`.

        Cancellation: what was begun is ended first; a delivery is finished.
        """
        try:
            if request.version != PROTOCOL_VERSION:
                raise NodeError(f"this node speaks version {PROTOCOL_VERSION}", reason="refused")
            return await self._dispatch(request)
        except Interrupted:
            return failure(request, "unavailable", "it was cancelled")
        except TimeoutError:
            return failure(request, "unavailable", f"{request.kind} took too long")
        except OSError as error:
            reason = "storage_full" if error.errno in _FULL else "unavailable"
            return failure(request, reason, f"{request.kind}: {error.strerror or error}")
        except TreeTooLarge as error:
            return failure(request, "too_large", str(error))
        except RemitError as error:
            return failure(request, reason_of(error), error.message)

    async def _dispatch(self, request: NodeRequest) -> NodeResponse:
        match request:
            case PrepareRequest():
                return await prepare_run(self._parts, request)
            case OpenRequest():
                return await open_run(self._parts, request)
            case ArtifactRequest():
                return await store_artifact(self._parts, request)
            case ToolRequest():
                return await run_tool(self._parts, request)
            case CancelRequest():
                return await cancel_calls(self._parts, request)
            case ChecksRequest():
                return await run_checks(self._parts, request)
            case SnapshotRequest():
                return await snapshot_run(self._parts, request)
            case DeliverRequest():
                return await deliver_run(self._parts, request)
            case CleanupRequest():
                return await clean_up_run(self._parts, request)
            case _:
                assert_never(request)


def _make_data(data: Path) -> Path:
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Path(os.path.realpath(data))
