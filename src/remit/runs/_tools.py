"""A run's hands: the checkout, and the tool calls in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from remit.contract import (
    AbandonedWork,
    ArtifactRequest,
    CancelRequest,
    CheckoutOpened,
    CleanedUp,
    CleanupRequest,
    Delivered,
    DeliverRequest,
    How,
    Opened,
    OpenRequest,
    Prepared,
    Snapshot,
    SnapshotRequest,
    StoppedCall,
    ToolRequest,
    ToolResponse,
    WorkKind,
)
from remit.errors import NodeError
from remit.events import NewEvent
from remit.nodes import NodeLink
from remit.runs._context import RunContext
from remit.runs._journal import RunJournal
from remit.runs._shield import despite_cancel
from remit.runs._work import RunWork, WorkItem
from remit.stages import ToolUse
from remit.work import CancelToken, ObservedStage, Residency
from remit.workspaces import DELEGATE


class _StopOnce:
    """Stops one call once, whoever asks first: the registry's handle, or the task that waits for the call."""

    def __init__(self, stop: Callable[[], Coroutine[Any, Any, StoppedCall | None]]) -> None:
        self._stop = stop
        self.on_begin: Callable[[], object] = lambda: None
        """Called when it is stopped."""
        self._answer: asyncio.Future[StoppedCall | None] | None = None

    async def __call__(self) -> StoppedCall | None:
        """How the call was stopped; None when it had ended. Later callers wait for the first one's answer.

        Raises:
            NodeError: Nobody can say whether it has ended; every caller is told so.
        """
        if self._answer is not None:
            return await asyncio.shield(self._answer)
        self._answer = asyncio.get_running_loop().create_future()
        self.on_begin()
        try:
            stopped = await self._stop()
        except NodeError as error:
            self._answer.set_exception(error)
            self._answer.exception()  # looked at here: often nobody else asks
            raise
        except BaseException:
            self._answer.set_result(None)
            raise
        self._answer.set_result(stopped)
        return stopped


async def _stop_when(token: CancelToken, stop: _StopOnce) -> None:
    """Stop a call once its token is tripped; a node that can't be asked is found out by who waits for it."""
    await token.wait()
    with suppress(NodeError):
        await stop()


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})


class Delegates(Protocol):
    """Who starts the child runs of a run."""

    async def call(self, use: ToolUse, *, max_shown_bytes: int) -> ToolResponse:
        """Do one call. Cancellation: the child has its terminal before the cancel goes on."""
        ...


