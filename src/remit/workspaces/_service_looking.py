"""Answers `snapshot`: what a run's checkout holds, against its base."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from remit.contract import Snapshot, SnapshotRequest
from remit.workspaces._changes import Changes
from remit.workspaces._continuing import find_left
from remit.workspaces._forking import changes_since
from remit.workspaces._in_place import settled
from remit.workspaces._in_place_record import find_record
from remit.workspaces._patch_secrets import without_secrets
from remit.workspaces._protection import ignores_case
from remit.workspaces._service_answers import snapshot_answer
from remit.workspaces._service_left import snapshot_left
from remit.workspaces._service_parts import NodeParts
from remit.workspaces._service_runs import NodeRun, stop_all
from remit.workspaces._snapshot import Bundle, RunFolder, take_snapshot

__all__ = ["look_at_run", "snapshot_run"]


_LEFTOVER_GRACE_MS = 2_000


async def snapshot_run(node: NodeParts, request: SnapshotRequest) -> Snapshot:
    """What the checkout holds now, as a patch."""
    if request.run_id not in node.runs:
        await asyncio.to_thread(_refuse_unknown, node, request.run_id)  # there is nothing to fence
    run = await node.enter(request)
    if run.prepared is None:
        return await snapshot_left(node, request)
    prepared = run.get_prepared()
    checkout = run.get_checkout()
    leftovers: list[str] = []
    if request.end_leftovers:
        ended = await stop_all(run, clock=node.clock, grace_ms=_LEFTOVER_GRACE_MS)
        await run.stop_servers()  # they are no leftovers: the next use starts them anew
        stopped = await checkout.stop(None, grace_ms=_LEFTOVER_GRACE_MS)
        leftovers = [item.label for item in (*ended, *stopped)]
    fork = run.fork
    bundle = await look_at_run(node, run, lambda changes: changes_since(changes, fork) if fork else changes)
    if checkout.isolation == "in_place":
        await asyncio.to_thread(
            node.deliveries.note_in_place, request.run_id, Path(prepared.pin.root), bundle, run.facts
        )
    paths = bundle.changes.changes
    ignore_case = bool(paths) and await asyncio.to_thread(ignores_case, Path(prepared.pin.root))
    answer = snapshot_answer(request, bundle, prepared.settings, ignore_case=ignore_case, leftovers=leftovers)
    masker = prepared.secrets.masker
    if not masker:
        return answer
    return await asyncio.to_thread(
        without_secrets, answer, RunFolder.of(node.data, request.run_id), bundle, masker
    )


def _refuse_unknown(node: NodeParts, run_id: str) -> None:
    in_place = find_record(RunFolder.of(node.data, run_id)) is not None
    if not in_place and node.deliveries.find_undone(run_id) is None:
        find_left(node.data, run_id)


async def look_at_run(
    node: NodeParts, run: NodeRun, told: Callable[[Changes], Changes] = lambda changes: changes
) -> Bundle:
    """What a run's checkout holds now, against its base or as `told` makes it."""
    prepared = run.get_prepared()
    layer = run.layer
    if run.get_checkout().isolation == "in_place":
        told = settled
    scan = await asyncio.to_thread(run.scan)
    return await take_snapshot(
        node.bases.git,
        RunFolder.of(node.data, run.run_id),
        pin=prepared.pin,
        listing=prepared.listing,
        scan=scan,
        result=layer,
        folders=node.patch_folders,
        ignored=run.ignored,
        told=told,
        last=run.last_patch,
    )
