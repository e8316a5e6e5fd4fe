"""What `remit patch --apply --3way` does: merges a run's patch with a tree that has moved on."""

from __future__ import annotations

import asyncio
import os
import sys

from remit.cli._formats import count
from remit.cli._patching import deliverable, log_by_hand, named, node_data
from remit.cli._place import find_place
from remit.cli._report import checks_table
from remit.cli._screen import console_on
from remit.cli._words import plain, say
from remit.errors import PreconditionFailed
from remit.primitives import SystemClock, SystemIds
from remit.workspaces import Deliveries, DeliveryOrder, Merged, NodeService, WorkspaceSettings


def merge_here(wanted: str, *, unreviewed: bool, allow_protected: bool) -> int:
    """Merge, check and apply; returns the exit code: 0 applied, 1 a conflict or a check that is worse.

    Raises:
        PreconditionFailed: The patch can't be delivered as it is; the message says what would let it.
        NodeError: What is kept of it can't be used.
    """
    found = deliverable(wanted, unreviewed=unreviewed)
    if found is None:
        return 0
    stored, root = found
    view, patch = stored.view, stored.view.patch
    assert patch is not None, "as was checked"
    content_hash = Deliveries(node_data()).find_changes(stored.outside_id, patch.sha256)
    if content_hash is None:
        raise PreconditionFailed(f"the files of run {view.id} aren't kept any more")
    workspace = find_place(wanted=str(root), config_file=None).workspace
    order = DeliveryOrder(
        run_id=stored.outside_id,
        root=root,
        content_hash=content_hash,
        patch_sha256=patch.sha256,
        protected=workspace.protected,
        frozen=workspace.freeze,
        allow_protected=allow_protected,
    )
    asked = stored.request.workspace
    subdir = (asked.subdir if asked is not None else None) or ""
    merged = asyncio.run(_merge(workspace, order, subdir))
    if merged.checks:
        console = console_on(sys.stderr)
        console.print(checks_table(merged.checks, width=console.width))
    code = _tell(merged, view.id, str(root))
    if merged.outcome.status == "delivered" and not merged.outcome.repeated:
        data = {"mode": "apply", "by": "hand", "merged": True, "unreviewed": unreviewed}
        log_by_hand(view, "delivery.completed", data | {"paths": len(merged.outcome.paths)})
    return code


async def _merge(workspace: WorkspaceSettings, order: DeliveryOrder, subdir: str) -> Merged:
    service = await NodeService.start(
        [workspace], data=node_data(), clock=SystemClock(), ids=SystemIds(), environment=os.environ
    )
    try:
        return await service.merge(workspace.ref, order, subdir=subdir)
    finally:
        await service.aclose()


def _tell(merged: Merged, run_id: str, root: str) -> int:
    outcome = merged.outcome
    if merged.broken:
        for text in merged.broken:
            say(plain(text))
        say("nothing was applied: the merged changes make a check worse")
        return 1
    match outcome.status:
        case "conflict":
            say(f"nothing was applied: you and the run changed the same lines of {named(outcome.paths)}")
            return 1
        case "refused":
            say(
                f"nothing was applied: it touches protected paths: {named(outcome.paths)}; "
                "look at them, then add --allow-protected"
            )
            return 1
        case "empty":
            say("the files hold all of it already: there is nothing to apply")
            return 0
        case _:
            files = count(len(outcome.paths), "file")
            say(f"{files} merged and applied to {root}; `remit undo {run_id}` takes it back")
            return 0