class RunTools:
    """Everything that a run asks of its node.

    The checkout opens when it is first needed, once; cleanup is owed exactly when its open was sent.
    """

    def __init__(self, context: RunContext, journal: RunJournal, work: RunWork, link: NodeLink) -> None:
        self._context = context
        self._journal = journal
        self._work = work
        self._link = link
        self._opening = asyncio.Lock()
        self._prepared: Prepared | None = None
        self.opened: Opened | None = None
        self.cleaned_up = False
        self.checkout: Residency | None = None
        """Held from when open was sent until the checkout is put away; None: open was never sent."""
        self.unstopped: list[AbandonedWork] = []
        """Calls that never answered a stop: abandoned, unless all of the run is stopped later."""
        self.remaining_s: Callable[[], float | None] = lambda: None
        """What stage and run have left; set by the pipeline for each stage."""
        self.delegation: Delegates | None = None
        """Who starts child runs; None: nobody may."""

    def left_s(self) -> float | None:
        """What stage and run have left now."""
        return self.remaining_s()

    def use_base(self, prepared: Prepared) -> None:
        """The base that `open` starts from."""
        self._prepared = prepared

    @property
    def has_checks(self) -> bool:
        """Whether the workspace has checks of its own, which may take long."""
        return self._prepared is not None and bool(self._prepared.checks)

    # ---- the checkout

    async def ensure_open(self) -> None:
        """Open the checkout unless it is open.

        Raises:
            NodeError: It can't be opened.

        Cancellation: the open was sent or not; `checkout` tells, and the cleanup follows it.
        """
        async with self._opening:
            if self.opened is None:
                await self._open()

    async def _open(self) -> None:
        prepared = self._prepared
        view = self._journal.view
        if prepared is None or view.workspace is None:
            raise NodeError("the workspace was never prepared", reason="unavailable")
        request = OpenRequest(
            run_id=self._context.stored.outside_id,
            generation=self._context.stored.generation,
            workspace_ref=view.workspace.ref,
            base=prepared.base,
            subdir=self._subdir,
            isolation=prepared.isolation,
            continues=self._context.stored.outside_continues,
            parent=parent.node_run_id if (parent := self._context.parentage) is not None else None,
        )
        beginning = ObservedStage.DISPATCH
        with self._work.item(WorkKind.NODE_CALL, "open", name="open", noted=False, at=beginning) as item:
            async with self._on_record(item):
                self.checkout = self._work.residencies.acquire("checkout")
                item.see(ObservedStage.RECEIPT_WAIT)
                self.opened = await self._link.open(request)
        self._journal.hold(
            NewEvent(
                type="checkout.opened",
                payload=CheckoutOpened(
                    checkout_id=self.opened.checkout_id,
                    root=self.opened.root,
                    isolation=self.opened.isolation,
                    sandbox=self.opened.sandbox,
                ),
                work_id=item.work_id,
            ),
            item.finished(),
        )

    @asynccontextmanager
    async def _on_record(self, item: WorkItem) -> AsyncGenerator[None]:
        """Record that work begins; and that it ended where it is cut off. Whoever goes on records its end."""
        begun = False
        try:
            try:
                await self._journal.append(item.registered())
            except asyncio.CancelledError as cancel:
                begun = cancel.__cause__ is None  # a cause says that it couldn't be stored
                raise
            begun = True
            yield
        except BaseException:
            if begun:
                item.see(ObservedStage.RETIREMENT)
                await despite_cancel(self._journal.append(item.finished()))
            raise

    @property
    def _subdir(self) -> str:
        asked = self._context.stored.request.workspace
        return (asked.subdir if asked else None) or ""

    # ---- tool calls

    async def call(self, use: ToolUse, *, max_shown_bytes: int) -> ToolResponse:
        """Do one tool call.

        Raises:
            NodeError: The node is lost, or can't open the checkout.

        Cancellation: the call is stopped on the node, down to its last process, before the cancel goes on.
        """
        await self.ensure_open()
        if self.delegation is not None and use.name == DELEGATE.name:
            return await self.delegation.call(use, max_shown_bytes=max_shown_bytes)
        limits = self._journal.view.limits
        left = self.remaining_s()
        request = ToolRequest(
            run_id=self._context.stored.outside_id,
            generation=self._context.stored.generation,
            stage_id=use.stage_id,
            tool_call_id=use.tool_call_id,
            name=use.name,
            arguments=use.arguments,
            timeout_ms=limits.tool_timeout_ms,
            remaining_ms=limits.wall_clock_ms if left is None else max(1, int(left * 1000)),
            max_shown_bytes=max_shown_bytes,
        )
        stop = _StopOnce(lambda: self._stop(use))
        plugin = self._plugin_of(use.name)
        if plugin is not None:
            return await self._invoke(use, request, plugin, stop)
        with self._work.tool(use, stop=stop) as item:
            return await self._ask(request, item, stop, ended_as="term")

    async def _invoke(self, use: ToolUse, request: ToolRequest, plugin: str, stop: _StopOnce) -> ToolResponse:
        """Do a call of an MCP server's tool; a cancel trips a token, upon which the node tells the server."""
        token = CancelToken()
        with self._work.invocation(use, plugin_id=plugin, token=token) as item:
            watching = asyncio.get_running_loop().create_task(_stop_when(token, stop))
            try:
                return await self._ask(request, item, stop, ended_as="notified")
            finally:
                if not token.tripped:
                    watching.cancel()
                await despite_cancel(_ended(watching))

    async def _ask(
        self, request: ToolRequest, item: WorkItem, stop: _StopOnce, *, ended_as: How
    ) -> ToolResponse:
        stop.on_begin = lambda: item.see(ObservedStage.CLEANUP)
        item.see(ObservedStage.RECEIPT_WAIT)
        try:
            response = await self._link.tool(request)
        except asyncio.CancelledError:
            await despite_cancel(self._see_stopped(item, stop))
            raise
        if response.status == "cancelled":
            item.how = ended_as
        return response

    async def _see_stopped(self, item: WorkItem, stop: _StopOnce) -> None:
        """Stop a call, and say how it ended: here, since whoever waits may be cancelled once more.

        Raises:
            NodeError: It was asked to end, and nobody can say that it has: the run's own end finds out.
        """
        try:
            stopped = await stop()
        except NodeError:
            item.how = "notified"
            named = AbandonedWork(work_id=item.work_id, kind=item.kind.value, label=item.label)
            self.unstopped.append(named)
            raise
        if stopped is not None:
            item.how, item.pids = stopped.how, stopped.pids

    async def take_over(self, request: ToolRequest, item: WorkItem) -> ToolResponse:
        """Put a child's changes into this run's checkout, as the one effect of the call that started it."""
        use = ToolUse(
            stage_id=request.stage_id,
            tool_call_id=request.tool_call_id,
            name=request.name,
            arguments=request.arguments,
        )
        return await self._ask(request, item, _StopOnce(lambda: self._stop(use)), ended_as="closed")

    def _plugin_of(self, name: str) -> str | None:
        """The MCP server whose tool this is; None: it is the workspace's own."""
        specs = self._prepared.tools if self._prepared is not None else ()
        return next((spec.plugin for spec in specs if spec.name == name), None)

    async def _stop(self, use: ToolUse) -> StoppedCall | None:
        """Stop one call on the node; answers when its processes are gone.

        Raises:
            NodeError: The node couldn't be asked, or hasn't answered in the time that a stop may take.
        """
        request = CancelRequest(
            run_id=self._context.stored.outside_id,
            generation=self._context.stored.generation,
            stage_id=use.stage_id,
            tool_call_id=use.tool_call_id,
            grace_ms=self._context.times.cancel_grace_ms,
        )
        try:
            async with asyncio.timeout(self._context.times.stop_within_s):
                answer = await self._link.cancel(request)
        except TimeoutError:
            raise NodeError("the node didn't answer in time", reason="unavailable") from None
        return answer.items[0] if answer.items else None

    # ---- the other operations

    async def store_artifact(self, name: str, text: str) -> None:
        """Give a named text of the run to the node."""
        request = ArtifactRequest(
            run_id=self._context.stored.outside_id,
            generation=self._context.stored.generation,
            name=name,
            text=text,
        )
        with self._work.item(WorkKind.NODE_CALL, f"artifact {name}", name=f"artifact-{name}"):
            await self._link.artifact(request)

    async def snapshot(self, *, end_leftovers: bool = False) -> Snapshot:
        """What the checkout holds now."""
        request = SnapshotRequest(
            run_id=self._context.stored.outside_id,
            generation=self._context.stored.generation,
            end_leftovers=end_leftovers,
        )
        with self._work.item(WorkKind.NODE_CALL, "snapshot", name="snapshot"):
            return await self._link.snapshot(request)

    async def deliver(
        self,
        snapshot: Snapshot,
        *,
        allow_protected: bool,
        unreviewed: bool,
        branch: str | None = None,
        message: str = "",
    ) -> Delivered:
        """Put the snapshot's patch into the user's tree, or on a new branch."""
        view = self._journal.view
        if view.workspace is None:
            raise NodeError("there is no tree to deliver to", reason="unavailable")
        request = DeliverRequest(
            run_id=self._context.stored.outside_id,
            generation=self._context.stored.generation,
            workspace_ref=view.workspace.ref,
            patch_sha256=snapshot.patch_sha256,
            content_hash=snapshot.content_hash,
            allow_protected=allow_protected,
            unreviewed=unreviewed,
            branch=branch,
            message=message,
        )
        with self._work.item(WorkKind.NODE_CALL, "deliver", name="deliver", residency="delivery"):
            return await self._link.deliver(request)

    async def stop_all(self) -> tuple[StoppedCall, ...]:
        """End every process of the run on the node."""
        answer = await self._link.cancel(
            CancelRequest(
                run_id=self._context.stored.outside_id,
                generation=self._context.stored.generation,
                grace_ms=self._context.times.cancel_grace_ms,
            )
        )
        if not answer.complete:
            raise NodeError("the node couldn't end every process of the run", reason="unavailable")
        return answer.items

    async def cleanup(self, *, keep: bool) -> CleanedUp | None:
        """Remove or keep the checkout; None when no open was ever sent, or it is done already."""
        if self.checkout is None or self.cleaned_up:
            return None
        request = CleanupRequest(
            run_id=self._context.stored.outside_id, generation=self._context.stored.generation, keep=keep
        )
        with self._work.item(WorkKind.NODE_CALL, "cleanup", name="cleanup", at=ObservedStage.CLEANUP):
            answer = await self._link.cleanup(request)
        self.cleaned_up = True
        self.checkout.release()
        return answer
