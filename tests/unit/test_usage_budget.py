"""Reserving before a request, settling after it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from remit.contract import AttemptUsage, LimitRequest, Limits
from remit.errors import LimitReached, MisuseError
from remit.usage import Budget, Price, PriceTier, Spent

PRICE = Price(
    input_micros=1_000_000,
    output_micros=10_000_000,
    cache_read_micros=100_000,
    cache_write_micros=1_250_000,
    version="config",
)
"""1 micro-USD per input token, 10 per output token, 1.25 per written one."""


def _used(tokens_in: int, out: int, *, read: int | None = None, written: int | None = None) -> AttemptUsage:
    return AttemptUsage(
        coverage="reported",
        input_tokens=tokens_in,
        output_tokens=out,
        total_tokens=tokens_in + out,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def test_reservation_holds_the_worst_case() -> None:
    """R24: the input estimate in its dearest bucket, and all the output that can come."""
    budget = Budget(Limits(max_cost_usd=Decimal(1)))
    held = budget.reserve(input_estimate=1_000, max_output=500, price=PRICE)
    assert (held.max_output_tokens, held.tokens, held.micros) == (500, 1_500, 1_250 + 5_000)
    assert budget.reserved == Spent(input_tokens=1_000, output_tokens=500, cost_micros=6_250)
    assert budget.subtree == Spent()


def test_parallel_calls_cannot_slip_past_together() -> None:
    """R24: each sees what the others hold; what doesn't fit is refused, and nothing is held for it."""
    budget = Budget(Limits(max_total_tokens=10_000))
    first = budget.reserve(input_estimate=1_000, max_output=3_000, price=None)
    budget.reserve(input_estimate=1_000, max_output=3_000, price=None)
    with pytest.raises(LimitReached) as caught:
        budget.reserve(input_estimate=1_500, max_output=3_000, price=None)
    assert caught.value.limit_code == "tokens"
    assert caught.value.fields["kind"] == "max_total_tokens"
    assert caught.value.fields["cap"] == 10_000
    assert caught.value.fields["value"] == 8_000 + 1_500 + 1_024
    assert budget.reserved.total_tokens == 8_000
    budget.settle(first, _used(900, 100))
    again = budget.reserve(input_estimate=1_500, max_output=3_000, price=None)
    assert again.max_output_tokens == 3_000


def test_runs_of_one_key_share_its_cap() -> None:
    """R24: a budget above those of two runs bounds them together, begins where it was, and says whose."""
    key = Budget(LimitRequest(max_cost_usd=Decimal("0.1")), spent=Spent(cost_micros=60_000), whose="key `ci`")
    first, second = Budget(Limits(), parent=key), Budget(Limits(max_cost_usd=Decimal(5)), parent=key)
    held = first.reserve(input_estimate=0, max_output=3_000, price=PRICE)
    assert held.micros == 30_000
    with pytest.raises(
        LimitReached, match=r"max_cost_usd of key `ci` to 0\.10024, and the limit is 0\.1"
    ) as caught:
        second.reserve(input_estimate=0, max_output=3_000, price=PRICE)
    assert (caught.value.limit_code, caught.value.fields["cap"]) == ("cost", 0.1)
    first.settle(held, _used(0, 100))
    assert (key.subtree.cost_micros, key.reserved) == (61_000, Spent())
    assert second.reserve(input_estimate=0, max_output=5_000, price=PRICE).max_output_tokens == 3_900


def test_output_bound_is_lowered_to_what_still_fits() -> None:
    """R24: a large bound doesn't make a call impossible that a smaller one allows; there is a floor."""
    budget = Budget(Limits(max_cost_usd=Decimal("0.05")))
    held = budget.reserve(input_estimate=1_000, max_output=128_000, price=PRICE)
    assert held.max_output_tokens == (50_000 - 1_250) // 10
    assert held.micros is not None
    assert held.micros <= 50_000
    budget.release(held)
    tight = Budget(Limits(max_cost_usd=Decimal("0.01")))
    with pytest.raises(LimitReached) as caught:
        tight.reserve(input_estimate=1_000, max_output=128_000, price=PRICE)
    assert caught.value.limit_code == "cost"
    assert tight.reserve(input_estimate=1_000, max_output=128_000, price=PRICE, min_output=800)
    small = Budget(Limits(max_cost_usd=Decimal("0.01")))
    assert small.reserve(input_estimate=1_000, max_output=300, price=PRICE).max_output_tokens == 300


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (Limits(max_input_tokens=999), "tokens"),
        (Limits(max_output_tokens=99), "tokens"),
        (Limits(max_total_tokens=1_099), "tokens"),
        (Limits(max_cost_usd=Decimal("0.002249")), "cost"),
    ],
    ids=str,
)
def test_each_limit_is_kept(limits: Limits, code: str) -> None:
    """R24, R55: one below what a request needs is refused, at what it needs it fits."""
    with pytest.raises(LimitReached) as caught:
        Budget(limits).reserve(input_estimate=1_000, max_output=100, price=PRICE)
    assert caught.value.limit_code == code
    (name,) = limits.model_fields_set
    step = Decimal("0.000001") if code == "cost" else 1
    wider = limits.model_copy(update={name: getattr(limits, name) + step})
    assert Budget(wider).reserve(input_estimate=1_000, max_output=100, price=PRICE).max_output_tokens == 100


