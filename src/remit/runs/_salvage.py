"""What a dead host's run had in its checkout: read where the node still has it, then kept or removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from remit.contract import CleanupRequest, PatchSummary, SnapshotRequest
from remit.errors import NodeError
from remit.events import Artifact
from remit.nodes import NodeLink
from remit.results import patch_artifact, summarise_snapshot
from remit.runs._ports import StoredRun

_BOUND_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """What could be read of it."""

    patch: PatchSummary | None = None
    """None: nothing, or exactly what the run shows already."""
    artifacts: tuple[Artifact, ...] = ()
    undone: int | None = None
    """How many of its paths somebody has put back already; None: nobody has."""
    problem: str | None = None
    """Why what was there couldn't be read or put away; None: it could, or there was nothing."""


Salvage = Callable[[StoredRun], Awaitable[Salvaged]]


async def salvage_checkout(link: NodeLink, stored: StoredRun, *, keep: bool) -> Salvaged:
    """Read the patch of a run whose host died, and put its checkout away as the preserve policy says.

    Args:
        link: To the node of the run's workspace.
        stored: The run, as it was claimed: the claim's generation keeps any zombie out.
        keep: Whether the checkout is kept.

    Cancellation: nothing is changed but, perhaps, the checkout put away.
    """
    try:
        async with asyncio.timeout(_BOUND_S):
            return await _salvage(link, stored, keep=keep)
    except TimeoutError:
        return Salvaged(problem="the node didn't answer in time")


async def _salvage(link: NodeLink, stored: StoredRun, *, keep: bool) -> Salvaged:
    run_id, generation, shown = stored.outside_id, stored.generation, stored.view.patch
    try:
        snapshot = await link.snapshot(SnapshotRequest(run_id=run_id, generation=generation))
    except NodeError as error:
        return Salvaged(problem=await _clean_up_unread(link, stored, error, keep=keep))
    problem: str | None = None
    undone: int | None = None
    try:
        cleaned = await link.cleanup(CleanupRequest(run_id=run_id, generation=generation, keep=keep))
        undone = cleaned.undone
    except NodeError as error:
        problem = error.message
    if shown is not None and shown.sha256 == snapshot.patch_sha256:
        return Salvaged(undone=undone, problem=problem)
    return Salvaged(
        patch=summarise_snapshot(snapshot, reviewed=False),
        artifacts=(patch_artifact(snapshot),),
        undone=undone,
        problem=problem,
    )


async def _clean_up_unread(link: NodeLink, stored: StoredRun, unread: NodeError, *, keep: bool) -> str | None:
    """Put away a checkout out of which nothing can be read; what is left to be said of it, if anything.

    `lost`: there was none, its opening never ended, or its base is gone. `refused`: a child's, whose work is
    told by its parent's. What can't be read for now (a full disk) stays where it is, to be read by hand.
    """
    if unread.reason not in ("lost", "refused"):
        return unread.message
    request = CleanupRequest(run_id=stored.outside_id, generation=stored.generation, keep=keep)
    try:
        await link.cleanup(request)
    except NodeError as error:
        if error.reason != "lost":
            return error.message
    return None if unread.reason == "lost" else unread.message
