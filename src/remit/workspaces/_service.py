"""The node's side of every request: it owns workspaces and runs tools, and answers only to its hosts."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self, assert_never

from remit.contract import (
    PROTOCOL_VERSION,
    ArtifactRequest,
    ArtifactStored,
    Cancelled,
    CancelRequest,
    CheckResult,
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
    StoppedCall,
    ToolRequest,
    ToolResponse,
)
from remit.errors import InternalError, NodeError, RemitError
from remit.primitives import Clock, Ids
from remit.workspaces._changes import Changes
from remit.workspaces._checkout import Checkout
from remit.workspaces._checks import CheckDefinition, CheckRun, compare, describe_broken, run_check
from remit.workspaces._collect import IgnoreMemory
from remit.workspaces._continuing import copy_kept, load_root, read_facts_of_copy, save_root
from remit.workspaces._delivery import Deliveries, DeliveryOrder, Recovered
from remit.workspaces._forking import changes_since, changes_to_take_over, note_fork, prepared_child
from remit.workspaces._keeper import Keeper
from remit.workspaces._mcp_settings import McpServer
from remit.workspaces._patch import PatchFolders
from remit.workspaces._pinning import Bases
from remit.workspaces._plugins import Plugins, WorkspacePlugins
from remit.workspaces._prepared import PreparedWorkspace, checkout_request
from remit.workspaces._preparing import Preparer
from remit.workspaces._protection import ignores_case
from remit.workspaces._receipts import Receipts
from remit.workspaces._service_answers import (
    already_ended,
    delivered_answer,
    failure,
    interrupted_answer,
    reason_of,
    snapshot_answer,
    tool_answer,
    tool_call,
)
from remit.workspaces._service_runs import (
    Activity,
    Interrupted,
    NodeRun,
    to_the_end,
)
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._snapshot import Bundle, RunFolder, take_snapshot
from remit.workspaces._sweeping import KEPT, sweep_node
from remit.workspaces._tool_commands import command_call_id
from remit.workspaces._tool_schemas import tools_for
from remit.workspaces._tools import ToolRunner
from remit.workspaces.keeper._storage import Storage, remove_tree
from remit.workspaces.keeper._tree import TreeTooLarge, record_tree

__all__ = ["NodeService"]

_FULL = {errno.ENOSPC, errno.EDQUOT}
_MAX_RECORDED = 2_000_000
_LEFTOVER_GRACE_MS = 2_000
_PUT_AWAY_S = 30


class NodeService:
    """Everything that hosts may ask of this node. Start it with `await NodeService.start(...)`.

    Requests may be handled at the same time; a slow one holds up no other. `opened_count` and
    `cleaned_up_count` only grow, and are equal when no run holds a checkout.
    """

    def __init__(
        self,
        workspaces: Sequence[WorkspaceSettings],
        *,
        data: Path,
        receipts: Receipts,
        clock: Clock,
        ids: Ids,
        environment: Mapping[str, str],
        allow_unconfined: bool,
        servers: Mapping[str, McpServer],
    ) -> None:
        self._workspaces = {settings.ref: settings for settings in workspaces}
        self._data = data
        self._receipts = receipts
        self._clock = clock
        self._environment = environment
        self._allow_unconfined = allow_unconfined
        self._bases = Bases(data, environment=environment)
        self._deliveries = Deliveries(data)
        self._plugins = Plugins(servers, clock=clock, environment=environment)
        self._preparer = Preparer(
            data,
            bases=self._bases,
            keeper=self.get_keeper,
            clock=clock,
            ids=ids,
            environment=environment,
            allow_unconfined=allow_unconfined,
            programs=self._plugins.programs,
        )
        self._scratch = data / "scratch" / ids.new("node")
        self._patch_folders = PatchFolders(self._scratch)
        self._keeper: Keeper | None = None
        self._keeper_lock = asyncio.Lock()
        self._runs: dict[str, NodeRun] = {}
        self.recovered: tuple[Recovered, ...] = ()
        """Deliveries that a crash had left half done, and what came of them."""
        self.opened_count = 0
        self.cleaned_up_count = 0

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

        Raises:
            StorageError: The receipts can't be opened.
        """
        data = await asyncio.to_thread(_make_data, data)
        receipts = await Receipts.open(data / "receipts.sqlite", clock=clock, ids=ids)
        service = cls(
            workspaces,
            data=data,
            receipts=receipts,
            clock=clock,
            ids=ids,
            environment=os.environ if environment is None else environment,
            allow_unconfined=allow_unconfined,
            servers=servers or {},
        )
        try:
            service.recovered = await asyncio.to_thread(service.deliveries.recover)
            await asyncio.to_thread(sweep_node, data, clock.now().timestamp())
        except BaseException:
            await receipts.aclose()
            raise
        return service

    @property
    def deliveries(self) -> Deliveries:
        """What was applied to trees of this node; also the way to undo it. Its methods block."""
        return self._deliveries

    async def get_keeper(self) -> Keeper:
        """The node's keeper, started when it is first needed, and anew when it has died.

        Raises:
            KeeperLost: It doesn't come up.
        """
        async with self._keeper_lock:
            if self._keeper is not None and not self._keeper.alive:
                dead, self._keeper = self._keeper, None
                await dead.aclose()
            if self._keeper is None:
                self._keeper = await Keeper.start(data=self._data)
            return self._keeper

    async def aclose(self) -> None:
        """End everything that runs here, remove the checkouts, close the store. Safe to call twice."""
        for run in list(self._runs.values()):
            await self._stop_all(run, grace_ms=0)
            await self._close(run, keep=False)
        self._runs.clear()
        if self._keeper is not None:
            await self._keeper.aclose()
            self._keeper = None
        await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)
        await self._receipts.aclose()

    # ---- requests

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
                return await self._prepare(request)
            case OpenRequest():
                return await self._open(request)
            case ArtifactRequest():
                return await self._artifact(request)
            case ToolRequest():
                return await self._tool(request)
            case CancelRequest():
                return await self._cancel(request)
            case ChecksRequest():
                return await self._checks(request)
            case SnapshotRequest():
                return await self._snapshot(request)
            case DeliverRequest():
                return await self._deliver(request)
            case CleanupRequest():
                return await self._cleanup(request)
            case _:
                assert_never(request)

    async def _enter(self, request: NodeRequest) -> NodeRun:
        """The run that a request is about, once its generation is known to be the newest."""
        now_s = self._clock.monotonic()
        run = self._runs.get(request.run_id)
        if run is None or run.generation != request.generation:
            await self._receipts.fence(request.run_id, request.generation)
            for idle in [other.run_id for other in self._runs.values() if other.is_idle(now_s)]:
                del self._runs[idle]
            made = NodeRun(request.run_id, request.generation, now_s, ignored=IgnoreMemory(self._scratch))
            run = self._runs.setdefault(request.run_id, made)
            run.generation = max(run.generation, request.generation)
        run.seen_s = now_s
        return run

    def _settings(self, ref: str) -> WorkspaceSettings:
        settings = self._workspaces.get(ref)
        if settings is None:
            raise NodeError(f"this node has no workspace {ref!r}", reason="unavailable")
        return settings

    # ---- prepare, open, artifact

    async def _prepare(self, request: PrepareRequest) -> Prepared:
        settings = self._settings(request.workspace_ref)
        run = await self._enter(request)
        with run.active(Activity(label="prepare")) as activity:
            if request.continues is not None:
                await activity.run(self._make_continuable(request.continues, request.timeout_ms))
            if request.parent is not None:
                prepared, plugins = self._prepare_child(request.parent)
            else:
                prepared = await activity.run(self._preparer.prepare(settings, request))
                plugins = await activity.run(self._list_plugins(prepared, request.timeout_ms))
        run.prepared, run.plugins = prepared, plugins
        folder = RunFolder.of(self._data, request.run_id).folder
        await asyncio.to_thread(save_root, folder, prepared.pin, settings.ref)
        return Prepared(
            run_id=request.run_id,
            generation=request.generation,
            base=prepared.pin.id,
            brief=prepared.brief.text,
            brief_sha256=prepared.brief.sha256,
            checks=tuple(state for _, state in prepared.checks),
            tools=(*tools_for(settings), *(tool.spec for tool in plugins.tools)),
            isolation=prepared.isolation,
            sandbox=prepared.sandbox,
            notes=(*prepared.notes, *plugins.notes),
            cached=prepared.cached,
        )

    def _prepare_child(self, parent_id: str) -> tuple[PreparedWorkspace, WorkspacePlugins]:
        """What a child starts from: everything that is known for its parent."""
        parent = self._get_parent(parent_id)
        prepared = prepared_child(parent_id, parent.get_prepared(), parent.checkout)
        return prepared, parent.plugins or WorkspacePlugins(commands={})

    def _get_parent(self, parent_id: str) -> NodeRun:
        parent = self._runs.get(parent_id)
        if parent is None:
            raise NodeError(f"run {parent_id} isn't known on this node", reason="lost")
        return parent

    async def _make_continuable(self, run_id: str, timeout_ms: int) -> None:
        """Wait until a run's checkout is put away, which it may be only after the run's terminal.

        Raises:
            NodeError: What it did was applied, so that a patch against its base can't be.
        """
        earlier = self._runs.get(run_id)
        if earlier is not None:
            async with asyncio.timeout(min(_PUT_AWAY_S, timeout_ms / 1000)):
                await earlier.put_away.wait()
        standing = await asyncio.to_thread(self._deliveries.find_standing, run_id)
        if standing:
            raise NodeError(
                f"what run {run_id} did was applied to the tree: start a new run in its session, or undo it "
                f"first ({', '.join(standing[:3])})",
                reason="refused",
            )

    async def _list_plugins(self, prepared: PreparedWorkspace, timeout_ms: int) -> WorkspacePlugins:
        async with asyncio.timeout(timeout_ms / 1000):
            return await self._plugins.list_tools(prepared, self._preparer)

    async def _open(self, request: OpenRequest) -> Opened:
        run = await self._enter(request)
        async with run.opening:
            if run.checkout is None:
                prepared = run.get_prepared()
                if (request.continues, request.parent) != (prepared.continues, prepared.parent):
                    raise NodeError("this run was prepared from another start", reason="refused")
                if prepared.pin.id != request.base:
                    raise NodeError(f"the base {request.base} isn't the prepared one", reason="refused")
                with run.active(Activity(label="open")) as activity:
                    await activity.run(self._make_checkout(run, prepared))
        checkout = run.checkout
        if checkout is None:
            raise InternalError("an opened checkout isn't there")
        return Opened(
            run_id=request.run_id,
            generation=request.generation,
            checkout_id=checkout.checkout_id,
            root=checkout.root,
            isolation=checkout.isolation,
            sandbox=checkout.sandbox,
            notes=checkout.notes,
        )

    async def _make_checkout(self, run: NodeRun, prepared: PreparedWorkspace) -> None:
        storage = self._data / "checkouts" / run.run_id
        is_new = not await asyncio.to_thread(storage.exists)
        try:
            checkout = await self._open_checkout(run, prepared, storage)
        except BaseException:
            if is_new:
                with suppress(OSError):
                    await asyncio.to_thread(remove_tree, storage)
            raise
        run.checkout = checkout
        run.put_away.clear()
        self.opened_count += 1
        if checkout.isolation != prepared.isolation:
            run.prepared = replace(prepared, isolation=checkout.isolation)
        if checkout.isolation == "copy":
            run.facts = await asyncio.to_thread(read_facts_of_copy, Storage(checkout.storage))
        elif checkout.isolation == "in_place":
            layer = str(run.layer)
            run.facts = await asyncio.to_thread(record_tree, layer, max_entries=_MAX_RECORDED)
        plugins = run.plugins
        run.servers = plugins.serve(checkout, clock=self._clock) if plugins is not None else None
        run.tools = ToolRunner(
            checkout,
            prepared.settings,
            self._receipts,
            self._clock,
            outputs=RunFolder.of(self._data, run.run_id).folder / "outputs",
            working_folder=prepared.subdir,
            servers=run.servers,
            plugins=plugins.tools if plugins is not None else (),
            child_changes=lambda child: asyncio.to_thread(
                changes_to_take_over, self._data, run.run_id, child
            ),
        )

    async def _fork(self, child: NodeRun, parent: NodeRun) -> Changes:
        """What a child starts with. Its parent waits in a call, so nothing but a server could write."""
        await parent.stop_servers()
        at_fork = await self._look(parent)
        folders = [RunFolder.of(self._data, run.run_id) for run in (child, parent)]
        await asyncio.to_thread(
            note_fork, folders[0], parent_id=parent.run_id, at_fork=at_fork, parent=folders[1]
        )
        return at_fork.changes

    async def _open_checkout(self, run: NodeRun, prepared: PreparedWorkspace, storage: Path) -> Checkout:
        keeper = await self.get_keeper()
        if prepared.parent is not None:
            run.fork = await self._fork(run, self._get_parent(prepared.parent))
        notes = () if prepared.kept is None else await copy_kept(prepared.kept, storage)
        wanted = await asyncio.to_thread(
            checkout_request,
            prepared,
            checkout_id=run.run_id,
            generation=run.generation,
            data=self._data,
            environment=self._environment,
            allow_unconfined=self._allow_unconfined,
        )
        checkout = await keeper.open(wanted)
        checkout.notes += notes
        return checkout

    async def _artifact(self, request: ArtifactRequest) -> ArtifactStored:
        await self._enter(request)
        stored = await self._receipts.store_artifact(request.run_id, request.name, request.text)
        return ArtifactStored(
            run_id=request.run_id, generation=request.generation, name=stored.name, sha256=stored.sha256
        )

    # ---- tools

    async def _tool(self, request: ToolRequest) -> ToolResponse:
        run = await self._enter(request)
        if run.tools is None:
            raise NodeError("this run has no checkout open on this node", reason="lost")
        # A call of an MCP server has no process of its own: the server is told that nobody waits any more.
        plugin = run.tools.is_plugin(request.name)
        activity = Activity(
            label=request.name,
            stage_id=request.stage_id,
            tool_call_id=request.tool_call_id,
            command_id=None if plugin else command_call_id(request.stage_id, request.tool_call_id),
            ends_as="notified" if plugin else "closed",
        )
        with run.active(activity):
            try:
                outcome = await activity.run(run.tools.run(tool_call(request)))
            except Interrupted:
                key = (request.run_id, request.stage_id, request.tool_call_id)
                return interrupted_answer(request, await self._receipts.find_receipt(key))
        return tool_answer(request, outcome)

    async def _cancel(self, request: CancelRequest) -> Cancelled:
        run = await self._enter(request)
        if request.tool_call_id is None:
            items = await self._stop_all(run, grace_ms=request.grace_ms)
            items += await run.stop_servers()
        else:
            activity = run.find(request.stage_id, request.tool_call_id)
            items = (
                already_ended(request)
                if activity is None
                else await activity.stop(run.checkout, grace_ms=request.grace_ms, clock=self._clock),
            )
        complete = all(activity.ended for activity in run.activities) or request.tool_call_id is not None
        return Cancelled(run_id=request.run_id, generation=request.generation, complete=complete, items=items)

    async def _stop_all(self, run: NodeRun, *, grace_ms: int) -> tuple[StoppedCall, ...]:
        """End whatever goes on for a run, all at once."""
        activities = sorted(run.activities, key=lambda activity: (activity.stage_id, activity.tool_call_id))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(activity.stop(run.checkout, grace_ms=grace_ms, clock=self._clock))
                for activity in activities
            ]
        return tuple(task.result() for task in tasks)

    # ---- checks, snapshot, deliver

    async def _checks(self, request: ChecksRequest) -> ChecksDone:
        run = await self._enter(request)
        prepared = run.get_prepared()
        deadline = self._clock.monotonic() + request.remaining_ms / 1000
        results: list[CheckResult] = []
        broken: list[str] = []
        for check, state in prepared.checks:
            left_ms = int((deadline - self._clock.monotonic()) * 1000)
            done = await self._run_check(run, check, left_ms)
            verdict = compare(prepared.settings.gate, state.base_exit, done.exit)
            if verdict == "worse":
                broken.append(describe_broken(check, state.base_exit, done))
            results.append(
                CheckResult(
                    id=check.id,
                    base_exit=state.base_exit,
                    exit=done.exit,
                    ms=None if done.exit is None else done.ms,
                    gate=verdict,
                )
            )
        return ChecksDone(
            run_id=request.run_id,
            generation=request.generation,
            checks=tuple(results),
            broken=tuple(broken),
        )

    async def _run_check(self, run: NodeRun, check: CheckDefinition, left_ms: int) -> CheckRun:
        checkout = run.get_checkout()
        settings = run.get_prepared().settings
        call_id = f"check/{check.id}"
        activity = Activity(label=f"check {check.id}", tool_call_id=call_id, command_id=call_id)
        timeout_ms = max(1, min(left_ms, settings.max_command_timeout_ms))
        with run.active(activity):
            work = run_check(checkout, check, call_id=call_id, timeout_ms=timeout_ms, settings=settings)
            done = await activity.run(work)
        if activity.interrupted:
            raise Interrupted(activity.label)
        return done

    async def _snapshot(self, request: SnapshotRequest) -> Snapshot:
        run = await self._enter(request)
        prepared = run.get_prepared()
        checkout = run.get_checkout()
        leftovers: list[str] = []
        if request.end_leftovers:
            ended = await self._stop_all(run, grace_ms=_LEFTOVER_GRACE_MS)
            await run.stop_servers()  # they are no leftovers: the next use starts them anew
            stopped = await checkout.stop(None, grace_ms=_LEFTOVER_GRACE_MS)
            leftovers = [item.label for item in (*ended, *stopped)]
        fork = run.fork
        bundle = await self._look(run, lambda changes: changes_since(changes, fork) if fork else changes)
        ignore_case = await asyncio.to_thread(ignores_case, Path(prepared.pin.root))
        return snapshot_answer(
            request, bundle, prepared.settings, ignore_case=ignore_case, leftovers=leftovers
        )

    async def _look(
        self, run: NodeRun, told: Callable[[Changes], Changes] = lambda changes: changes
    ) -> Bundle:
        """What a run's checkout holds now, against its base or as `told` makes it."""
        prepared = run.get_prepared()
        layer = run.layer
        scan = await asyncio.to_thread(run.scan)
        return await take_snapshot(
            self._bases.git,
            RunFolder.of(self._data, run.run_id),
            pin=prepared.pin,
            listing=prepared.listing,
            scan=scan,
            result=layer,
            folders=self._patch_folders,
            ignored=run.ignored,
            told=told,
        )

    async def _deliver(self, request: DeliverRequest) -> Delivered:
        await self._enter(request)
        settings = self._settings(request.workspace_ref)
        folder = RunFolder.of(self._data, request.run_id).folder
        root = await asyncio.to_thread(load_root, folder)
        if root is None:
            raise NodeError("this run never had a base on this node", reason="lost")
        order = DeliveryOrder(
            run_id=request.run_id,
            root=root,
            content_hash=request.content_hash,
            patch_sha256=request.patch_sha256,
            protected=settings.protected,
            frozen=settings.freeze,
            allow_protected=request.allow_protected,
        )
        outcome = await to_the_end(lambda: self._deliveries.deliver(order))
        return delivered_answer(request, outcome)

    # ---- the end

    async def _cleanup(self, request: CleanupRequest) -> CleanedUp:
        run = await self._enter(request)
        await self._stop_all(run, grace_ms=0)
        kept, problems = await self._close(run, keep=request.keep)
        self._runs.pop(request.run_id, None)
        return CleanedUp(
            run_id=request.run_id,
            generation=request.generation,
            kept=kept is not None,
            folder=None if kept is None else str(kept),
            abandoned=problems,
        )

    async def _close(self, run: NodeRun, *, keep: bool) -> tuple[Path | None, tuple[str, ...]]:
        """Remove a run's checkout, or keep its tree; returns where that is, and what couldn't be done."""
        async with run.opening:
            await run.stop_servers()
            checkout, run.checkout, run.tools, run.servers = run.checkout, None, None, None
            if checkout is None:
                return None, ()
            try:
                problems = await checkout.close(keep=keep)
                self.cleaned_up_count += 1
                if keep:
                    (checkout.storage / KEPT).touch()
                    return checkout.storage, problems
                await asyncio.to_thread(shutil.rmtree, checkout.storage, ignore_errors=True)
                return None, problems
            finally:
                run.put_away.set()


def _make_data(data: Path) -> Path:
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Path(os.path.realpath(data))
