"""What may be done by hand with the patch of an ended run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from remit.admission import Binding
from remit.errors import PreconditionFailed
from remit.runs import HistoryEntry, StoredRun, newest_delivery


def check_deliverable(
    run: StoredRun,
    history: Sequence[HistoryEntry],
    binding: Binding | None,
    *,
    unreviewed: bool,
    allow_protected: bool,
) -> None:
    """Refuse what must not be applied.

    Args:
        run: The run.
        history: What was done with its patch.
        binding: Whose callers may say only what it lets them; None: it is gone, and they may say nothing.
        unreviewed: Whether the caller says that a patch may be taken that no review has passed.
        allow_protected: Whether the caller says that it may touch protected paths.

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
    """Refuse to discard what was applied, or isn't there.

    Raises:
        PreconditionFailed: The message says why.
    """
    view = run.view
    if not view.status.ended:
        raise PreconditionFailed("the run hasn't ended yet: cancel it instead", param="id")
    if view.patch is None or not view.patch.files:
        raise PreconditionFailed("the run changed nothing: there is nothing to discard", param="id")
    newest = newest_delivery(view, history)
    if newest is not None and newest.mode != "patch" and newest.status == "delivered":
        raise PreconditionFailed("the run's patch was delivered: `remit undo` takes it back", param="id")


def _last(history: Sequence[HistoryEntry]) -> str | None:
    """The last thing that was done with the patch by hand."""
    done = [entry.type for entry in history if entry.type.startswith("delivery.")]
    told = [type_ for type_ in done if type_ != "delivery.conflict"]
    return told[-1] if told else None
