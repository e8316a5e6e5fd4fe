"""The patch of a run, as the host shows and keeps it."""

from __future__ import annotations

from remit.contract import PatchSummary, Snapshot
from remit.events import Artifact


def summarise_snapshot(snapshot: Snapshot, *, reviewed: bool) -> PatchSummary:
    """The patch's numbers as the run shows them."""
    return PatchSummary(
        sha256=snapshot.patch_sha256,
        files=snapshot.files,
        insertions=snapshot.insertions,
        deletions=snapshot.deletions,
        reviewed=reviewed,
    )


def patch_artifact(snapshot: Snapshot) -> Artifact:
    """The patch as the host keeps it."""
    return Artifact(name="patch", text=snapshot.patch, media_type="text/x-diff; charset=utf-8")
