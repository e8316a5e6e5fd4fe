"""Limits of tokens, money, rounds and time; attempts that are stopped by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from remit.contract import Limits, WorkKind
from remit.errors import LimitReached, ProviderError
from remit.models import AttemptStart, ModelRequest, UserMessage, estimate_input_tokens
from remit.stages import StageInput
from remit.stages._nearing import NearingLimits, near_already
from remit.testing._fakes_stages import FakePool, PoolReply, tool_response
from remit.usage import Price, Spent, WorkingTime
from stage_kit import Bench, answer, calls

PRICE = Price(
    input_micros=0, output_micros=1_000_000, cache_read_micros=0, cache_write_micros=0, version="config"
)


async def test_a_request_that_does_not_fit_is_not_sent() -> None:
    """R24: reserved before it is sent; class budget, nothing on the wire, partial kept."""
    first = calls(("c1", "grep"), text="So far.", output_tokens=900)
    pool = FakePool(first, answer("work"), max_output_tokens=1_000)
    async with Bench("work", pool=pool, limits={"max_output_tokens": 1_000}) as bench:
        with pytest.raises(LimitReached) as reached:
            await bench.run()
        assert reached.value.limit_code == "tokens"
        assert reached.value.fields["kind"] == "max_output_tokens"
        assert len(bench.journal.of_type("attempt.started")) == 1
        assert bench.partial.text == "So far."
        bench.check_record()


async def test_a_money_cap_lowers_the_output_bound_first() -> None:
    """R24: what still fits may be asked for; the pool is told the bound that it must send."""
    pool = FakePool(
        calls(("c1", "grep"), output_tokens=3_000), answer("work"), price=PRICE, max_output_tokens=4_000
    )
    async with Bench("work", pool=pool, limits={"max_cost_usd": Decimal("0.005")}) as bench:
        await bench.run()
        assert pool.bounds == [4_000, 2_000]


async def test_a_limit_that_is_near_is_told_once_and_goes_out() -> None:
    """R55: at 80 % of tokens the model is told, and `limit.warning` is stored; neither twice."""
    replies = [calls((f"c{n}", "grep"), output_tokens=300) for n in range(8)]
    pool = FakePool(*replies, max_output_tokens=300)
    async with Bench("work", pool=pool, limits={"max_output_tokens": 1_800}) as bench:
        with pytest.raises(LimitReached):
            await bench.run()
        assert len(bench.journal.of_type("attempt.started")) == 6
        notes = [bench.last_note(n) for n in range(1, 6)]
        assert [("max_output_tokens" in note) for note in notes].count(True) == 1
        (warning,) = bench.journal.of_type("limit.warning")
        assert (warning.kind, warning.value, warning.cap, warning.stage_id) == (
            "max_output_tokens",
            1_500,
            1_800,
            "work-1",
        )


CASES = (
    ({"max_output_tokens": 12_000}, {"output_tokens": 2_000}, "tokens", "max_output_tokens"),
    ({"max_total_tokens": 12_000}, {"output_tokens": 2_000}, "tokens", "max_total_tokens"),
    ({"max_cost_usd": Decimal("0.012")}, {"output_tokens": 2_000}, "cost", "max_cost_usd"),
)


@pytest.mark.parametrize(("limits", "used", "code", "name"), CASES)
async def test_the_last_request_is_kept_for_the_answer(
    limits: dict[str, Any], used: dict[str, Any], code: str, name: str
) -> None:
    """R13: as with rounds, so with tokens and money: the last request is for the answer alone."""
    pool = FakePool(*(calls((f"c{n}", "grep"), **used) for n in range(4)), answer("work"), price=PRICE)
    async with Bench("work", pool=pool, limits=limits) as bench:
        done = await bench.run()
        assert done.rounds == 5
        offered = [[tool.name for tool in request.tools] for request in bench.requests]
        assert all("grep" in names for names in offered[:-1])
        assert offered[-1] == ["submit_work"]
        assert f"left of the limit {name}" in bench.last_told()
        assert pool.bounds[-1] >= 3_900  # and it has room to say something
        assert code in ("tokens", "cost")
        bench.check_record()


@pytest.mark.parametrize(("limits", "used", "code", "name"), CASES)
async def test_no_answer_in_the_request_kept_for_it_is_the_limit(
    limits: dict[str, Any], used: dict[str, Any], code: str, name: str
) -> None:
    """R13, R55: class budget with the limit named, and nothing is sent after it."""
    pool = FakePool(*(calls((f"c{n}", "grep"), **used) for n in range(9)), price=PRICE)
    async with Bench("work", pool=pool, limits=limits) as bench:
        with pytest.raises(LimitReached) as reached:
            await bench.run()
        assert (reached.value.limit_code, reached.value.fields["kind"]) == (code, name)
        assert len(bench.journal.of_type("attempt.started")) == 5
        bench.check_record()


async def test_the_request_for_the_answer_gives_way_where_its_input_is_too_long() -> None:
    """R13: where the history itself doesn't fit any more, old results go."""
    pool = SizedPool(*(calls((f"c{n}", "grep"), input_tokens=0) for n in range(4)), answer("work"))
    tools = {"grep": lambda use: tool_response(use, "line\n" * (4_000 if use.tool_call_id == "c3" else 4))}
    async with Bench("work", pool=pool, tools=tools, limits={"max_input_tokens": 6_000}) as bench:
        await bench.run()
        assert [tool.name for tool in bench.requests[-1].tools] == ["submit_work"]
        assert "too long" in bench.last_told()
        bench.check_record()


