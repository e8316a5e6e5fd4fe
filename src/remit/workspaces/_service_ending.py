"""Answers `deliver` and `cleanup`: how a run's work reaches the tree, and how its checkout ends."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from remit.contract import CleanedUp, CleanupRequest, Delivered, DeliverRequest
from remit.errors import NodeError, RemitError
from remit.workspaces._branching import BranchOrder
from remit.workspaces._continuing import load_root
from remit.workspaces._delivery import DeliveryOrder
from remit.workspaces._in_place_record import end_record
from remit.workspaces._kept import mark_kept
from remit.workspaces._service_answers import delivered_answer
from remit.workspaces._service_left import clean_up_left
from remit.workspaces._service_looking import look_at_run
from remit.workspaces._service_parts import NodeParts
from remit.workspaces._service_runs import NodeRun, stop_all, to_the_end
from remit.workspaces._snapshot import RunFolder
from remit.workspaces.keeper._storage import remove_what_can_be
from remit.workspaces.keeper._tree import TreeTooLarge

__all__ = ["clean_up_run", "close_run", "deliver_run"]

_log = logging.getLogger(__name__)


async def deliver_run(node: NodeParts, request: DeliverRequest) -> Delivered:
    """Put what was reviewed into the tree, once."""
    await node.enter(request)
    settings = node.get_settings(request.workspace_ref)
    folder = RunFolder.of(node.data, request.run_id).folder
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
    if request.branch is None:
        return delivered_answer(request, await to_the_end(lambda: node.deliveries.deliver(order)))
    branches = await node.get_branches()
    wanted = BranchOrder(order=order, branch=request.branch, message=request.message)
    return delivered_answer(request, await branches.deliver(wanted, now=node.clock.now()))


async def clean_up_run(node: NodeParts, request: CleanupRequest) -> CleanedUp:
    """Stop everything of a run, and remove or keep its checkout."""
    run = await node.enter(request)
    await stop_all(run, clock=node.clock, grace_ms=0)
    if run.prepared is None:
        node.runs.pop(request.run_id, None)
        return await clean_up_left(node, request)
    kept, problems = await close_run(node, run, keep=request.keep)
    node.runs.pop(request.run_id, None)
    return CleanedUp(
        run_id=request.run_id,
        generation=request.generation,
        kept=kept is not None,
        folder=None if kept is None else str(kept),
        abandoned=problems,
    )


async def _note_in_place(node: NodeParts, run: NodeRun) -> None:
    """Remember what a run in place came to, so that it can be taken back."""
    folder = RunFolder.of(node.data, run.run_id)
    try:
        bundle = await look_at_run(node, run)
        root = Path(run.get_prepared().pin.root)
        await asyncio.to_thread(node.deliveries.note_in_place, run.run_id, root, bundle, run.facts)
    except (RemitError, OSError, TreeTooLarge) as error:
        # The checkout is closed all the same; the record stays, so that an undo looks once more.
        _log.warning("run %s: what it did in place can't be taken back: %s", run.run_id, error)
        return
    await asyncio.to_thread(end_record, folder)


async def close_run(node: NodeParts, run: NodeRun, *, keep: bool) -> tuple[Path | None, tuple[str, ...]]:
    """Remove a run's checkout, or keep its tree; returns where that is, and what couldn't be done."""
    async with run.opening:
        await run.stop_servers()
        if run.checkout is not None and run.checkout.isolation == "in_place":
            await _note_in_place(node, run)
        checkout, run.checkout, run.tools, run.servers = run.checkout, None, None, None
        if checkout is None:
            return None, ()
        # Of a run in place there is no copy that could be kept, and the node's owner has the last word.
        keep = keep and checkout.isolation != "in_place" and run.get_prepared().settings.preserve != "never"
        try:
            keep = keep and await checkout.can_keep()
            problems = await checkout.close(keep=keep)
            node.cleaned_up_count += 1
            if keep:
                await asyncio.to_thread(mark_kept, checkout.storage)
                return checkout.storage, problems
            if os.path.lexists(checkout.storage):  # noqa: ASYNC240  the keeper has mostly just removed it
                await asyncio.to_thread(remove_what_can_be, checkout.storage)
            return None, problems
        finally:
            run.put_away.set()
