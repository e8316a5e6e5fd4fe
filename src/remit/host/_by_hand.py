"""A patch that a person delivers, or discards, once its run has ended: to the tree, or on a branch.

What was done goes to the run's host log; `newest_delivery` reads from there how the run's delivery stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from remit.contract import Delivery
from remit.errors import PreconditionFailed
from remit.requests import check_branch_name
from remit.results import commit_message
from remit.runs import StoredRun
from remit.workspaces import Bases, Branches, BranchOrder, Deliveries, DeliveryOrder, Outcome

_SHOWN_PATHS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """What a person asks to be done with a run's patch."""

    branch: str | None = None
    """The new branch that gets it; None: the tree does."""
    unreviewed: bool = False
    allow_protected: bool = False
    by: str = "hand"
    """Who asks: a key's id, or `hand`."""
    origin: str | None = None
    """The address that it is asked from; None: not over the network."""

    @property
    def mode(self) -> str:
        """As the run shows it."""
        return "apply" if self.branch is None else "branch"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchPlace:
    """Where a run's patch belongs, and what may be touched there."""

    node_data: Path
    root: Path
    protected: tuple[str, ...] | None = None
    """None: the defaults."""
    frozen: tuple[str, ...] = ()
    environment: Mapping[str, str]


class HandLog(Protocol):
    """Where host logs are written."""

    async def log(self, run_id: str, type_: str, data: dict[str, Any], *, tenant: str = "local") -> None:
        """Add to the run's host log."""
        ...


async def deliver_by_hand(
    run: StoredRun, wanted: ByHand, *, place: PatchPlace, log: HandLog, now: datetime
) -> Outcome:
    """Deliver the patch of an ended run, all or nothing, and put on record what came of it.

    Raises:
        PreconditionFailed: Its files aren't kept any more.
        InvalidRequest: The branch's name can't be one.
        NodeError: It can't be written.

    Cancellation: none; the caller shields it.
    """
    patch = run.view.patch
    assert patch is not None, "as was checked"
    if wanted.branch is not None:
        check_branch_name(wanted.branch, param="branch")
    deliveries = Deliveries(place.node_data)
    content_hash = await asyncio.to_thread(deliveries.find_changes, run.outside_id, patch.sha256)
    if content_hash is None:
        raise PreconditionFailed(
            f"the files of run {run.view.id} aren't kept any more; `remit patch {run.view.id} | git apply` "
            "may do",
            param="id",
        )
    order = DeliveryOrder(
        run_id=run.outside_id,
        root=place.root,
        content_hash=content_hash,
        patch_sha256=patch.sha256,
        frozen=place.frozen,
        allow_protected=wanted.allow_protected,
        **({} if place.protected is None else {"protected": place.protected}),
    )
    if wanted.branch is None:
        outcome = await asyncio.to_thread(deliveries.deliver, order)
    else:
        outcome = await _to_branch(run, order, wanted.branch, place, now)
    await _log(run, wanted, outcome, log)
    return outcome


async def _to_branch(
    run: StoredRun, order: DeliveryOrder, branch: str, place: PatchPlace, now: datetime
) -> Outcome:
    view = run.view
    assert view.patch is not None, "as was checked"
    text = commit_message(view, request_text=run.request.text(), output=view.output, patch=view.patch)
    branches = await branches_of(place.node_data, place.environment)
    return await branches.deliver(BranchOrder(order=order, branch=branch, message=text), now=now)


async def branches_of(node_data: Path, environment: Mapping[str, str]) -> Branches:
    """Deliveries to branches, outside a node that runs.

    Raises:
        NodeError: There is no git.
    """
    bases = Bases(node_data, environment=environment)
    return Branches(node_data, git=bases.git, user=await bases.user_settings())


async def _log(run: StoredRun, wanted: ByHand, outcome: Outcome, log: HandLog) -> None:
    if outcome.status not in ("delivered", "conflict") or outcome.repeated:
        return
    word = "delivery.completed" if outcome.status == "delivered" else "delivery.conflict"
    data = {
        "mode": wanted.mode,
        "ref": wanted.branch,
        "by": wanted.by,
        "unreviewed": wanted.unreviewed,
        "allow_protected": wanted.allow_protected,
        "paths": len(outcome.paths),
        **({} if wanted.origin is None else {"origin": wanted.origin}),
    }
    await log.log(run.view.id, word, data, tenant=run.tenant)


def delivery_of(outcome: Outcome, wanted: ByHand) -> Delivery:
    """What came of it, as the run shows it.

    Raises:
        PreconditionFailed: It touches what mustn't be touched.
    """
    if outcome.status == "refused":
        named = ", ".join(outcome.paths[:_SHOWN_PATHS])
        why = f": {outcome.why}" if outcome.why else "; say `allow_protected`"
        raise PreconditionFailed(f"it touches protected paths: {named}{why}", param="allow_protected")
    status = "conflict" if outcome.status == "conflict" else "delivered"
    return Delivery.model_validate({"mode": wanted.mode, "status": status, "ref": wanted.branch})
