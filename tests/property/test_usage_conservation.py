"""The ledger and the budget, whatever comes."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remit.contract import AttemptCoverage, AttemptUsage, Limits, TokenCounts
from remit.errors import LimitReached
from remit.usage import (
    Budget,
    LedgerRow,
    Price,
    Reservation,
    Spent,
    cost_micros,
    strict_causes,
    summarise,
    worst_cost_micros,
)

FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "total_tokens",
)
NUMBER = st.none() | st.integers(0, 10_000)
COVERAGES: list[AttemptCoverage] = ["reported", "refused", "interrupted", "partial", "missing"]
COVERAGE = st.sampled_from(COVERAGES)
MONEY = st.none() | st.integers(0, 10_000)


@st.composite
def rows(draw: st.DrawFn, run: str) -> list[LedgerRow]:
    count = draw(st.integers(0, 6))
    return [
        LedgerRow(
            run_id=run,
            attempt_id=f"{run}-{number}",
            stage_id=draw(st.sampled_from(["plan", "work-1", "work-2", "review-1"])),
            model=draw(st.sampled_from(["a:x", "b:y"])),
            usage=AttemptUsage.model_validate(
                {"coverage": draw(COVERAGE), **{name: draw(NUMBER) for name in FIELDS}}
            ),
            cost_micros=draw(MONEY),
            reserved_micros=draw(MONEY),
        )
        for number in range(count)
    ]


def _known(counts: TokenCounts, name: str) -> int:
    return getattr(counts, name) or 0


@given(own=rows("own"), children=rows("child"))
def test_ledger_is_conserved(own: list[LedgerRow], children: list[LedgerRow]) -> None:
    """R25: sum over attempts = run = by stage = by model, and own + children = subtree."""
    bill = summarise(own, children)
    usage = bill.usage
    counted = [row.usage for row in (*own, *children) if row.coverage != "refused"]
    for name in FIELDS:
        total = sum(_known(one, name) for one in counted)
        assert _known(usage, name) == _known(usage.subtree, name) == total
        assert sum(_known(share, name) for share in usage.by_stage.values()) == total
        assert sum(_known(share, name) for share in usage.by_model.values()) == total
        mine = sum(_known(row.usage, name) for row in own if row.coverage != "refused")
        assert _known(usage.own, name) == mine
    coverage = usage.coverage
    kinds = (coverage.reported, coverage.refused, coverage.interrupted, coverage.partial, coverage.missing)
    assert sum(kinds) == coverage.priced + coverage.unpriced == coverage.attempts == len(own) + len(children)


@given(own=rows("own"), children=rows("child"))
def test_cost_is_never_guessed(own: list[LedgerRow], children: list[LedgerRow]) -> None:
    """M12, R21, R23: a number only when every attempt is whole and has a cost; the most is never below it."""
    bill = summarise(own, children)
    every = (*own, *children)
    known = all(
        row.coverage == "refused" or (row.coverage == "reported" and row.cost_micros is not None)
        for row in every
    )
    assert (bill.cost_usd is not None) == known
    if bill.cost_usd is not None:
        assert bill.estimated_max_cost_usd == bill.cost_usd
    assert bill.usage.complete == (not strict_causes(every))


PRICES = st.builds(
    Price,
    input_micros=st.integers(0, 10**8),
    output_micros=st.integers(0, 10**8),
    cache_read_micros=st.integers(0, 10**8),
    cache_write_micros=st.integers(0, 10**8),
    version=st.just("config"),
)


@given(price=PRICES, data=st.data())
def test_no_token_is_charged_twice(price: Price, data: st.DataObject) -> None:
    """R18: each token in one bucket; the worst case of the same size is never below the cost."""
    tokens_in = data.draw(st.integers(0, 10**7))
    read = data.draw(st.integers(0, tokens_in))
    written = data.draw(st.integers(0, tokens_in - read))
    out = data.draw(st.integers(0, 10**7))
    usage = TokenCounts(
        input_tokens=tokens_in,
        output_tokens=out,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=out,
    )
    cost = cost_micros(price, usage)
    assert cost is not None
    exact = (
        Decimal(tokens_in - read - written) * price.input_micros
        + Decimal(read) * price.cache_read_micros
        + Decimal(written) * price.cache_write_micros
        + Decimal(out) * price.output_micros
    ) / 1_000_000
    assert 0 <= cost - exact < 1
    assert cost <= worst_cost_micros(price, input_tokens=tokens_in, output_tokens=out)


@given(price=PRICES, usage=st.builds(TokenCounts, input_tokens=NUMBER, output_tokens=NUMBER))
def test_unknown_usage_has_no_cost(price: Price, usage: TokenCounts) -> None:
    """R21: without input or output there is no amount."""
    known = usage.input_tokens is not None and usage.output_tokens is not None
    assert (cost_micros(price, usage) is not None) == known


PRICE = Price(
    input_micros=1_000_000,
    output_micros=5_000_000,
    cache_read_micros=100_000,
    cache_write_micros=1_250_000,
    version="config",
)
CAPS = Limits(
    max_input_tokens=40_000, max_output_tokens=20_000, max_total_tokens=50_000, max_cost_usd=Decimal("0.1")
)


class BudgetMachine(RuleBasedStateMachine):
    """R24, R25: calls are held, settled and given back beside one another, on three levels of runs."""

    def __init__(self) -> None:
        super().__init__()
        root = Budget(CAPS)
        child = root.child(Limits(max_total_tokens=30_000))
        self.budgets = [root, child, child.child(Limits(max_cost_usd=Decimal("0.02"))), root.child(Limits())]
        self.held: list[Reservation] = []
        self.spent = [Spent() for _ in self.budgets]

    @rule(who=st.integers(0, 3), tokens_in=st.integers(0, 9_000), out=st.integers(1, 9_000))
    def reserve(self, who: int, tokens_in: int, out: int) -> None:
        before = [budget.reserved for budget in self.budgets]
        try:
            held = self.budgets[who].reserve(
                input_estimate=tokens_in, max_output=out, price=PRICE, min_output=200
            )
        except LimitReached:
            assert [budget.reserved for budget in self.budgets] == before
        else:
            assert min(out, 200) <= held.max_output_tokens <= out
            self.held.append(held)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), coverage=COVERAGE)
    def settle(self, data: st.DataObject, coverage: AttemptCoverage) -> None:
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        usage = AttemptUsage(
            coverage=coverage,
            input_tokens=data.draw(st.integers(0, held.amount.input_tokens)),
            output_tokens=data.draw(st.integers(0, held.max_output_tokens)),
        )
        held.budget.settle(held, usage)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        held.budget.release(held)

    @invariant()
    def nothing_passes_a_limit(self) -> None:
        root, child, grandchild, _ = self.budgets
        total = root.subtree.plus(root.reserved)
        assert total.input_tokens <= 40_000
        assert total.output_tokens <= 20_000
        assert total.total_tokens <= 50_000
        assert total.cost_micros <= 100_000
        assert child.subtree.plus(child.reserved).total_tokens <= 30_000
        assert grandchild.subtree.plus(grandchild.reserved).cost_micros <= 20_000

    @invariant()
    def levels_add_up(self) -> None:
        root, child, grandchild, other = self.budgets
        assert root.subtree == root.own.plus(child.subtree).plus(other.subtree)
        assert child.subtree == child.own.plus(grandchild.subtree)
        held = Spent()
        for reservation in self.held:
            held = held.plus(reservation.amount)
        assert root.reserved == held


TestBudgetMachine = BudgetMachine.TestCase
TestBudgetMachine.settings = settings(stateful_step_count=40)
