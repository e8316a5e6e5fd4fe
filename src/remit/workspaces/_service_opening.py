"""Answers `open`: the run's own copy of the tree, made from what was prepared."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from remit.contract import Opened, OpenRequest
from remit.errors import InternalError, NodeError
from remit.workspaces._changes import Changes
from remit.workspaces._checkout import Checkout
from remit.workspaces._continuing import copy_kept, read_facts_of_copy
from remit.workspaces._forking import changes_to_take_over, note_fork
from remit.workspaces._in_place import remember_tree
from remit.workspaces._in_place_record import InPlaceRecord, find_record, keep_record, list_base_of
from remit.workspaces._prepared import PreparedWorkspace, checkout_request
from remit.workspaces._service_looking import look_at_run
from remit.workspaces._service_parts import NodeParts
from remit.workspaces._service_runs import Activity, NodeRun
from remit.workspaces._snapshot import RunFolder
from remit.workspaces._taking import take_back
from remit.workspaces._tools import ToolRunner
from remit.workspaces.keeper._storage import Storage
from remit.workspaces.keeper._tree import Facts, record_tree

__all__ = ["open_run"]


_MAX_RECORDED = 2_000_000


async def open_run(node: NodeParts, request: OpenRequest) -> Opened:
    """Make the run's checkout, or say what the open one is."""
    run = await node.enter(request)
    async with run.opening:
        if run.checkout is None:
            prepared = run.get_prepared()
            if (request.continues, request.parent) != (prepared.continues, prepared.parent):
                raise NodeError("this run was prepared from another start", reason="refused")
            if prepared.pin.id != request.base:
                raise NodeError(f"the base {request.base} isn't the prepared one", reason="refused")
            with run.active(Activity(label="open")) as activity:
                await activity.run(_make_checkout(node, run, prepared))
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


async def _make_checkout(node: NodeParts, run: NodeRun, prepared: PreparedWorkspace) -> None:
    storage = node.data / "checkouts" / run.run_id
    is_new = not await asyncio.to_thread(storage.exists)
    if prepared.isolation == "in_place":
        folder = RunFolder.of(node.data, run.run_id)
        record = await asyncio.to_thread(find_record, folder)
        if record is None:
            prepared = await asyncio.to_thread(remember_tree, folder, prepared)
        else:  # opened before a crash: what it did then counts as well
            listing = await list_base_of(record, node.bases, folder)
            prepared = replace(prepared, pin=record.pin, listing=listing)
        run.prepared = prepared
    try:
        checkout = await _open_checkout(node, run, prepared, storage, is_new=is_new)
    except BaseException:
        if is_new:
            await take_back(storage)
        raise
    run.checkout = checkout
    run.put_away.clear()
    node.opened_count += 1
    if checkout.isolation != prepared.isolation:
        run.prepared = replace(prepared, isolation=checkout.isolation)
    if checkout.isolation == "copy":
        run.facts = await asyncio.to_thread(read_facts_of_copy, Storage(checkout.storage))
    elif checkout.isolation == "in_place":
        run.facts = await asyncio.to_thread(_facts_before, RunFolder.of(node.data, run.run_id), prepared)
    plugins = run.plugins
    run.servers = plugins.serve(checkout, clock=node.clock) if plugins is not None else None
    run.tools = ToolRunner(
        checkout,
        prepared.settings,
        node.receipts,
        node.clock,
        outputs=RunFolder.of(node.data, run.run_id).folder / "outputs",
        working_folder=prepared.subdir,
        servers=run.servers,
        plugins=plugins.tools if plugins is not None else (),
        secrets=prepared.secrets,
        child_changes=lambda child: asyncio.to_thread(changes_to_take_over, node.data, run.run_id, child),
    )


def _facts_before(folder: RunFolder, prepared: PreparedWorkspace) -> Facts:
    """The facts of the tree before the run in place, on disk from here on. Blocking."""
    record = find_record(folder)
    if record is None:
        facts = record_tree(prepared.pin.root, max_entries=_MAX_RECORDED)
        record = InPlaceRecord(prepared.settings.ref, prepared.pin, facts)
        keep_record(folder, record)
    return record.facts


async def _fork(node: NodeParts, child: NodeRun, parent: NodeRun) -> Changes:
    """What a child starts with. Its parent waits in a call, so nothing but a server could write."""
    await parent.stop_servers()
    at_fork = await look_at_run(node, parent)
    folders = [RunFolder.of(node.data, run.run_id) for run in (child, parent)]
    await asyncio.to_thread(
        note_fork, folders[0], parent_id=parent.run_id, at_fork=at_fork, parent=folders[1]
    )
    return at_fork.changes


async def _open_checkout(
    node: NodeParts, run: NodeRun, prepared: PreparedWorkspace, storage: Path, *, is_new: bool
) -> Checkout:
    # What is an overlay's own is made as it is looked into; all else holds something from the start.
    alone = prepared.parent is None and prepared.kept is None
    may_sleep = is_new and alone and prepared.isolation == "overlay"
    keeper = await node.get_keeper()
    if prepared.parent is not None:
        run.fork = await _fork(node, run, node.get_parent(prepared.parent))
    notes = () if prepared.kept is None else await copy_kept(prepared.kept, storage)
    wanted = checkout_request(
        prepared,
        checkout_id=run.run_id,
        generation=run.generation,
        data=node.data,
        environment=node.environment,
        allow_unconfined=node.allow_unconfined,
    )
    checkout = await keeper.open(wanted, may_sleep=may_sleep)
    checkout.notes += notes
    return checkout
