"""Which clock a run is ended by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remit.contract import Limits
from remit.runs._deadlines import queue_terminal, stage_clock, wall_clock_terminal

MS = st.integers(min_value=1, max_value=10**9)


def test_equal_limits_belong_to_the_budget() -> None:
    """S63: wall clock and stage timeout of 10 ms each end as the request's budget."""
    limits = Limits(wall_clock_ms=10, stage_timeout_ms=10)
    clock = stage_clock(limits, kind="plan", stage_id="plan", wall_ends=100.010, now=100.0)
    terminal = clock.terminal()
    assert (terminal.kind, terminal.class_, terminal.code) == ("failed", "budget", "wall_clock")
    assert terminal.limit is not None
    assert (terminal.limit.kind, terminal.limit.cap) == ("wall_clock_ms", 10)


def test_a_shorter_stage_times_out() -> None:
    """S64: a stage timeout below the wall clock is the class timeout, with the stage's kind as its code."""
    limits = Limits(wall_clock_ms=1000, stage_timeout_ms=10)
    clock = stage_clock(limits, kind="plan", stage_id="plan", wall_ends=101.0, now=100.0)
    terminal = clock.terminal()
    assert (terminal.class_, terminal.code, terminal.stage) == ("timeout", "plan", "plan")
    assert clock.ends == 100.01


def test_no_stage_timeout_means_the_wall_clock() -> None:
    """A stage without a timeout of its own never ends as a timeout."""
    limits = Limits(wall_clock_ms=50)
    clock = stage_clock(limits, kind="work", stage_id="work-2", wall_ends=100.0, now=99.99)
    assert clock.is_budget


@given(wall_ms=MS, stage_ms=MS, passed_ms=st.integers(min_value=0, max_value=10**9))
def test_the_class_follows_from_the_deadlines(wall_ms: int, stage_ms: int, passed_ms: int) -> None:
    """S43, S63: the earlier deadline ends the stage, and the class comes from the two deadlines alone."""
    limits = Limits(wall_clock_ms=wall_ms, stage_timeout_ms=stage_ms)
    now = 1000.0 + passed_ms / 1000
    wall_ends = 1000.0 + wall_ms / 1000
    clock = stage_clock(limits, kind="review", stage_id="review-1", wall_ends=wall_ends, now=now)
    assert clock.ends == min(wall_ends, now + stage_ms / 1000)
    assert (clock.terminal().class_ == "budget") == (wall_ends <= now + stage_ms / 1000)


def test_terminals_name_their_limit() -> None:
    """A budget terminal fills its limit."""
    for terminal in (queue_terminal(5), wall_clock_terminal(7)):
        assert terminal.class_ == "budget"
        assert terminal.limit is not None
        assert terminal.limit.cap in (5, 7)
