"""A child's checkout: a copy of what its parent's holds, and the way of its changes back.

The child's overlay lies over the same base as its parent's, with a copy of the parent's own layer as its own
(an overlay can't be laid over the upper folder of another that is mounted). So what the child changed is told
by comparing: what both hold against the base, one without the other.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from remit.contract import ChildResult
from remit.errors import NodeError
from remit.workspaces._changes import Change, Changes, Content, sort_changes
from remit.workspaces._checkout import Checkout
from remit.workspaces._continuing import KeptCheckout
from remit.workspaces._prepared import PreparedWorkspace
from remit.workspaces._snapshot import Bundle, RunFolder
from remit.workspaces.keeper._storage import Storage

__all__ = ["changes_since", "changes_to_take_over", "note_fork", "prepared_child"]

_PARENT = "parent"


def prepared_child(
    parent_id: str, prepared: PreparedWorkspace, checkout: Checkout | None
) -> PreparedWorkspace:
    """What a child's checkout is made from: its parent's base, and what the parent's checkout holds.

    It has no checks: what it changes lands in its parent's checkout, whose own gate looks at the whole.

    Raises:
        NodeError: The parent has no checkout of its own.
    """
    if checkout is None:
        raise NodeError(f"run {parent_id} has no checkout open on this node", reason="lost")
    if checkout.isolation == "in_place":
        raise NodeError("a run in place has no checkout that a child could start from", reason="refused")
    start = KeptCheckout(parent_id, Storage(checkout.storage), prepared.pin, checkout.isolation, open=True)
    return replace(prepared, isolation=checkout.isolation, checks=(), notes=(), cached=True, kept=start)


def note_fork(child: RunFolder, *, parent_id: str, at_fork: Bundle, parent: RunFolder) -> None:
    """Remember whose child it is, and let it have the bytes that its changes are told against. Blocking."""
    child.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (child.folder / _PARENT).write_text(parent_id)
    if at_fork.changes.changes:
        child.blobs.make()
    for change in at_fork.changes.changes:
        for content in (change.base, change.result):
            if content is not None:
                _share(parent.blobs.path(content.sha256), child.blobs.path(content.sha256))


def _share(source: Path, target: Path) -> None:
    """The same bytes under another name; nobody writes to either."""
    if target.exists() or not source.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        unfinished = target.with_suffix(".unfinished")
        shutil.copyfile(source, unfinished)
        with suppress(FileExistsError):
            unfinished.rename(target)


def changes_since(now: Changes, at_fork: Changes) -> Changes:
    """What was changed after the fork: both are told against one base, the result against the fork."""
    before = {change.path: change for change in at_fork.changes}
    after = {change.path: change for change in now.changes}
    changes: list[Change] = []
    for path in before.keys() | after.keys():
        start, end = before.get(path), after.get(path)
        base = start.result if start is not None else _base_of(end)
        result = end.result if end is not None else _base_of(start)
        if base != result:
            changes.append(Change(path=path, base=base, result=result))
    return replace(
        now,
        changes=sort_changes(changes),
        skipped=tuple(entry for entry in now.skipped if entry not in at_fork.skipped),
        ignored=max(0, now.ignored - at_fork.ignored),
        ignored_names=tuple(name for name in now.ignored_names if name not in at_fork.ignored_names),
    )


def _base_of(change: Change | None) -> Content | None:
    return change.base if change is not None else None


def changes_to_take_over(data: Path, parent_id: str, child: ChildResult) -> dict[str, object]:
    """The changes of a child that its review has passed, as the keeper takes them. Blocking.

    Raises:
        NodeError: It isn't a child of that run, or these changes aren't kept here.
    """
    folder = RunFolder.of(data, child.run_id)
    try:
        known = (folder.folder / _PARENT).read_text()
    except OSError:
        known = ""
    if known != parent_id:
        raise NodeError(f"run {child.run_id} is no child of run {parent_id}", reason="refused")
    bundle = folder.load(child.content_hash)
    changes = [
        {"path": change.path, "base": _told(change.base), "result": _told(change.result)}
        for change in bundle.changes.changes
    ]
    return {"changes": changes, "blobs": str(folder.folder / "blobs")}


def _told(content: Content | None) -> dict[str, str] | None:
    return None if content is None else {"mode": content.mode, "sha256": content.sha256}