class SizedPool(FakePool):
    """Its attempts are as large as their requests."""

    def _start(self, request: ModelRequest, attempt_id: str) -> AttemptStart:
        start = super()._start(request, attempt_id)
        return replace(start, input_tokens_estimate=estimate_input_tokens(request.messages, request.tools))


async def test_working_time_that_is_nearly_over_is_told() -> None:
    """R54: at 80 % of the working time the model is told; waits don't count."""
    clock: Any = Dial()
    working = WorkingTime(clock=clock)
    stage: Any = type("Stage", (), {"limits": Limits(working_limit_ms=1_000), "stage_id": "work-1"})
    near = NearingLimits(stage, clock=clock, remaining_s=lambda: None, working=working)
    with working.waiting():
        clock.at += 5
    clock.at += 0.7
    assert near.check(tool_rounds=0) == ()
    clock.at += 0.1
    assert [(w.kind, w.value, w.cap) for w in near.check(tool_rounds=0)] == [("working_limit_ms", 800, 1_000)]
    assert near.check(tool_rounds=0) == ()


async def test_rounds_that_are_nearly_used_up_are_told() -> None:
    """R13: at 80 % of the tool rounds the model hears of it, before the last request."""
    replies = [calls((f"c{n}", "grep")) for n in range(5)]
    async with Bench("work", *replies, answer("work"), limits={"max_tool_rounds": 5}) as bench:
        await bench.run()
        notes = [bench.last_note(n) for n in range(1, 6)]
        assert ["max_tool_rounds" in note for note in notes] == [False, False, False, True, False]
        assert "your next reply must be the answer" in notes[4]
        assert [w.kind for w in bench.journal.of_type("limit.warning")] == ["max_tool_rounds"]


async def test_time_that_is_nearly_over_is_told() -> None:
    """At 80 % of the wall clock the model is told, beside the results or in a correction."""
    left = iter([3_000.0, 600.0, 500.0])
    replies = (calls(("c1", "grep")), PoolReply(text="x"), answer("work"))
    async with Bench(
        "work", *replies, remaining_s=lambda: next(left), limits={"wall_clock_ms": 3_600_000}
    ) as bench:
        await bench.run()
        assert bench.last_note(1) == ""
        assert "83 % of the limit wall_clock_ms" in bench.last_told(2)


