"""The clocks of a run, and what their running out means.

The class of an expiry is computed from the deadlines, never from which timer fired: when the wall
clock ends no later than the stage, it is the request's budget.
"""

from __future__ import annotations

from dataclasses import dataclass

from remit.contract import LimitHit, Limits, StageKind, Terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class StageClock:
    """When a stage must be over. Moments are seconds on the loop's clock."""

    kind: StageKind
    stage_id: str
    wall_ends: float
    stage_ends: float
    wall_clock_ms: int
    stage_timeout_ms: int

    @property
    def ends(self) -> float:
        """The nearer of the two."""
        return min(self.wall_ends, self.stage_ends)

    @property
    def is_budget(self) -> bool:
        """Whether running out belongs to the request's budget; on a tie it does."""
        return self.wall_ends <= self.stage_ends

    def terminal(self) -> Terminal:
        """How a run ends when this clock runs out."""
        if self.is_budget:
            return wall_clock_terminal(self.wall_clock_ms, stage_id=self.stage_id)
        hit = LimitHit(kind="stage_timeout_ms", value=self.stage_timeout_ms, cap=self.stage_timeout_ms)
        return Terminal.of("timeout", self.kind, stage=self.stage_id, limit=hit)


def wall_clock_terminal(wall_clock_ms: int, *, stage_id: str | None = None) -> Terminal:
    """How a run ends when the request's own time is over."""
    hit = LimitHit(kind="wall_clock_ms", value=wall_clock_ms, cap=wall_clock_ms)
    return Terminal.of("budget", "wall_clock", stage=stage_id, limit=hit)


def queue_terminal(max_queue_ms: int) -> Terminal:
    """How a run ends that waited too long before it began."""
    return Terminal.of(
        "budget", "queue", limit=LimitHit(kind="max_queue_ms", value=max_queue_ms, cap=max_queue_ms)
    )


def stage_clock(
    limits: Limits, *, kind: StageKind, stage_id: str, wall_ends: float, now: float
) -> StageClock:
    """The clock of a stage that begins now."""
    timeout_ms = limits.stage_timeout_ms or limits.wall_clock_ms
    return StageClock(
        kind=kind,
        stage_id=stage_id,
        wall_ends=wall_ends,
        stage_ends=now + timeout_ms / 1000,
        wall_clock_ms=limits.wall_clock_ms,
        stage_timeout_ms=timeout_ms,
    )
