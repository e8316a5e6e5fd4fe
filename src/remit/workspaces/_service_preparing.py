"""Answers `prepare`: what a run starts from is pinned, read and checked before it starts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from remit.contract import Prepared, PrepareRequest
from remit.errors import NodeError
from remit.workspaces._continuing import save_root
from remit.workspaces._forking import prepared_child
from remit.workspaces._plugins import WorkspacePlugins
from remit.workspaces._prepared import PreparedWorkspace
from remit.workspaces._service_parts import NodeParts
from remit.workspaces._service_runs import Activity
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._snapshot import RunFolder
from remit.workspaces._tool_schemas import tools_for

__all__ = ["prepare_run"]


_PUT_AWAY_S = 30


async def prepare_run(node: NodeParts, request: PrepareRequest) -> Prepared:
    """Make all that an open needs, and tell what is there."""
    settings = node.get_settings(request.workspace_ref)
    if request.dry:
        return await _look_only(node, settings, request)
    run = await node.enter(request)
    with run.active(Activity(label="prepare")) as activity:
        if request.continues is not None:
            await activity.run(_make_continuable(node, request.continues, request.timeout_ms))
        if request.parent is not None:
            prepared, plugins = await _prepare_child(node, request.parent)
        else:
            prepared = await activity.run(node.preparer.prepare(settings, request))
            plugins = await activity.run(_list_plugins(node, prepared, request.timeout_ms))
    if request.branch is not None:
        await _require_branch(node, prepared, request.branch)
    run.prepared, run.plugins = prepared, plugins
    folder = RunFolder.of(node.data, request.run_id).folder
    await asyncio.to_thread(save_root, folder, prepared.pin, settings.ref)
    return _answer(request, prepared, plugins)


async def _look_only(node: NodeParts, settings: WorkspaceSettings, request: PrepareRequest) -> Prepared:
    """What a run would start from."""
    if request.continues is not None:
        await _make_continuable(node, request.continues, request.timeout_ms)
    prepared = await node.preparer.look(settings, request)
    if request.branch is not None:
        await _require_branch(node, prepared, request.branch)
    return _answer(request, prepared, WorkspacePlugins(commands={}))


def _answer(request: PrepareRequest, prepared: PreparedWorkspace, plugins: WorkspacePlugins) -> Prepared:
    settings = prepared.settings
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


async def _require_branch(node: NodeParts, prepared: PreparedWorkspace, branch: str) -> None:
    """Refuse a branch that can't be made before anything is spent.

    Raises:
        NodeError: There is no repository, or the name is taken.
    """
    if not prepared.pin.has_repository:
        raise NodeError(f"{prepared.pin.root} isn't a git repository: there can't be a branch in it")
    await (await node.get_branches()).require_free(Path(prepared.pin.root), branch)


async def _prepare_child(node: NodeParts, parent_id: str) -> tuple[PreparedWorkspace, WorkspacePlugins]:
    """What a child starts from: everything that is known for its parent."""
    parent = node.get_parent(parent_id)
    if parent.checkout is not None:
        await parent.checkout.wake()  # it is copied
    prepared = prepared_child(parent_id, parent.get_prepared(), parent.checkout)
    return prepared, parent.plugins or WorkspacePlugins(commands={})


async def _make_continuable(node: NodeParts, run_id: str, timeout_ms: int) -> None:
    """Wait until a run's checkout is put away, which it may be only after the run's terminal.

    Raises:
        NodeError: What it did was applied, so that a patch against its base can't be.
    """
    earlier = node.runs.get(run_id)
    if earlier is not None:
        async with asyncio.timeout(min(_PUT_AWAY_S, timeout_ms / 1000)):
            await earlier.put_away.wait()
    standing = await asyncio.to_thread(node.deliveries.find_standing, run_id)
    if standing:
        raise NodeError(
            f"what run {run_id} did was applied to the tree: start a new run in its session, or undo it "
            f"first ({', '.join(standing[:3])})",
            reason="refused",
        )


async def _list_plugins(node: NodeParts, prepared: PreparedWorkspace, timeout_ms: int) -> WorkspacePlugins:
    async with asyncio.timeout(timeout_ms / 1000):
        return await node.plugins.list_tools(prepared, node.preparer)