async def test_a_later_stage_is_told_of_what_came_near_before_it() -> None:
    """A new conversation doesn't know; it is told at its beginning, without a second warning."""
    async with Bench("review", answer("review"), limits={"max_total_tokens": 10_000}) as bench:
        held = bench.budget.reserve(input_estimate=5_000, max_output=4_000, price=None)
        bench.budget.settle(held, PoolReply(input_tokens=5_000, output_tokens=4_000).usage())
        bench.pool = FakePool(answer("review"), max_output_tokens=100)
        await bench.run()
        message = bench.requests[0].messages[1]
        assert isinstance(message, UserMessage)
        assert "90 % of the limit max_total_tokens" in message.text
        assert bench.journal.of_type("limit.warning") == []


class Dial:
    """A clock to turn by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at


@pytest.mark.parametrize(
    ("limits", "spent_s", "left_s", "told"),
    [
        ({"wall_clock_ms": 10_000}, 7.9, 2.1, None),
        ({"wall_clock_ms": 10_000}, 8.0, 2.0, ("wall_clock_ms", 8_000, 10_000)),
        ({"wall_clock_ms": 10_000}, 1.0, 0.5, ("wall_clock_ms", 9_500, 10_000)),
        ({"stage_timeout_ms": 1_000}, 0.8, 0.2, ("stage_timeout_ms", 800, 1_000)),
        ({"stage_timeout_ms": 1_000}, 0.7, 0.3, None),
        ({"stage_timeout_ms": 5_000, "wall_clock_ms": 10_000}, 1.0, 1.0, ("wall_clock_ms", 9_000, 10_000)),
        ({"wall_clock_ms": 10}, 0.009, 0.001, ("wall_clock_ms", 9, 10)),
        ({}, 1.0, None, None),
    ],
)
def test_the_limit_that_runs_out_first_is_the_one_named(
    limits: dict[str, Any], spent_s: float, left_s: float | None, told: tuple[str, int, int] | None
) -> None:
    """R53: the nearest clock is the one that counts, and it is named."""
    clock: Any = Dial()
    stage: Any = type("Stage", (), {"limits": Limits(**limits), "stage_id": "work-1"})
    near = NearingLimits(stage, clock=clock, remaining_s=lambda: left_s)
    clock.at += spent_s
    found = [(w.kind, w.value, w.cap) for w in near.check(tool_rounds=0)]
    assert found == ([told] if told else [])
    assert near.check(tool_rounds=0) == ()


def test_what_is_near_at_the_beginning_is_read_from_what_is_spent() -> None:
    """Each limit of tokens and money on its own."""
    limits = Limits(max_input_tokens=100, max_output_tokens=100, max_cost_usd=Decimal(1))
    stage: Any = type("Stage", (), {"limits": limits})
    near = near_already(stage, Spent(input_tokens=80, output_tokens=79, cost_micros=900_000))
    assert [(w.kind, w.value, w.cap) for w in near] == [
        ("max_input_tokens", 80, 100),
        ("max_cost_usd", 0.9, 1.0),
    ]


# ---- stopped by hand


async def stop_attempt(bench: Bench, number: int) -> None:
    """What an operator's cancel of one attempt does."""
    await bench.pool.begun.wait()
    assert bench.registry.cancel("run_1", f"run_1.{bench.stage.stage_id}.att_{number}")
    while bench.pool.begun.is_set():
        await asyncio.sleep(0)


async def test_an_attempt_stopped_by_hand_is_asked_again_once() -> None:
    """R3: a single attempt can be cancelled; the stage goes on with a new one."""
    async with Bench("plan", PoolReply(gate=asyncio.Event()), answer("plan")) as bench:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(bench.run())
            await stop_attempt(bench, 1)
        assert running.result().rounds == 1
        assert [end.status for end in bench.journal.of_type("attempt.failed")] == ["cancelled"]
        bench.check_record()


