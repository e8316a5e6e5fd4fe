"""The bill of a run."""

from __future__ import annotations

import pytest

from remit.contract import AttemptCoverage, AttemptEnded, AttemptStarted, AttemptUsage, TokenCounts
from remit.errors import InternalError
from remit.usage import LedgerRow, strict_causes, strict_coverage, summarise, summarise_attempts


def row(
    number: int,
    coverage: AttemptCoverage = "reported",
    *,
    counts: tuple[int | None, int | None, int | None, int | None, int | None] = (100, 20, 60, 10, 5),
    cost: int | None = 300,
    reserved: int | None = 900,
    stage: str = "work-1",
    model: str = "openai:gpt-5.2",
    run: str = "run_1",
) -> LedgerRow:
    tokens_in, out, read, written, reasoning = counts
    total = None if tokens_in is None or out is None else tokens_in + out
    return LedgerRow(
        run_id=run,
        attempt_id=f"att_{number}",
        stage_id=stage,
        model=model,
        usage=AttemptUsage(
            coverage=coverage,
            input_tokens=tokens_in,
            output_tokens=out,
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=reasoning,
            total_tokens=total,
        ),
        cost_micros=cost,
        reserved_micros=reserved,
    )


NONE = (None, None, None, None, None)


def test_run_without_attempts_used_nothing() -> None:
    """R7: cancelled in the queue it costs 0, and that is known."""
    bill = summarise([])
    assert bill.usage.complete
    assert bill.usage.total_tokens == 0
    assert bill.cost_usd == bill.estimated_max_cost_usd == 0.0
    assert bill.usage.coverage.attempts == 0
    assert bill.usage.by_stage == bill.usage.by_model == {}


def test_complete_and_priced_attempts_have_a_cost() -> None:
    """M4, M5, M31: six numbers are sums, cache and reasoning lie inside and aren't added again."""
    bill = summarise([row(1), row(2, stage="review-1", model="anthropic:claude-opus-4-7", cost=200)])
    usage = bill.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (200, 40, 240)
    assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (120, 20, 10)
    assert usage.complete
    assert usage.causes == ()
    assert bill.cost_usd == bill.estimated_max_cost_usd == 0.0005
    assert set(usage.by_stage) == {"work", "review"}
    assert usage.by_stage["review"].cost_usd == 0.0002
    assert usage.by_model["openai:gpt-5.2"].total_tokens == 120


def test_cost_is_null_when_a_price_is_missing() -> None:
    """M12, R23: the tokens are known all the same; no most can be named either."""
    bill = summarise([row(1), row(2, cost=None, reserved=None, model="x:unpriced")])
    assert bill.cost_usd is None
    assert bill.estimated_max_cost_usd is None
    assert bill.usage.complete
    assert bill.usage.total_tokens == 240
    assert (bill.usage.coverage.priced, bill.usage.coverage.unpriced) == (1, 1)
    assert bill.usage.by_model["x:unpriced"].cost_usd is None
    assert bill.usage.by_model["openai:gpt-5.2"].cost_usd == 0.0003


def test_broken_off_stream_is_not_free() -> None:
    """R21: its known part is a lower bound, the bill isn't complete, and the reservation bounds the cost."""
    bill = summarise([row(1), row(2, "interrupted", counts=(100, 3, None, None, None), cost=None)])
    assert bill.usage.total_tokens == 120 + 103
    assert not bill.usage.complete
    assert bill.usage.causes == ("interrupted",)
    assert bill.cost_usd is None
    assert bill.estimated_max_cost_usd == (300 + 900) / 1_000_000


def test_number_that_nobody_reported_is_null() -> None:
    """A number that isn't known is null, never 0; a refused attempt's 0 is known."""
    bill = summarise([row(1, "missing", counts=NONE, cost=None)])
    assert bill.usage.total_tokens is None
    assert bill.usage.input_tokens is None
    bill = summarise([row(1, counts=(10, 5, None, None, None))])
    assert (bill.usage.input_tokens, bill.usage.reasoning_tokens) == (10, None)
    bill = summarise([row(1, "refused", counts=NONE, cost=None)])
    assert bill.usage.total_tokens == 0


