"""The pool: the single owner of retries, and of the ledger's rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from model_kit import JumpingClock, MemoryLedger, ask, request
from remit.contract import AttemptUsage
from remit.errors import ConfigError, LimitReached, ProviderError
from remit.models import (
    AssistantMessage,
    Delta,
    Pool,
    PoolMember,
    PoolSettings,
    ProviderSettings,
    TextBlock,
    build_pool,
)
from remit.models._attempt import NOTHING_SENT, UNKNOWN_USAGE, AttemptCall, Broken, Completed, Outcome
from remit.models._members import Member, ProviderHandle
from remit.primitives import Secret, SystemIds
from remit.usage import Price

USAGE = AttemptUsage(coverage="reported", input_tokens=10, output_tokens=5, total_tokens=15)
PRICE = Price(input_micros=1, output_micros=1, cache_read_micros=1, cache_write_micros=1, version="config")


class StubExchange:
    provider_request_id = "req_1"
    finish_word = "stop"

    def __init__(self) -> None:
        self.usage = UNKNOWN_USAGE

    def usage_so_far(self) -> AttemptUsage:
        return self.usage


class StubAdapter:
    """Answers with what it is given, in order; a callable is awaited."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[AttemptCall] = []
        self.in_flight = 0
        self.most_in_flight = 0

    async def find_window(self, model: str) -> int | None:
        return None

    async def prepare(self) -> None:
        pass

    async def aclose(self) -> None:
        pass

    def open(self, call: AttemptCall) -> StubExchange:
        return StubExchange()

    async def run(self, call: AttemptCall, exchange: Any, *, on_delta: Callable[[Delta], None]) -> Outcome:
        self.calls.append(call)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            answer: Any = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, (Completed, Broken)):
                return answer
            return await answer(exchange)
        finally:
            self.in_flight -= 1


def done(text: str = "ok") -> Completed:
    message = AssistantMessage(blocks=(TextBlock(text=text),), model="p:m")
    return Completed(message=message, finish="stop", usage=USAGE)


def broken(**changes: Any) -> Broken:
    values: dict[str, Any] = {
        "status": "refused",
        "reason": "unavailable",
        "usage": NOTHING_SENT,
        "detail": "HTTP 500: no",
        "retryable": True,
    }
    return Broken(**(values | changes))


def limited(pause_s: float | None) -> Broken:
    return broken(reason="rate_limited", pause_s=pause_s, pauses_key=True)


def make_pool(
    adapter: StubAdapter,
    clock: JumpingClock | None = None,
    *,
    handle: ProviderHandle | None = None,
    jitter: float = 0.0,
    prices: Any = None,
    model: str = "gpt-4.1",
    **member: Any,
) -> Pool:
    settings = ProviderSettings(name="p", kind="openai-compatible", base_url="http://127.0.0.1:1")
    return Pool(
        name="default",
        members=[
            Member(
                PoolMember(model=f"p:{model}", **member),
                handle or ProviderHandle(settings=settings, adapter=adapter),
            )
        ],
        clock=clock or JumpingClock(),
        ids=SystemIds(),
        jitter=lambda: jitter,
        prices=prices,
    )


async def test_one_attempt_is_enough() -> None:
    """R22: one row for one physical request, keyed by its own id."""
    adapter, ledger = StubAdapter(done()), MemoryLedger()
    reply = await ask(make_pool(adapter), ledger=ledger)
    assert reply.message.text == "ok"
    assert reply.model == "p:gpt-4.1"
    assert reply.attempt_id == ledger.starts[0].attempt_id == adapter.calls[0].attempt_id
    assert ledger.statuses == ["completed"]
    assert ledger.last.usage == USAGE
    assert (ledger.starts[0].ordinal, ledger.last.waited_ms) == (1, 0)


async def test_four_retries_and_no_more() -> None:
    """R22, R53: five attempts at most, each with its row; 1 s x 2^n between them."""
    clock, ledger = JumpingClock(), MemoryLedger()
    with pytest.raises(ProviderError) as caught:
        await ask(make_pool(StubAdapter(broken()), clock), ledger=ledger)
    assert caught.value.reason == "unavailable"
    assert caught.value.fields["attempts"] == 5
    assert [start.ordinal for start in ledger.starts] == [1, 2, 3, 4, 5]
    assert len({start.attempt_id for start in ledger.starts}) == 5
    assert ledger.statuses == ["refused"] * 5
    assert clock.slept == [1, 2, 4, 8]
    assert [end.waited_ms for end in ledger.ends] == [0, 1000, 2000, 4000, 8000]


