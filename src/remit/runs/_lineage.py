"""What a run has in common with its children: how many there may be, what is spent, where each stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from remit.contract import Limits, LimitWarning
from remit.primitives import usd_from_micros
from remit.runs._control import CancelBy
from remit.usage import Budget

MAX_DEPTH = 2
"""A run's children may have children; those have none."""
_WARN_AT_PERCENT = 80


@dataclass(slots=True)
class Offspring:
    """The children of a run, however deep, against its limit. Belongs to the loop's thread."""

    limit: int
    above: Offspring | None = None
    """That of the run that this one is a child of; a child counts there too."""
    run_ids: list[str] = field(default_factory=list[str])
    """Every run below this one, in the order of their start."""
    told: bool = False
    """Whether it was said that the limit is near."""

    @property
    def left(self) -> int:
        """How many more may be started."""
        own = max(0, self.limit - len(self.run_ids))
        return own if self.above is None else min(own, self.above.left)

    def take_warning(self) -> LimitWarning | None:
        """That 80 % of the limit is used; told once."""
        used = len(self.run_ids)
        if self.told or not self.limit or used * 100 < self.limit * _WARN_AT_PERCENT:
            return None
        self.told = True
        return LimitWarning(kind="max_children", value=used, cap=self.limit)

    def add(self, run_id: str) -> None:
        """One more was started."""
        self.run_ids.append(run_id)
        if self.above is not None:
            self.above.add(run_id)


@dataclass(frozen=True, slots=True)
class Why:
    """Who stops a child run, and in what words."""

    by: CancelBy
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parentage:
    """Where a child run comes from."""

    session_name: str
    """The parent's session, as the work registry knows it."""
    work_id: str
    """The call that started it: a cancel of the call reaches the child."""
    node_run_id: str
    """The parent, as nodes know it."""
    depth: int
    """1: a child of a run that is nobody's child."""
    budget: Budget
    """The parent's, from which it spends."""
    offspring: Offspring
    """The parent's, to which it counts."""
    why_stopped: Callable[[], Why]
    """Asked when a cancel from above has reached the child."""


class HeldPlace:
    """The place of a child: its parent's, which is held already."""

    async def acquire(self) -> None:
        """It is there."""

    def release(self) -> None:
        """It stays its parent's."""


def limits_left(limits: Limits, budget: Budget, *, children: int, remaining_ms: int) -> Limits | None:
    """What is left of a run's limits for a child; None: a limit is used up.

    Args:
        limits: The run's own.
        budget: What it and its children have spent and hold.
        children: How many more may be started below it, this one not counted.
        remaining_ms: What its stage and itself have left.
    """
    held = budget.subtree.plus(budget.reserved)
    left = {
        "max_input_tokens": _left(limits.max_input_tokens, held.input_tokens),
        "max_output_tokens": _left(limits.max_output_tokens, held.output_tokens),
        "max_total_tokens": _left(limits.max_total_tokens, held.total_tokens),
    }
    cost = limits.max_cost_usd
    if cost is not None:
        cost -= type(cost)(str(usd_from_micros(held.cost_micros)))
    if remaining_ms <= 0 or (cost is not None and cost <= 0):
        return None
    if any(value is not None and value <= 0 for value in left.values()):
        return None
    stage_ms = min(limits.stage_timeout_ms or remaining_ms, remaining_ms)
    update = {
        **left,
        "max_cost_usd": cost,
        "max_children": children,
        "wall_clock_ms": min(limits.wall_clock_ms, remaining_ms),
        "stage_timeout_ms": stage_ms,
        "max_queue_ms": None,
    }
    return limits.model_copy(update=update)


def _left(limit: int | None, used: int) -> int | None:
    return None if limit is None else limit - used