def test_without_limits_everything_fits() -> None:
    """None means: no such limit."""
    held = Budget(Limits()).reserve(input_estimate=10**9, max_output=10**9, price=PRICE)
    assert held.max_output_tokens == 10**9


def test_settling_replaces_the_worst_case_by_what_was_used() -> None:
    """R18, R24: cached tokens cost their own price, once; the rest of the reservation is free again."""
    budget = Budget(Limits(max_cost_usd=Decimal(1)))
    held = budget.reserve(input_estimate=2_000, max_output=5_000, price=PRICE)
    settled = budget.settle(held, _used(2_000, 50, read=1_000, written=400))
    assert settled.cost_micros == 600 + 100 + 500 + 500
    assert budget.subtree == Spent(input_tokens=2_000, output_tokens=50, cost_micros=1_700)
    assert budget.reserved == Spent()


def test_refused_request_costs_nothing() -> None:
    """An error status instead of a stream: 0."""
    budget = Budget(Limits(max_cost_usd=Decimal(1)))
    held = budget.reserve(input_estimate=2_000, max_output=5_000, price=PRICE)
    assert budget.settle(held, AttemptUsage(coverage="refused")).cost_micros == 0
    assert budget.subtree == budget.reserved == Spent()


@pytest.mark.parametrize(
    "usage",
    [
        AttemptUsage(coverage="interrupted"),
        AttemptUsage(coverage="missing"),
        AttemptUsage(coverage="partial", input_tokens=100),
        AttemptUsage(coverage="reported", input_tokens=100),
        AttemptUsage(coverage="interrupted", input_tokens=100, output_tokens=7),
    ],
    ids=lambda usage: f"{usage.coverage}-{usage.input_tokens}-{usage.output_tokens}",
)
def test_what_is_not_known_counts_at_its_worst(usage: AttemptUsage) -> None:
    """R21, R24: a stream that broke off may have cost all that was reserved; its cost is unknown, not 0."""
    budget = Budget(Limits(max_cost_usd=Decimal(1)))
    held = budget.reserve(input_estimate=1_000, max_output=500, price=PRICE)
    settled = budget.settle(held, usage)
    assert settled.cost_micros is None
    assert budget.subtree == Spent(input_tokens=1_000, output_tokens=500, cost_micros=6_250)


def test_release_gives_everything_back() -> None:
    """R24: a request that wasn't sent leaves no trace."""
    budget = Budget(Limits(max_total_tokens=5_000))
    budget.release(budget.reserve(input_estimate=1_000, max_output=4_000, price=None))
    assert budget.reserved == budget.subtree == Spent()
    budget.reserve(input_estimate=1_000, max_output=4_000, price=None)


def test_reservation_is_used_once() -> None:
    """A second settle or release is a mistake of ours, not a second refund."""
    budget = Budget(Limits())
    held = budget.reserve(input_estimate=10, max_output=10, price=None)
    budget.settle(held, _used(5, 5))
    for again in (budget.release, lambda found: budget.settle(found, _used(5, 5))):
        with pytest.raises(MisuseError):
            again(held)
    with pytest.raises(MisuseError):
        Budget(Limits()).release(budget.reserve(input_estimate=10, max_output=10, price=None))


def test_children_share_their_parents_budget() -> None:
    """R24, R25: what a grandchild holds and spends counts at every level, each once; own is told apart."""
    root = Budget(Limits(max_total_tokens=10_000))
    child = root.child(Limits(max_total_tokens=8_000))
    grandchild = child.child(Limits())
    root.settle(root.reserve(input_estimate=100, max_output=2_000, price=None), _used(100, 10))
    held = grandchild.reserve(input_estimate=1_000, max_output=4_000, price=None)
    assert root.reserved == child.reserved == grandchild.reserved
    with pytest.raises(LimitReached):
        child.reserve(input_estimate=2_500, max_output=2_000, price=None)
    with pytest.raises(LimitReached):
        root.reserve(input_estimate=4_500, max_output=2_000, price=None)
    grandchild.settle(held, _used(1_000, 200))
    assert grandchild.own == Spent(input_tokens=1_000, output_tokens=200)
    assert child.own == Spent()
    assert child.subtree == grandchild.own
    assert root.own == Spent(input_tokens=100, output_tokens=10)
    assert root.subtree == Spent(input_tokens=1_100, output_tokens=210)