async def test_what_cannot_get_better_is_asked_once() -> None:
    """R56: one try."""
    clock, ledger = JumpingClock(), MemoryLedger()
    with pytest.raises(ProviderError) as caught:
        await ask(make_pool(StubAdapter(broken(reason="auth", retryable=False)), clock), ledger=ledger)
    assert caught.value.reason == "auth"
    assert caught.value.fields["detail"] == "HTTP 500: no"
    assert "HTTP 500" not in caught.value.message
    assert (ledger.statuses, clock.slept) == (["refused"], [])
    assert (ledger.last.code, ledger.last.detail) == ("auth", "HTTP 500: no")


async def test_a_cut_stream_is_asked_again() -> None:
    """R69: nothing was committed, so a broken reply may be asked for again."""
    ledger = MemoryLedger()
    cut = broken(status="cut", reason="cut", usage=UNKNOWN_USAGE)
    reply = await ask(make_pool(StubAdapter(cut, done())), ledger=ledger)
    assert reply.message.text == "ok"
    assert ledger.statuses == ["cut", "completed"]
    assert ledger.ends[0].usage.coverage == "interrupted"


async def test_an_adaptation_counts_as_no_failure() -> None:
    """What we may leave out is left out at once; that costs no retry and no pause."""
    clock, ledger = JumpingClock(), MemoryLedger()
    odd = broken(reason="protocol", retryable=False, adapted=True)
    await ask(make_pool(StubAdapter(odd, odd, done()), clock), ledger=ledger)
    assert (ledger.statuses, clock.slept) == (["refused", "refused", "completed"], [])
    with pytest.raises(ProviderError):
        await ask(make_pool(StubAdapter(odd), clock), ledger=MemoryLedger())


async def test_a_bound_on_retries_of_its_own() -> None:
    """R86: an empty reply is asked for once more, not four times."""
    ledger = MemoryLedger()
    empty = broken(status="failed", reason="empty_result", most_retries=1)
    with pytest.raises(ProviderError):
        await ask(make_pool(StubAdapter(empty)), ledger=ledger)
    assert len(ledger.ends) == 2


async def test_retry_after_is_kept() -> None:
    """R52: at least what is asked, with jitter on top."""
    clock = JumpingClock()
    await ask(make_pool(StubAdapter(limited(30.0), done()), clock, jitter=1.0))
    assert sum(clock.slept) >= 30.0
    assert sum(clock.slept) <= 33.0


async def test_no_form_that_we_understand() -> None:
    """R52: without a usable `Retry-After` our own back-off holds, for all that use the key."""
    clock = JumpingClock()
    await ask(make_pool(StubAdapter(limited(None), done()), clock))
    assert sum(clock.slept) == pytest.approx(1.0)


async def test_a_pause_longer_than_the_time_left() -> None:
    """R52: it isn't begun; the run ends now, and the time is named."""
    clock, ledger = JumpingClock(), MemoryLedger()
    with pytest.raises(ProviderError) as caught:
        await ask(make_pool(StubAdapter(limited(300.0)), clock), ledger=ledger, remaining_s=60.0)
    assert caught.value.reason == "rate_limited"
    assert "300.0 s" in caught.value.message
    assert "60.0 s are left" in caught.value.message
    assert (clock.slept, len(ledger.ends)) == ([], 1)


async def test_a_pause_without_bound() -> None:
    """R52: obeyed, but not for a day, also where nothing else bounds the run."""
    clock = JumpingClock()
    with pytest.raises(ProviderError) as caught:
        await ask(make_pool(StubAdapter(limited(86_400.0)), clock))
    assert caught.value.reason == "rate_limited"
    assert clock.slept == []


async def test_a_back_off_longer_than_the_time_left() -> None:
    """R53: the provider's own failure is what is told, not a rate limit."""
    with pytest.raises(ProviderError) as caught:
        await ask(make_pool(StubAdapter(broken())), remaining_s=0.5)
    assert caught.value.reason == "unavailable"


async def test_the_pause_is_shared_by_all_that_use_the_key() -> None:
    """R52: another run, another pool of the same provider, waits too; its first attempt says so."""
    clock = JumpingClock()
    adapter = StubAdapter(limited(20.0), done())
    settings = ProviderSettings(name="p", kind="openai-compatible", base_url="http://127.0.0.1:1")
    handle = ProviderHandle(settings=settings, adapter=adapter)
    first, second = make_pool(adapter, clock, handle=handle), make_pool(adapter, clock, handle=handle)
    with pytest.raises(ProviderError):
        await ask(first, remaining_s=5.0)
    with pytest.raises(ProviderError) as caught:
        await ask(second, request(run_id="run_2"), remaining_s=5.0)
    assert caught.value.reason == "rate_limited"
    assert len(adapter.calls) == 1, "nothing is sent while the key pauses"
    ledger = MemoryLedger()
    await ask(second, request(run_id="run_2"), ledger=ledger, remaining_s=100.0)
    assert ledger.last.waited_ms >= 20_000


