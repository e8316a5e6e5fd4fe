"""Pools of several members: who is asked, who instead, and who never."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from test_models_pool import USAGE, StubAdapter, broken, done, limited

from model_kit import PROMPT, JumpingClock, MemoryLedger, ask, request
from remit.errors import ConfigError, ProviderError
from remit.models import (
    AssistantMessage,
    Delta,
    ModelReply,
    Pool,
    PoolMember,
    ProviderSettings,
    TextBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultsMessage,
)
from remit.models._attempt import Completed
from remit.models._members import Member, ProviderHandle
from remit.primitives import SystemIds

URL = "http://127.0.0.1:1"


def handle(*answers: Any, name: str = "p", kind: str = "openai-compatible") -> ProviderHandle:
    settings = ProviderSettings(name=name, kind=kind, base_url=URL)
    return ProviderHandle(settings=settings, adapter=StubAdapter(*answers))


def member(
    name: str, *answers: Any, model: str = "m", kind: str = "openai-compatible", **values: Any
) -> Member:
    return Member(PoolMember(model=f"{name}:{model}", **values), handle(*answers, name=name, kind=kind))


def pool_of(*members: Member, clock: JumpingClock | None = None, jitter: float = 0.0) -> Pool:
    return Pool(
        name="default",
        members=members,
        clock=clock or JumpingClock(),
        ids=SystemIds(),
        jitter=lambda: jitter,
        prices=None,
    )


def asked(*members: Member) -> list[int]:
    """How often each was asked."""
    return [len(stub(item).calls) for item in members]


def stub(item: Member) -> StubAdapter:
    assert isinstance(item.provider.adapter, StubAdapter)
    return item.provider.adapter


def with_call(model: str) -> tuple[AssistantMessage, ToolResultsMessage]:
    call = ToolCallBlock(tool_call_id="c", name="read_file", arguments="{}")
    results = ToolResultsMessage(results=(ToolResult(tool_call_id="c", name="read_file", content="x"),))
    return AssistantMessage(blocks=(call,), model=model), results


async def test_the_lowest_order_is_asked() -> None:
    """A member with a higher order is asked only when those with lower ones can't."""
    first, second = member("a", done()), member("b", done(), order=2)
    pool = pool_of(second, first)
    for _ in range(3):
        assert (await ask(pool)).model == "a:m"
    assert asked(first, second) == [3, 0]
    assert pool.model == "a:m"


async def test_another_member_at_once() -> None:
    """R22: what fails before anything was seen is asked of the next one at once, in a row of its own."""
    clock, ledger = JumpingClock(), MemoryLedger()
    first, second = member("a", broken()), member("b", done(), order=2)
    reply = await ask(pool_of(first, second, clock=clock), ledger=ledger)
    assert (reply.model, clock.slept) == ("b:m", [])
    assert [start.model for start in ledger.starts] == ["a:m", "b:m"]
    assert [start.ordinal for start in ledger.starts] == [1, 2]
    assert ledger.statuses == ["refused", "completed"]


@pytest.mark.parametrize("reason", ["auth", "unavailable", "rate_limited", "protocol"])
async def test_a_member_that_can_not_get_better(reason: str) -> None:
    """R56: it is asked once, by this request and, for a minute, by none; others serve meanwhile."""
    clock = JumpingClock()
    first = member("a", broken(reason=reason, retryable=False))
    second = member("b", done(), order=2)
    pool = pool_of(first, second, clock=clock)
    await ask(pool)
    await ask(pool)
    assert asked(first, second) == [1, 2]
    await clock.sleep(61)
    await ask(pool)
    assert asked(first, second) == [2, 3]


@pytest.mark.parametrize("reason", ["content_filter", "refusal"])
async def test_what_was_asked_is_at_fault(reason: str) -> None:
    """R56: a filter or a refusal says something of the request: nobody else is asked, nobody cools down."""
    first, second = member("a", broken(reason=reason, retryable=False), done()), member("b", done(), order=2)
    pool = pool_of(first, second)
    with pytest.raises(ProviderError) as caught:
        await ask(pool)
    assert caught.value.reason == reason
    assert (await ask(pool)).model == "a:m"
    assert asked(first, second) == [2, 0]


