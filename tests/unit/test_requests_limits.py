"""Limits from several statements, and lengths of time."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.contract import LimitRequest, Limits
from remit.errors import InvalidRequest
from remit.requests import narrow_limits, parse_duration_ms, resolve_limits


def test_defaults_hold_where_nobody_says_anything() -> None:
    """S4: the limits of the contract; no money limit by API."""
    assert resolve_limits() == resolve_limits(LimitRequest(), LimitRequest()) == Limits()
    assert Limits().max_cost_usd is None


def test_narrower_statement_wins() -> None:
    """S4: whichever place it came from, limit by limit."""
    binding = LimitRequest(wall_clock_ms=60_000, max_cost_usd=Decimal(5), max_children=0)
    request = LimitRequest(wall_clock_ms=90_000, max_cost_usd=Decimal(1), max_tool_rounds=7)
    limits = resolve_limits(binding, request)
    assert limits == resolve_limits(request, binding)
    assert (limits.wall_clock_ms, limits.max_cost_usd) == (60_000, Decimal(1))
    assert (limits.max_children, limits.max_tool_rounds) == (0, 7)
    assert limits.max_corrections == Limits().max_corrections


def test_stated_limit_replaces_the_default_also_where_it_is_wider() -> None:
    """A default is what holds when nobody says anything."""
    assert resolve_limits(LimitRequest(wall_clock_ms=10 * 3_600_000)).wall_clock_ms == 36_000_000


def test_who_may_only_narrow_widens_nothing() -> None:
    """A host's own limits bound what was resolved, defaults included."""
    limits = narrow_limits(Limits(), LimitRequest(wall_clock_ms=10**9, max_tool_rounds=5))
    assert (limits.wall_clock_ms, limits.max_tool_rounds) == (3_600_000, 5)
    assert narrow_limits(Limits(max_cost_usd=Decimal(2)), LimitRequest()).max_cost_usd == Decimal(2)


STATED = st.builds(
    LimitRequest,
    wall_clock_ms=st.none() | st.integers(1, 10**9),
    max_children=st.none() | st.integers(0, 10),
    max_cost_usd=st.none() | st.decimals(Decimal("0.01"), 100, places=2),
)


@given(st.lists(STATED, max_size=4))
def test_resolving_never_exceeds_a_statement(stated: list[LimitRequest]) -> None:
    """S4: of each limit the smallest statement, in any order."""
    limits = resolve_limits(*stated)
    assert limits == resolve_limits(*reversed(stated))
    for name in ("wall_clock_ms", "max_children", "max_cost_usd"):
        values = [getattr(one, name) for one in stated if getattr(one, name) is not None]
        assert getattr(limits, name) == (min(values) if values else getattr(Limits(), name))


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90", 90_000),
        ("0.5", 500),
        ("500ms", 500),
        ("30m", 1_800_000),
        ("1h30m", 5_400_000),
        ("1h 30m".replace(" ", ""), 5_400_000),
        ("1.5h", 5_400_000),
        ("2d", 172_800_000),
        ("1m30s500ms", 90_500),
        (" 10S ", 10_000),
        ("0.001s", 1),
        ("1d0h1s", 86_401_000),
    ],
)
def test_lengths_of_time(text: str, milliseconds: int) -> None:
    """`--timeout`: a bare number is seconds."""
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "0", "0s", "0.0001s", "-5", "-5m", "+5m", "x", "m", "30 m", "1m1m", "30s1m", "1e3", "nan",
        "inf", "5x", "1h30", ".5h", "1.h", "9" * 13, "99999999999d", "1,5h", "١m",
    ],
)  # fmt: skip
def test_what_is_no_length_of_time(text: str) -> None:
    """R55: refused with an example, never taken as something else."""
    with pytest.raises(InvalidRequest):
        parse_duration_ms(text)
