"""Answers `deliver` and `cleanup`: how a run's work reaches the tree, and how its checkout ends."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from remit.contract import CleanedUp, CleanupRequest, Delivered, DeliverRequest
from remit.errors import NodeError
from remit.workspaces._branching import BranchOrder
from remit.workspaces._continuing import load_root
from remit.workspaces._delivery import DeliveryOrder
from remit.workspaces._kept import mark_kept
from remit.workspaces._service_answers import delivered_answer
from remit.workspaces._service_left import clean_up_left
from remit.workspaces._service_parts import NodeParts
from remit.workspaces._service_runs import NodeRun, stop_all, to_the_end
from remit.workspaces._snapshot import RunFolder

__all__ = ["clean_up_run", "close_run", "deliver_run"]


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


async def close_run(node: NodeParts, run: NodeRun, *, keep: bool) -> tuple[Path | None, tuple[str, ...]]:
    """Remove a run's checkout, or keep its tree; returns where that is, and what couldn't be done."""
    async with run.opening:
        await run.stop_servers()
        checkout, run.checkout, run.tools, run.servers = run.checkout, None, None, None
        if checkout is None:
            return None, ()
        try:
            problems = await checkout.close(keep=keep)
            node.cleaned_up_count += 1
            if keep:
                await asyncio.to_thread(mark_kept, checkout.storage)
                return checkout.storage, problems
            await asyncio.to_thread(shutil.rmtree, checkout.storage, ignore_errors=True)
            return None, problems
        finally:
            run.put_away.set()