async def test_a_larger_window_may_hold_it() -> None:
    """A conversation too long for one member is asked of one that holds more, and of no other."""
    too_long = broken(reason="context_length", retryable=False)
    small = member("a", too_long, context_window_tokens=1_000)
    same = member("b", done(), order=2, context_window_tokens=1_000)
    large = member("c", done(), order=3, context_window_tokens=9_000)
    pool = pool_of(small, same, large)
    assert (await ask(pool)).model == "c:m"
    assert pool.context_window_tokens == 1_000


async def test_five_attempts_over_all() -> None:
    """R53: retries don't multiply with members."""
    ledger = MemoryLedger()
    members = [member(name, broken(), order=number) for number, name in enumerate("abcd", start=1)]
    with pytest.raises(ProviderError) as caught:
        await ask(pool_of(*members), ledger=ledger)
    assert caught.value.fields["attempts"] == 5
    assert len(ledger.starts) == 5
    assert all(count >= 1 for count in asked(*members))


async def test_a_cool_down_ends() -> None:
    """A member that failed is preferred again once it has cooled down; it cools longer each time."""
    clock = JumpingClock()
    first, second = member("a", broken(), broken(), done()), member("b", done(), order=2)
    pool = pool_of(first, second, clock=clock)
    await ask(pool)
    await ask(pool)
    assert asked(first, second) == [1, 2]
    await clock.sleep(1.5)
    await ask(pool)
    assert asked(first, second) == [2, 3]
    await clock.sleep(1.5)
    await ask(pool)
    assert asked(first, second) == [2, 4]
    await clock.sleep(1)
    assert (await ask(pool)).model == "a:m"


async def test_a_paused_key_is_passed_over() -> None:
    """R52: whose key is told to pause isn't asked while another can be; the pause is kept by all."""
    clock = JumpingClock()
    first, second = member("a", limited(30.0), done()), member("b", done(), order=2)
    pool = pool_of(first, second, clock=clock)
    assert [(await ask(pool)).model for _ in range(2)] == ["b:m", "b:m"]
    assert clock.slept == []
    other = pool_of(Member(PoolMember(model="a:m"), first.provider), clock=clock)
    await ask(other)
    assert sum(clock.slept) >= 30


async def test_all_paused_waits_for_the_first() -> None:
    """R52: where nobody can be asked, the shortest pause is waited for."""
    clock = JumpingClock()
    first, second = member("a", limited(30.0), done()), member("b", limited(5.0), done(), order=2)
    assert (await ask(pool_of(first, second, clock=clock))).model == "b:m"
    assert 5 <= sum(clock.slept) < 7


async def test_nothing_else_after_output_was_seen() -> None:
    """Fallback only before visible output: whoever has begun to speak is asked again, nobody else."""
    clock = JumpingClock()
    first, second = member("a", done()), member("b", done(), order=2)

    class Speaking(StubAdapter):
        async def run(self, call: Any, exchange: Any, *, on_delta: Any) -> Any:
            on_delta(Delta(kind="text", text="I"))
            return await super().run(call, exchange, on_delta=on_delta)

    first.provider.adapter = Speaking(broken(status="cut", reason="cut"), done())
    deltas: list[Delta] = []
    reply = await ask(pool_of(first, second, clock=clock), deltas=deltas)
    assert (reply.model, asked(first, second)) == ("a:m", [2, 0])
    assert clock.slept == [1.0]
    assert len(deltas) == 2