def test_refused_attempt_needs_no_price() -> None:
    """An error status instead of a stream costs 0, whatever the model."""
    bill = summarise([row(1), row(2, "refused", counts=NONE, cost=None, reserved=None)])
    assert bill.usage.complete
    assert bill.cost_usd == 0.0003
    assert bill.usage.coverage.refused == 1
    assert bill.usage.coverage.unpriced == 0


def test_causes_stand_in_their_order() -> None:
    """M10, M11: the closed set, in the fixed order, whatever came first."""
    rows = [row(1, "interrupted"), row(2, "missing", counts=NONE, cost=None), row(3, "partial", cost=None)]
    bill = summarise(rows, readable=False, pending_repair=True)
    assert bill.usage.causes == (
        "unreadable_usage_record",
        "pending_usage_repair",
        "partial_attempt_usage",
        "missing_attempt_usage",
        "interrupted",
    )


def test_strict_view_knows_no_interrupted() -> None:
    """M10, M37: there it is partial when some usage was read, else missing."""
    some = row(1, "interrupted", counts=(100, None, None, None, None), cost=None)
    nothing = row(2, "interrupted", counts=NONE, cost=None)
    assert strict_coverage(some.usage) == "partial"
    assert strict_coverage(nothing.usage) == "missing"
    assert strict_causes([row(3), nothing, some]) == ("partial_attempt_usage", "missing_attempt_usage")
    assert strict_causes([row(3)]) == ()
    assert strict_causes([], readable=False, pending_repair=True) == (
        "unreadable_usage_record",
        "pending_usage_repair",
    )


@pytest.mark.parametrize(("readable", "pending_repair"), [(False, False), (True, True)])
def test_ledger_that_is_unreadable_or_behind_has_no_cost(readable: bool, pending_repair: bool) -> None:
    """M11: what can't be read may have cost anything."""
    bill = summarise([row(1)], readable=readable, pending_repair=pending_repair)
    assert not bill.usage.complete
    assert bill.cost_usd is None
    assert bill.estimated_max_cost_usd is None
    assert bill.usage.by_stage["work"].cost_usd is None


def test_children_count_in_the_subtree_alone() -> None:
    """R25: own says what the run itself used, subtree and the top numbers all, each attempt once."""
    bill = summarise([row(1)], [row(1, run="run_2"), row(2, run="run_3", stage="plan")])
    assert bill.usage.own.total_tokens == 120
    assert bill.usage.subtree.total_tokens == bill.usage.total_tokens == 360
    assert bill.usage.coverage.attempts == 3
    assert bill.usage.by_stage["plan"].total_tokens == 120
    assert bill.cost_usd == 0.0009


def test_attempt_that_stands_twice_is_an_error_of_ours() -> None:
    """R19, R22: one charge per attempt, keyed by its own id."""
    with pytest.raises(InternalError):
        summarise([row(1), row(1)])


def test_attempt_that_never_ended_was_interrupted() -> None:
    """R22: a crash leaves a row without an end: known to have been sent, not known what it used."""
    started = AttemptStarted(
        attempt_id="att_1", stage_id="work-2", round=1, ordinal=1, model="openai:gpt-5.2",
        reserved_tokens=5_000, reserved_micros=800,
    )  # fmt: skip
    bill = summarise_attempts([(started, None)])
    assert bill.usage.causes == ("interrupted",)
    assert bill.usage.coverage.interrupted == 1
    assert bill.usage.by_stage.keys() == {"work"}
    assert bill.estimated_max_cost_usd == 0.0008
    assert bill.cost_usd is None


def test_stored_attempt_is_a_row() -> None:
    """What the events hold is what is billed."""
    started = AttemptStarted(
        attempt_id="att_1", stage_id="plan", round=1, ordinal=1, model="m:x", reserved_tokens=5_000,
        reserved_micros=800,
    )  # fmt: skip
    usage = AttemptUsage(coverage="reported", input_tokens=11, output_tokens=7, total_tokens=18)
    ended = AttemptEnded(
        attempt_id="att_1", stage_id="plan", round=1, ordinal=1, model="m:x", status="completed",
        usage=usage, cost_micros=123, price_version="config",
    )  # fmt: skip
    bill = summarise_attempts([(started, ended)])
    assert bill.usage.total_tokens == 18
    assert bill.cost_usd == 0.000123
    assert isinstance(bill.usage.own, TokenCounts)