async def test_a_cancel_during_a_pause() -> None:
    """R6: the wait ends at once and nothing more is sent."""

    class SlowClock(JumpingClock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(30)

    adapter, ledger = StubAdapter(limited(30.0)), MemoryLedger()
    task = asyncio.get_running_loop().create_task(ask(make_pool(adapter, SlowClock()), ledger=ledger))
    while not ledger.ends:
        await asyncio.sleep(0.001)
    task.cancel()
    started = asyncio.get_running_loop().time()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.get_running_loop().time() - started < 1
    assert len(adapter.calls) == len(ledger.ends) == 1


async def test_a_cancel_in_the_middle_of_an_attempt() -> None:
    """R3, R22: the attempt's end is recorded with what was read, before the cancel goes on."""
    inside = asyncio.Event()

    async def hang(exchange: StubExchange) -> Outcome:
        exchange.usage = AttemptUsage(coverage="interrupted", input_tokens=7)
        inside.set()
        await asyncio.sleep(30)
        raise AssertionError

    ledger = MemoryLedger(delay_s=0.05)
    task = asyncio.get_running_loop().create_task(ask(make_pool(StubAdapter(hang)), ledger=ledger))
    await inside.wait()
    task.cancel()
    await asyncio.sleep(0.01)
    task.cancel()  # a second one, while the end is being stored
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.statuses == ["cancelled"]
    assert ledger.last.usage.input_tokens == 7
    assert ledger.last.code is None
    assert ledger.last.provider_request_id == "req_1"


async def test_a_cancel_while_the_row_is_stored() -> None:
    """R22: the row that was begun is ended; nothing was sent, so it cost nothing."""
    adapter, ledger = StubAdapter(done()), MemoryLedger(delay_s=0.05)
    task = asyncio.get_running_loop().create_task(ask(make_pool(adapter), ledger=ledger))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (len(ledger.starts), ledger.statuses) == (1, ["cancelled"])
    assert ledger.last.usage.coverage == "refused"
    assert adapter.calls == []


async def test_a_cancel_while_a_good_end_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """R5: the attempt stays completed; the caller is cancelled all the same."""
    ledger = MemoryLedger()
    storing = asyncio.Event()
    end = ledger.end

    async def slow_end(finish: Any) -> None:
        storing.set()
        await asyncio.sleep(0.05)
        await end(finish)

    monkeypatch.setattr(ledger, "end", slow_end)
    task = asyncio.get_running_loop().create_task(ask(make_pool(StubAdapter(done())), ledger=ledger))
    await storing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.statuses == ["completed"]


async def test_what_does_not_fit_is_not_sent() -> None:
    """R24: the ledger's refusal goes through, and no attempt is open."""
    ledger = MemoryLedger(refuses=LimitReached("no", limit_code="cost", kind="max_cost_usd", value=1, cap=1))
    adapter = StubAdapter(done())
    with pytest.raises(LimitReached):
        await ask(make_pool(adapter), ledger=ledger)
    assert (adapter.calls, ledger.ends) == ([], [])


async def test_a_fault_of_ours_ends_the_row_too() -> None:
    """R22: an exception nobody expected leaves no open row."""
    ledger = MemoryLedger()
    with pytest.raises(ZeroDivisionError):
        await ask(make_pool(StubAdapter(ZeroDivisionError())), ledger=ledger)
    assert ledger.statuses == ["failed"]


async def test_a_members_concurrency() -> None:
    """No more requests in flight than the member allows; the wait counts as waited."""

    async def slow(_: Any) -> Outcome:
        await asyncio.sleep(0.01)
        return done()

    adapter = StubAdapter(slow)
    pool = make_pool(adapter, max_concurrency=3)
    async with asyncio.TaskGroup() as group:
        for number in range(12):
            group.create_task(ask(pool, request(run_id=f"run_{number}")))
    assert (len(adapter.calls), adapter.most_in_flight) == (12, 3)


async def test_a_permit_is_not_held_while_waiting() -> None:
    """A request in its back-off doesn't keep others out."""
    released = asyncio.Event()

    class GateClock(JumpingClock):
        async def sleep(self, seconds: float) -> None:
            await released.wait()
            await super().sleep(seconds)

    pool = make_pool(StubAdapter(broken(), done()), GateClock(), max_concurrency=1)
    first = asyncio.get_running_loop().create_task(ask(pool))
    await asyncio.sleep(0.01)
    await asyncio.wait_for(ask(pool, request(run_id="run_2")), 5)
    released.set()
    await first


async def test_who_waited_for_a_permit_keeps_the_pause_too() -> None:
    """R52: a pause that came up while a request waited for its place holds for it as well."""

    class SlowClock(JumpingClock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(0.05)  # so that others get their turn before the time has passed
            await super().sleep(seconds)

    clock = SlowClock()
    asked_at: list[float] = []

    async def refuse(_: Any) -> Outcome:
        asked_at.append(clock.monotonic())
        await asyncio.sleep(0.02)
        return limited(30.0)

    async def answer(_: Any) -> Outcome:
        asked_at.append(clock.monotonic())
        return done()

    pool = make_pool(StubAdapter(refuse, answer), clock, max_concurrency=1)
    async with asyncio.TaskGroup() as group:
        for number in range(2):
            group.create_task(ask(pool, request(run_id=f"run_{number}")))
    assert [at - asked_at[0] >= 30 for at in asked_at] == [False, True, True]


@pytest.mark.parametrize(
    ("model", "member", "asked", "grants", "reserved", "sent"),
    [
        ("gpt-4.1", {}, None, None, 32_768, None),  # the provider keeps to that by itself
        ("gpt-4.1", {}, 500, None, 500, 500),
        ("gpt-4.1", {}, None, 200, 32_768, 200),
        ("gpt-4.1", {}, 500, 200, 500, 200),
        ("unknown", {}, None, None, 32_768, 32_768),
        ("unknown", {"max_output_tokens": 4_000}, None, None, 4_000, 4_000),
        ("gpt-4.1", {"max_output_tokens": 4_000}, None, None, 4_000, 4_000),
    ],
)
async def test_the_bound_that_is_reserved_is_the_bound_that_is_sent(
    model: str, member: dict[str, Any], asked: int | None, grants: int | None, reserved: int, sent: int | None
) -> None:
    """R24: more can't come than was reserved."""
    adapter, ledger = StubAdapter(done()), MemoryLedger(grants=grants)
    pool = make_pool(adapter, model=model, **member)
    await ask(pool, request(max_output_tokens=asked), ledger=ledger)
    assert ledger.starts[0].max_output_tokens == reserved
    assert adapter.calls[0].max_output_tokens == sent


async def test_the_stage_option_bounds_too() -> None:
    """The lower of limit and option holds."""
    adapter = StubAdapter(done())
    await ask(make_pool(adapter), request(max_output_tokens=900, options={"max_output_tokens": 300}))
    assert adapter.calls[0].max_output_tokens == 300


async def test_prices_are_looked_up_when_they_count() -> None:
    """R23: each attempt carries the price that holds, of the tier asked for; an unknown one is None."""
    asked: list[tuple[str, str | None]] = []

    class Book:
        def load(self) -> None:
            pass

        def find(
            self, model: str, *, kind: str, at: datetime, base_url: str | None, service_tier: str | None
        ) -> Price | None:
            asked.append((model, service_tier))
            return PRICE if service_tier == "flex" else None

    ledger = MemoryLedger()
    pool = make_pool(StubAdapter(done()), prices=Book())
    await ask(pool, ledger=ledger)
    await ask(pool, request(options={"service_tier": "flex"}), ledger=ledger)
    await ask(pool, ledger=ledger)
    assert [start.price for start in ledger.starts] == [None, PRICE, None]
    assert asked == [("p:gpt-4.1", None), ("p:gpt-4.1", "flex")]


async def test_options_are_checked_before_anything_is_sent() -> None:
    """An option that nobody knows ends the request before its first attempt."""
    adapter, ledger = StubAdapter(done()), MemoryLedger()
    with pytest.raises(ConfigError, match="unknown option"):
        await ask(make_pool(adapter), request(options={"temprature": 1}), ledger=ledger)
    assert (adapter.calls, ledger.starts) == ([], [])


def test_a_pool_needs_its_provider() -> None:
    """A member that names no configured provider is refused by name."""
    settings = PoolSettings(name="default", members=(PoolMember(model="nobody:m"),))
    other = ProviderSettings(name="somebody", kind="openai", api_key=Secret("sk-0123456789"))
    with pytest.raises(ConfigError, match="no provider `nobody` is configured; there is somebody"):
        build_pool(settings, {"somebody": other}, clock=JumpingClock(), ids=SystemIds())