async def test_never_across_a_committed_tool_call() -> None:
    """A conversation with a member's tool calls in it goes on with that member, or fails."""
    first, second = member("a", done()), member("b", broken(retryable=False), order=2)
    pool = pool_of(first, second)
    with pytest.raises(ProviderError, match="b:m gave no reply"):
        await ask(pool, request(*PROMPT, *with_call("b:m")))
    assert asked(first, second) == [0, 1]
    # Of a model that is no member, nobody is bound.
    assert (await ask(pool, request(*PROMPT, *with_call("gone:m")))).model == "a:m"


async def test_a_conversation_stays_where_its_cache_is() -> None:
    """Among equals, whoever gave the last reply is asked again; where it can't be, another one."""
    first, second = member("a", done()), member("b", done(), broken(), done())
    pool = pool_of(first, second)
    said = AssistantMessage(blocks=(TextBlock(text="hm"),), model="b:m")
    assert (await ask(pool, request(*PROMPT, said))).model == "b:m"
    assert (await ask(pool, request(*PROMPT, said))).model == "a:m"


async def in_flight(pool: Pool, count: int) -> list[ModelReply]:
    async with asyncio.TaskGroup() as group:
        started = [group.create_task(ask(pool)) for _ in range(count)]
    return [item.result() for item in started]


def slow(model: str) -> Any:
    async def answer(exchange: Any) -> Completed:
        await asyncio.sleep(0.01)
        return Completed(
            message=AssistantMessage(blocks=(TextBlock(text="ok"),), model=model), finish="stop", usage=USAGE
        )

    return answer


async def test_the_least_busy_is_asked() -> None:
    """Requests at once spread over members of one order by their weight."""
    first, second = member("a", slow("a:m"), weight=3), member("b", slow("b:m"))
    await in_flight(pool_of(first, second), 8)
    assert asked(first, second) == [6, 2]


async def test_weights_over_time() -> None:
    """One after another, requests are drawn by weight."""
    first, second = member("a", done(), weight=3), member("b", done())
    for point in range(8):
        pool = pool_of(first, second, jitter=point / 8)
        await ask(pool)
    assert asked(first, second) == [6, 2]


async def test_a_full_member_is_passed_over() -> None:
    """Each member keeps its own bound; what it can't take goes to the next order, and waits only then."""
    first = member("a", slow("a:m"), max_concurrency=2)
    second = member("b", slow("b:m"), max_concurrency=3, order=2)
    await in_flight(pool_of(first, second), 12)
    assert (stub(first).most_in_flight, stub(second).most_in_flight) == (2, 3)
    assert sum(asked(first, second)) == 12
    assert (first.in_flight, second.in_flight) == (0, 0)


async def test_a_cancelled_wait_leaves_no_trace() -> None:
    """S: a request cancelled while it waits for a place gives it back."""
    first = member("a", slow("a:m"), max_concurrency=1)
    pool = pool_of(first)
    async with asyncio.TaskGroup() as group:
        group.create_task(ask(pool))
        waiting = group.create_task(ask(pool))
        await asyncio.sleep(0.002)
        waiting.cancel()
    assert first.in_flight == 0
    assert (await ask(pool)).message.text == "ok"


async def test_what_is_adapted_is_asked_of_the_same_member() -> None:
    """What a member refuses of ours is left out for that member, at once; it doesn't cool down for it."""
    first = member("a", broken(adapted=True, retryable=False, reason="protocol"), done())
    second = member("b", done(), order=2)
    pool = pool_of(first, second)
    assert [(await ask(pool)).model for _ in range(2)] == ["a:m", "a:m"]
    assert asked(first, second) == [3, 0]


def test_options_that_one_member_would_drop() -> None:
    """An option is refused at start when a single member wouldn't honour it; the message names its model."""
    taken = member("a", done(), model="gpt-4.1", kind="openai-compatible")
    other = member("c", done(), model="claude-opus-4-7", kind="anthropic", order=2)
    pool = pool_of(taken, other)
    pool.check_options({"parallel_tool_calls": True})
    with pytest.raises(ConfigError, match="claude-opus-4-7 takes no `seed`"):
        pool.check_options({"seed": 1})