def test_childs_narrower_limit_holds_for_the_child_alone() -> None:
    """R25: limits are min(own, what is left)."""
    root = Budget(Limits(max_total_tokens=100_000))
    child = root.child(Limits(max_total_tokens=3_000))
    with pytest.raises(LimitReached) as caught:
        child.reserve(input_estimate=2_500, max_output=2_000, price=None)
    assert caught.value.fields["cap"] == 3_000
    root.reserve(input_estimate=2_500, max_output=2_000, price=None)


def test_run_that_is_taken_up_again_starts_from_what_it_spent() -> None:
    """R24: a limit holds over a crash."""
    spent = Spent(input_tokens=4_000, output_tokens=500)
    root = Budget(Limits(max_total_tokens=10_000))
    child = Budget(Limits(), parent=root, spent=spent)
    assert root.subtree == child.own == spent
    assert root.own == Spent()
    with pytest.raises(LimitReached):
        child.reserve(input_estimate=5_000, max_output=2_000, price=None)


def test_limits_warn_once_at_80_percent() -> None:
    """At 80 % of a limit a warning goes out, once, of spending and not of what is only held."""
    budget = Budget(Limits(max_total_tokens=1_000, max_cost_usd=Decimal("0.01")))
    held = budget.reserve(input_estimate=100, max_output=900, price=PRICE, min_output=1)
    settled = budget.settle(held, _used(100, 699))
    assert [(found.kind, found.value, found.cap) for found in settled.warnings] == []
    held = budget.reserve(input_estimate=1, max_output=1, price=PRICE)
    settled = budget.settle(held, _used(1, 0))
    assert [(found.kind, found.value, found.cap) for found in settled.warnings] == [
        ("max_total_tokens", 800, 1_000)
    ]
    held = budget.reserve(input_estimate=1, max_output=100, price=PRICE)
    settled = budget.settle(held, _used(1, 100))
    assert [(found.kind, found.value) for found in settled.warnings] == [("max_cost_usd", 0.008092)]
    held = budget.reserve(input_estimate=1, max_output=1, price=PRICE)
    assert budget.settle(held, _used(1, 1)).warnings == ()


def test_longer_requests_have_dearer_prices() -> None:
    """A tier holds for the whole request, worst case and cost alike."""
    tiered = Price(
        input_micros=1_000_000,
        output_micros=1_000_000,
        cache_read_micros=1_000_000,
        cache_write_micros=1_000_000,
        version="config",
        tiers=(
            PriceTier(
                above_input_tokens=1_000,
                input_micros=2_000_000,
                output_micros=4_000_000,
                cache_read_micros=2_000_000,
                cache_write_micros=2_000_000,
            ),
        ),
    )
    budget = Budget(Limits())
    assert budget.reserve(input_estimate=1_000, max_output=10, price=tiered).micros == 1_010
    held = budget.reserve(input_estimate=1_001, max_output=10, price=tiered)
    assert held.micros == 2_002 + 40
    assert budget.settle(held, _used(1_000, 10)).cost_micros == 1_010


def test_money_cap_is_never_rounded_up() -> None:
    """A cap below a micro-dollar allows nothing that costs."""
    budget = Budget(Limits(max_cost_usd=Decimal("0.0000019")))
    assert budget.reserve(input_estimate=1, max_output=1, price=None)
    with pytest.raises(LimitReached):
        budget.reserve(input_estimate=2, max_output=1, price=PRICE)


def test_overshoot_is_at_most_what_the_estimates_were_short_of() -> None:
    """R24: the one stated margin. Output can't pass its bound; input may, and then no more fits."""
    budget = Budget(Limits(max_total_tokens=4_000))
    held = [budget.reserve(input_estimate=500, max_output=1_500, price=None) for _ in range(2)]
    for one in held:
        budget.settle(one, _used(700, 1_500))
    assert budget.subtree.total_tokens == 4_000 + 2 * 200
    with pytest.raises(LimitReached):
        budget.reserve(input_estimate=1, max_output=1, price=None)
