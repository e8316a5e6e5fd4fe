"""What a review changed itself."""

from __future__ import annotations

from remit.contract import Snapshot


def repaired_paths(before: Snapshot | None, after: Snapshot | None) -> tuple[str, ...]:
    """The paths that differ between two snapshots of one checkout, by whatever means they were changed.

    Args:
        before: Taken when the review began; None when nothing had been opened.
        after: Taken when it had decided.
    """
    old, new = _digests(before), _digests(after)
    return tuple(sorted(path for path in {*old, *new} if old.get(path) != new.get(path)))


def _digests(snapshot: Snapshot | None) -> dict[str, str]:
    return {} if snapshot is None else {changed.path: changed.digest for changed in snapshot.paths}
