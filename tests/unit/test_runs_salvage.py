"""What becomes of a dead host's checkout out of which nothing can be read."""

from __future__ import annotations

from typing import cast

import pytest

from remit.contract import CleanedUp, CleanupRequest, SnapshotRequest
from remit.errors import NodeError
from remit.nodes import NodeLink
from remit.runs import salvage_checkout
from remit.testing._run_world import good_replies, run_world


class UnreadLink:
    """A link to a node that can't tell what a run's checkout holds."""

    def __init__(self, reason: str, *, cleanup: str | None = None) -> None:
        self.reason = reason
        self.cleanup_reason = cleanup
        self.cleaned: list[bool] = []

    async def snapshot(self, request: SnapshotRequest) -> object:
        raise NodeError(f"snapshot of {request.run_id}: {self.reason}", reason=self.reason)

    async def cleanup(self, request: CleanupRequest) -> CleanedUp:
        if self.cleanup_reason is not None:
            raise NodeError(f"cleanup: {self.cleanup_reason}", reason=self.cleanup_reason)
        self.cleaned.append(request.keep)
        return CleanedUp(run_id=request.run_id, generation=request.generation, kept=request.keep)


async def salvaged_with(link: UnreadLink, *, keep: bool = False) -> str | None:
    """What there is to be said of the run's checkout."""
    async with run_world(*good_replies()) as world:
        await world.admit()
        stored = await world.store.find_run(next(iter(world.controls)))
        assert stored is not None
        found = await salvage_checkout(cast("NodeLink", link), stored, keep=keep)
    assert (found.patch, found.artifacts, found.undone) == (None, (), None)
    return found.problem


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(("reason", "is_said"), [("lost", False), ("refused", True)])
async def test_what_can_never_be_read_is_put_away(reason: str, is_said: bool, keep: bool) -> None:
    """R58: a checkout whose opening was killed, or a child's, is put away like any other."""
    link = UnreadLink(reason)
    problem = await salvaged_with(link, keep=keep)
    assert link.cleaned == [keep]
    assert (problem is not None) is is_said


@pytest.mark.parametrize("reason", ["unavailable", "storage_full"])
async def test_what_cannot_be_read_for_now_stays(reason: str) -> None:
    """R57: work isn't thrown away because the disk was full when the next host started."""
    link = UnreadLink(reason)
    problem = await salvaged_with(link)
    assert link.cleaned == []
    assert problem is not None
    assert reason in problem


@pytest.mark.parametrize(("reason", "problem"), [("lost", None), ("unavailable", "cleanup: unavailable")])
async def test_a_clean_up_that_fails_is_said(reason: str, problem: str | None) -> None:
    """R58: what is still there is named; what never was is no news."""
    assert await salvaged_with(UnreadLink("lost", cleanup=reason)) == problem
