"""Limits of a stage that are nearly used up: its rounds and its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from remit.contract import LimitWarning
from remit.primitives import Clock, usd_from_micros
from remit.stages._ports import StageInput
from remit.usage import Spent, WorkingTime

NEAR_PERCENT: Final = 80
"""From here on a limit counts as near. (Tokens and money are watched by the budget, at the same mark.)"""
_SLACK_MS: Final = 5.0
"""Two clocks that ran out within this time of each other count as one."""


class NearingLimits:
    """Says once of each limit that it is near.

    Args:
        stage: The stage; its limits are the caps.
        clock: Its monotonic time measures the stage.
        remaining_s: What stage and run have left, the nearer of the two.
        working: The run's stopwatch; None: nobody asks.
    """

    def __init__(
        self,
        stage: StageInput,
        *,
        clock: Clock,
        remaining_s: Callable[[], float | None],
        working: WorkingTime | None = None,
    ) -> None:
        self._stage = stage
        self._clock = clock
        self._remaining_s = remaining_s
        self._working = working
        self._began = clock.monotonic()
        self._told: set[str] = set()

    def check(self, *, tool_rounds: int) -> tuple[LimitWarning, ...]:
        """What has come near since the last time."""
        return tuple(
            LimitWarning(kind=kind, value=value, cap=cap, stage_id=self._stage.stage_id)
            for kind, value, cap in self._levels(tool_rounds)
            if value * 100 >= cap * NEAR_PERCENT and self._tell(kind)
        )

    def _tell(self, kind: str) -> bool:
        if kind in self._told:
            return False
        self._told.add(kind)
        return True

    def _levels(self, tool_rounds: int) -> Iterator[tuple[str, int, int]]:
        limits = self._stage.limits
        yield "max_tool_rounds", tool_rounds, limits.max_tool_rounds
        if self._working is not None and limits.working_limit_ms is not None:
            yield "working_limit_ms", self._working.working_ms(), limits.working_limit_ms
        left_s = self._remaining_s()
        if left_s is None:
            return
        left_ms = left_s * 1000
        stage_ms = limits.stage_timeout_ms
        spent_ms = (self._clock.monotonic() - self._began) * 1000
        if stage_ms is not None and stage_ms - spent_ms <= left_ms + _SLACK_MS:
            yield "stage_timeout_ms", min(stage_ms, round(spent_ms)), stage_ms
        else:
            yield "wall_clock_ms", max(0, round(limits.wall_clock_ms - left_ms)), limits.wall_clock_ms


def near_already(stage: StageInput, spent: Spent) -> tuple[LimitWarning, ...]:
    """Limits of tokens and money that are near when a stage begins: its model doesn't know of them yet."""
    limits = stage.limits
    levels = (
        ("max_input_tokens", spent.input_tokens, limits.max_input_tokens),
        ("max_output_tokens", spent.output_tokens, limits.max_output_tokens),
        ("max_total_tokens", spent.total_tokens, limits.max_total_tokens),
        ("max_cost_usd", usd_from_micros(spent.cost_micros), limits.max_cost_usd),
    )
    return tuple(
        LimitWarning(kind=kind, value=value, cap=float(cap) if kind == "max_cost_usd" else int(cap))
        for kind, value, cap in levels
        if cap is not None and value * 100 >= float(cap) * NEAR_PERCENT
    )