async def test_stopped_twice_it_is_a_provider_failure() -> None:
    """The second time the stage ends, class provider."""
    hanging = [PoolReply(gate=asyncio.Event()) for _ in range(3)]
    async with Bench("plan", *hanging) as bench:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(outcome(bench))
            await stop_attempt(bench, 1)
            await stop_attempt(bench, 2)
        error = running.result()
        assert isinstance(error, ProviderError)
        assert error.reason == "unavailable"
        assert len(bench.requests) == 2
        bench.check_record()


async def outcome(bench: Bench) -> BaseException | None:
    try:
        await bench.run()
    except (ProviderError, asyncio.CancelledError) as error:
        return error
    return None


async def test_a_late_stop_of_an_ended_attempt_hits_nobody_else() -> None:
    """B65: a handle that is fired after its attempt has ended doesn't cancel the next one."""
    gate, second = asyncio.Event(), asyncio.Event()
    replies = (calls(("c1", "grep"), gate=gate), PoolReply(text=answer("work").text, gate=second))
    async with Bench("work", *replies) as bench:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(bench.run())
            await bench.pool.begun.wait()
            spec = bench.registry.find_spec("run_1", "run_1.work-1.att_1")
            assert spec is not None
            assert spec.kind is WorkKind.MODEL_TURN
            gate.set()
            while len(bench.requests) < 2:
                await asyncio.sleep(0)
            await bench.pool.begun.wait()
            await spec.handle.close()  # type: ignore[union-attr] - it has a handle
            await asyncio.sleep(0.01)
            second.set()
        assert running.result().rounds == 2


async def test_a_cancelled_stage_sends_nothing_more() -> None:
    """R3, R6: once the stage is flagged no request begins, also when only its attempt's handle was fired."""
    async with Bench("plan", PoolReply(gate=asyncio.Event()), answer("plan")) as bench:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(outcome(bench))
            await bench.pool.begun.wait()
            bench.registry.cancel("run_1", bench.stage.work_id)
            await asyncio.wait([running], timeout=30)
        assert isinstance(running.result(), asyncio.CancelledError)
        assert len(bench.requests) == 1
        assert len(bench.journal.of_type("attempt.started")) == 1
        bench.check_record()


async def test_a_stage_flagged_before_it_begins_asks_nobody() -> None:
    """R7: no attempt row, no request, no cost."""
    async with Bench("plan", answer("plan")) as bench:
        bench.registry.cancel("run_1", bench.stage.work_id)
        assert isinstance(await outcome(bench), asyncio.CancelledError)
        assert bench.journal.of_type("attempt.started") == []
        assert bench.budget.subtree.total_tokens == 0
        bench.check_record()


async def test_a_cancellation_from_below_is_a_provider_error() -> None:
    """S61, S42, S82: nobody asked for it, so the provider is to blame; it isn't asked again."""
    async with Bench("plan", answer("plan")) as bench:
        bench.pool = FakePool(raise_cancelled, answer("plan"))
        error = await outcome(bench)
        assert isinstance(error, ProviderError)
        assert error.reason == "unavailable"
        assert len(bench.requests) == 1
        bench.check_record()


def raise_cancelled(request: object) -> PoolReply:
    raise asyncio.CancelledError


async def test_a_cancel_from_above_wins_over_a_provider_error() -> None:
    """S57: parent cancellation wins over any error that the provider returns meanwhile."""
    async with Bench("plan", answer("plan")) as bench:

        async def fail_when_cancelled(*args: Any, **kwargs: Any) -> Any:
            bench.pool.begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ProviderError("closed", reason="cut") from None

        bench.pool.request = fail_when_cancelled
        async with asyncio.TaskGroup() as group:
            running = group.create_task(bench.run())
            await bench.pool.begun.wait()
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled()


def test_stage_inputs_are_plain_data() -> None:
    """What a stage starts from can't be changed while it runs."""
    assert StageInput.__dataclass_params__.frozen  # type: ignore[attr-defined] - not in the stubs
