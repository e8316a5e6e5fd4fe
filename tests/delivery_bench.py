"""A tree, a kept bundle of changes to it, and everything needed to deliver them in a test."""

from __future__ import annotations

from pathlib import Path

from remit.workspaces._changes import Blobs, Change, Changes, Content, sort_changes
from remit.workspaces._delivery import DeliveryOrder
from remit.workspaces._patch import Patch
from remit.workspaces._snapshot import Bundle, RunFolder, keep_bundle
from tree_model import Tree, lay_out


class Killed(BaseException):
    """The process died here: nothing catches this."""


class Fault:
    """Raises at one step; counts them all."""

    def __init__(self, at: int | None = None, error: BaseException | None = None) -> None:
        self.at = at
        self.error = error or Killed()
        self.steps: list[str] = []

    def __call__(self, step: str) -> None:
        self.steps.append(step)
        if len(self.steps) - 1 == self.at:
            raise self.error


def _content(tree: Tree, path: str, blobs: Blobs) -> Content | None:
    if path not in tree:
        return None
    mode, data = tree[path]
    return Content(mode, blobs.keep(data), len(data))


def make_order(folder: Path, base: Tree, result: Tree, *, run_id: str = "run_1") -> DeliveryOrder:
    """Lay `base` out at `folder/root`, and keep the changes to `result` as a snapshot would."""
    root = lay_out(base, folder / "root")
    run = RunFolder.of(folder / "data", run_id)
    blobs = run.blobs
    changes = Changes(
        sort_changes(
            Change(path, _content(base, path, blobs), _content(result, path, blobs))
            for path in base.keys() | result.keys()
            if base.get(path) != result.get(path)
        )
    )
    patch = Patch(repr(changes).encode(), len(changes.changes), 0, 0, {})
    keep_bundle(run, Bundle(changes=changes, patch=patch, blobs=blobs))
    return DeliveryOrder(
        run_id=run_id, root=root, content_hash=changes.content_hash, patch_sha256=patch.sha256
    )
