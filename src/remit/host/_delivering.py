"""What is done with the patch of an ended run by hand: may it be, and how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from remit.admission import Binding
from remit.contract import Delivery
from remit.errors import PreconditionFailed
from remit.runs import HistoryEntry, StoredRun
from remit.workspaces import Deliveries, DeliveryOrder, WorkspaceSettings

_SHOWN_PATHS = 10


def check_deliverable(
    run: StoredRun,
    history: Sequence[HistoryEntry],
    binding: Binding | None,
    unreviewed: bool,
    allow_protected: bool,
) -> None:
    """Refuse what must not be applied. Pure.

    Raises:
        PreconditionFailed: The message says what would let it.
    """
    view = run.view
    if not view.status.ended:
        raise PreconditionFailed("the run hasn't ended yet", param="id")
    if view.patch is None or not view.patch.files:
        raise PreconditionFailed("the run changed nothing: there is nothing to apply", param="id")
    if _last(history) == "delivery.discarded":
        raise PreconditionFailed("the run's patch was discarded", param="id")
    if not view.patch.reviewed and not unreviewed:
        raise PreconditionFailed("no review has passed the run's patch: say `unreviewed`", param="unreviewed")
    for asked, name in ((unreviewed, "unreviewed"), (allow_protected, "allow_protected")):
        if asked and (binding is None or name not in binding.allow_override):
            raise PreconditionFailed(f"the run's binding doesn't let its callers say `{name}`", param=name)


def check_discardable(run: StoredRun, history: Sequence[HistoryEntry]) -> None:
    """Refuse to discard what was applied, or isn't there. Pure.

    Raises:
        PreconditionFailed: The message says why.
    """
    view = run.view
    if not view.status.ended:
        raise PreconditionFailed("the run hasn't ended yet: cancel it instead", param="id")
    if view.patch is None or not view.patch.files:
        raise PreconditionFailed("the run changed nothing: there is nothing to discard", param="id")
    applied = view.delivery is not None and (view.delivery.mode, view.delivery.status) == (
        "apply",
        "delivered",
    )
    if _last(history) == "delivery.completed" or (applied and _last(history) is None):
        raise PreconditionFailed("the run's patch was applied: `remit undo` takes it back", param="id")


def apply_patch(
    node_data: Path, run: StoredRun, workspace: WorkspaceSettings, *, allow_protected: bool
) -> Delivery:
    """Apply it, all or nothing. Blocks.

    Raises:
        PreconditionFailed: Its files aren't kept any more, or it touches what is protected.
        NodeError: It can't be written.
    """
    patch = run.view.patch
    assert patch is not None, "as was checked"
    deliveries = Deliveries(node_data)
    content_hash = deliveries.find_changes(run.outside_id, patch.sha256)
    if content_hash is None:
        raise PreconditionFailed("the files of the run's patch aren't kept any more", param="id")
    outcome = deliveries.deliver(
        DeliveryOrder(
            run_id=run.outside_id,
            root=workspace.root,
            content_hash=content_hash,
            patch_sha256=patch.sha256,
            protected=workspace.protected,
            frozen=workspace.freeze,
            allow_protected=allow_protected,
        )
    )
    if outcome.status == "refused":
        named = ", ".join(outcome.paths[:_SHOWN_PATHS])
        raise PreconditionFailed(
            f"it touches protected paths: {named}; say `allow_protected`", param="allow_protected"
        )
    return Delivery(mode="apply", status="conflict" if outcome.status == "conflict" else "delivered")


def _last(history: Sequence[HistoryEntry]) -> str | None:
    """The last thing that was done with the patch by hand."""
    done = [entry.type for entry in history if entry.type.startswith("delivery.")]
    told = [type_ for type_ in done if type_ != "delivery.conflict"]
    return told[-1] if told else None
