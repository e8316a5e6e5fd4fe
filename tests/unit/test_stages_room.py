"""Long conversations: what gives way, in what order, and what stays as it was."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.contract import ToolSpec
from remit.errors import ProviderError
from remit.models import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
    estimate_input_tokens,
    message_to_json,
)
from remit.stages._elision import KEPT_ROUNDS, Shortened, shorten
from remit.stages._notices import from_caller
from remit.stages._room import Room
from remit.testing._fakes_stages import FakePool, PoolReply, tool_response
from stage_kit import SPECS, Bench, answer, calls

HEAD: tuple[Message, ...] = (SystemMessage(text="You work."), UserMessage(text="Do it."))
READ_OUTPUT = ToolSpec(name="read_output", description="Reads.", parameters={"type": "object"}, effect="read")


def turn(number: int, *, chars: int = 1_000, count: int = 1) -> tuple[Message, Message]:
    """A reply with signed thinking and some calls, and their results."""
    asked = tuple(
        ToolCallBlock(tool_call_id=f"c{number}_{n}", name="read_file", arguments=f'{{"path":"a{number}"}}')
        for n in range(count)
    )
    thought = ThinkingBlock(text="Hm.", signature=f"sig{number}", provider="p")
    reply = AssistantMessage(blocks=(thought, TextBlock(text=f"Look at {number}."), *asked), model="p:m")
    results = tuple(
        ToolResult(tool_call_id=call.tool_call_id, name=call.name, content="x" * (chars - 5) + "\nend.")
        for call in asked
    )
    return reply, ToolResultsMessage(results=results)


def turns(rounds: int, **fields: Any) -> tuple[Message, ...]:
    return (*HEAD, *(message for n in range(rounds) for message in turn(n, **fields)))


def to(messages: tuple[Message, ...], *, target: int, most: int | None = None, **fields: Any) -> Shortened:
    found = shorten(messages, head=2, target=target, most=target if most is None else most, **fields)
    assert found is not None
    return found


def check_valid(messages: tuple[Message, ...]) -> None:
    """Each call is answered right after its reply, and no result stands alone."""
    for before, message in itertools.pairwise((*messages, UserMessage(text=""))):
        if isinstance(before, AssistantMessage) and before.tool_calls:
            assert isinstance(message, ToolResultsMessage)
            asked = [call.tool_call_id for call in before.tool_calls]
            assert [result.tool_call_id for result in message.results] == asked
        elif isinstance(message, ToolResultsMessage):
            raise AssertionError("results without their calls")


def test_old_results_go_first_and_say_how_to_read_them_again() -> None:
    """R28: the oldest results are replaced, the latest rounds and every reply stay as they came."""
    messages = turns(30)
    got = to(messages, target=6_000)
    replies = [message for message in messages if isinstance(message, AssistantMessage)]
    assert [m for m in got.messages if isinstance(m, AssistantMessage)] == replies
    assert got.rounds_left_out == got.results_cut == 0
    assert got.tokens <= 6_000
    assert got.tokens == estimate_input_tokens(got.messages)
    first = got.messages[3]
    assert isinstance(first, ToolResultsMessage)
    assert 'read_output {"tool_call_id":"c0_0","offset_bytes":0} shows it again' in first.results[0].content
    assert first.results[0].content.endswith("end.")
    assert "1000 characters" in first.results[0].content
    assert got.messages[-2 * KEPT_ROUNDS :] == messages[-2 * KEPT_ROUNDS :]
    check_valid(got.messages)


def test_no_more_goes_than_is_asked_for() -> None:
    """What came later than what had to go stays as it was."""
    messages = turns(30)
    got = to(messages, target=estimate_input_tokens(messages) - 100)
    assert got.results_replaced == 1
    assert got.messages[4:] == messages[4:]


@pytest.mark.parametrize("rounds", [30, 31])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_rounds_go_whole_when_results_are_not_enough(rounds: int, count: int) -> None:
    """R28: a a window of 4k tokens, 30 turns of 1 kB: cuts between rounds alone, and twice."""
    messages = turns(rounds, count=count)
    got = to(messages, target=2_000, most=3_000)
    check_valid(got.messages)
    assert got.tokens <= 3_000
    assert got.rounds_left_out > 0
    assert got.messages[:2] == HEAD
    about = got.messages[2]
    assert isinstance(about, UserMessage)
    assert f'you: "Look at {got.rounds_left_out - 1}."' in about.text
    assert '- read_file {"path":"a' in about.text
    # Again, after more rounds: what was told before is told still, once.
    more = (*got.messages, *(m for n in range(rounds, rounds + 9) for m in turn(n, count=count)))
    again = to(more, target=2_000, most=3_000, lines=got.lines)
    check_valid(again.messages)
    texts = [m.text for m in again.messages if isinstance(m, UserMessage)]
    assert len(texts) == 2
    assert texts[1].count("[Remit: earlier rounds") == 1


def test_what_the_caller_said_meanwhile_stays() -> None:
    """A message of the caller adds to the request: it outlives its round, word for word."""
    said = UserMessage(text=from_caller("Keep the old name, too."))
    messages = turns(12)
    got = to((*messages[:6], said, *messages[6:]), target=900, most=1_000)
    assert got.messages.count(said) == 1
    assert got.messages.index(said) == 3
    again = to((*got.messages, *turns(20)[20:]), target=900, most=1_000, lines=got.lines)
    assert again.messages.count(said) == 1
    check_valid(again.messages)


@pytest.mark.parametrize("orphan", ["call", "result"])
def test_an_orphan_bars_nothing(orphan: str) -> None:
    """R28: a call without result, or a result without call, from a crash before, goes like the rest."""
    messages = list(turns(12))
    del messages[5 if orphan == "call" else 4]
    got = to(tuple(messages), target=900, most=1_000)
    assert got.tokens <= 1_000
    assert got.rounds_left_out > 2
    check_valid(got.messages)


def test_the_newest_results_are_cut_when_they_alone_are_too_long() -> None:
    """One round of sixteen long results in a small window: each keeps its beginning and end."""
    got = to(turns(1, count=16, chars=16_000), target=8_000)
    assert got.results_cut > 0
    assert got.tokens <= 8_000
    check_valid(got.messages)
    results = got.messages[3]
    assert isinstance(results, ToolResultsMessage)
    assert all("Cut to save room" in result.content for result in results.results)


def test_what_can_not_be_shortened_is_left_alone() -> None:
    """The request itself is never touched."""
    head = (SystemMessage(text="x" * 90_000), UserMessage(text="Do it."))
    assert shorten((*head, *turns(1, chars=100)[2:]), head=2, target=10, most=10) is None
    assert shorten(head, head=2, target=10, most=10) is None


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 3)), min_size=1, max_size=20),
    st.integers(1, 30_000),
)
def test_shortening_is_valid_and_the_same_every_time(sizes: list[tuple[int, int]], target: int) -> None:
    """R28, R30: any history stays valid, replies as received; the same input gives the same bytes."""
    rounds = (turn(n, chars=chars + 5, count=count) for n, (chars, count) in enumerate(sizes))
    messages: tuple[Message, ...] = (*HEAD, *(m for pair in rounds for m in pair if _says(m)))
    got = shorten(messages, head=2, target=target, most=target)
    again = shorten(messages, head=2, target=target, most=target)
    assert got == again
    if got is None:
        return
    check_valid(got.messages)
    assert got.tokens == estimate_input_tokens(got.messages)
    assert got.messages[:2] == HEAD
    kept = [m for m in got.messages if isinstance(m, AssistantMessage)]
    assert kept == [m for m in messages if isinstance(m, AssistantMessage)][-len(kept) :]
    second = shorten(got.messages, head=2, target=target, most=target, lines=got.lines)
    assert second is None or second.tokens <= got.tokens


def _says(message: Message) -> bool:
    return not isinstance(message, ToolResultsMessage) or bool(message.results)


def test_a_long_history_is_shortened_soon() -> None:
    """200 rounds in well under a blink (the bench holds it to 20 ms on a quiet machine)."""
    messages = turns(200, chars=4_000)
    began = time.perf_counter()
    to(messages, target=40_000)
    assert time.perf_counter() - began < 2


# ---- when


@dataclass
class Windows:
    context_window_tokens: int
    input_room_tokens: int


def test_a_window_that_is_told_late_counts_from_then_on() -> None:
    """A local server says what it holds when it is first asked."""
    windows = Windows(100_000, 100_000)
    room = Room(windows)
    assert room.most == 75_000
    windows.context_window_tokens = 8_000
    assert room.most == 6_000


def test_the_room_is_three_quarters_of_the_window_or_what_a_reply_leaves() -> None:
    """At 75 % of the window something goes, down to half of it; earlier where a reply needs the place."""
    room = Room(Windows(100_000, 90_000))
    assert (room.most, room.target) == (75_000, 50_000)
    assert Room(Windows(100_000, 60_000)).most == 60_000


def test_the_room_learns_from_what_was_counted() -> None:
    """Estimates err upwards for prose: what the provider counted sets them right, within bounds."""
    room = Room(Windows(100_000, 100_000))
    room.learn(estimated=1_000, counted=500)
    assert room.most == 150_000
    room.learn(estimated=1_000, counted=None)
    assert room.most == 150_000
    room.learn(estimated=1_000, counted=10)
    assert room.most == 187_500
    room.learn(estimated=10_000, counted=20_000)
    room.refused(estimated=10_000)
    assert room.most == 7_500


# ---- in a stage

LONG = {"read_file": lambda use: tool_response(use, f"{use.tool_call_id}\n" + "line of code\n" * 300)}


def long_run(count: int, **fields: Any) -> list[PoolReply]:
    return [calls((f"c{n}", "read_file"), text=f"Round {n}.", **fields) for n in range(count)]


async def test_a_stage_goes_on_beyond_its_window() -> None:
    """R28: sixty rounds in a window of ten: every request fits and is whole; all is on record."""
    pool = FakePool(*long_run(60, input_tokens=0), answer("work"), context_window_tokens=16_000)
    async with Bench("work", pool=pool, tools=LONG, specs=(*SPECS, READ_OUTPUT)) as bench:
        await bench.run()
        sent = [estimate_input_tokens(request.messages, request.tools) for request in bench.requests]
        assert max(sent) <= 0.75 * 16_000 + 200
        entries = bench.journal.transcript("work-1")
        whole = [r["content"] for e in entries for r in e.body.get("results", ())]
        assert [content.count("line of code") for content in whole] == [300] * 60
        told = [e.body["text"] for e in entries if e.role == "user"][1:]
        assert told
        assert all(text.startswith("Note: this conversation was getting too long.") for text in told)
        bench.check_record()


async def test_between_two_shortenings_nothing_changes() -> None:
    """Caches last: nearly every request begins with the bytes of the one before."""
    pool = FakePool(*long_run(60, input_tokens=0), answer("work"), context_window_tokens=40_000)
    async with Bench("work", pool=pool, tools=LONG, specs=(*SPECS, READ_OUTPUT)) as bench:
        await bench.run()
        texts = [[json.dumps(message_to_json(m)) for m in r.messages] for r in bench.requests]
        changed = [after[: len(before)] != before for before, after in itertools.pairwise(texts)]
        assert 1 <= sum(changed) <= len(changed) // 6


async def test_a_request_that_is_too_long_is_shortened_and_sent_once_more() -> None:
    """R56: a `context_length` error is answered once by giving way, not by the same request again."""
    replies = (
        *long_run(9, input_tokens=0),
        ProviderError("too long", reason="context_length"),
        answer("work"),
    )
    async with Bench("work", *replies, tools=LONG) as bench:
        await bench.run()
        refused, retried = bench.requests[-2:]
        half = estimate_input_tokens(refused.messages) * 0.6
        assert estimate_input_tokens(retried.messages) < half
        assert retried.round == refused.round
        assert "Make the call again" in str(retried.messages)  # there is no read_output here
        bench.check_record()


async def test_too_long_twice_ends_the_stage() -> None:
    """R56: once more, and then it is the provider's `context_length`."""
    too_long = ProviderError("too long", reason="context_length")
    async with Bench("work", *long_run(3), too_long, too_long, answer("work"), tools=LONG) as bench:
        with pytest.raises(ProviderError) as failed:
            await bench.run()
        assert failed.value.reason == "context_length"
        assert len(bench.requests) == 5
        bench.check_record()
    async with Bench("work", too_long, answer("work")) as bench:
        with pytest.raises(ProviderError):
            await bench.run()
        assert len(bench.requests) == 1  # nothing can go: asking again would be the same


def test_results_replaced_once_stay_as_they_are() -> None:
    """What was replaced is short, so that a later shortening leaves its bytes alone."""
    once = to(turns(30), target=6_000)
    more = (*once.messages, *(m for n in range(30, 40) for m in turn(n)))
    twice = to(more, target=6_000)
    assert twice.messages[: 2 * 20] == once.messages[: 2 * 20]
    assert 0 < twice.results_replaced < 20
