"""Anthropic Messages through the real SDK, over real HTTP, against the strict fake."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any

import pytest

from model_kit import PROMPT, READ_TOOL, JumpingClock, MemoryLedger, ask, pool_for, request
from remit.errors import ProviderError
from remit.models import (
    AssistantMessage,
    Delta,
    Message,
    ModelReply,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
)
from remit.primitives import Secret
from remit.testing import AnthropicDialect, ClaudeModel, FakeProvider, FakeToolCall, Reply

pytest.importorskip("anthropic", reason="the extra `anthropic` isn't installed")
ODD = "x\u0085y\u2028z\u2029w\u000bv"
CALL = FakeToolCall(name="read_file", arguments='{"relative_path": "a.py"}')
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def results(message: AssistantMessage, content: str = "found") -> ToolResultsMessage:
    return ToolResultsMessage(
        results=tuple(
            ToolResult(tool_call_id=call.tool_call_id, name=call.name, content=content)
            for call in message.tool_calls
        )
    )


def anthropic(fake: FakeProvider, model: str = "claude-sonnet-4-6", **settings: Any) -> Any:
    return pool_for(fake, kind="anthropic", model=model, **settings)


def fake_of(*replies: Reply | str, **settings: Any) -> FakeProvider:
    return FakeProvider(list(replies), dialect=AnthropicDialect(**settings))


async def one(*replies: Reply | str, model: str = "claude-sonnet-4-6") -> tuple[ModelReply, MemoryLedger]:
    ledger = MemoryLedger()
    with fake_of(*replies) as fake:
        async with anthropic(fake, model) as pool:
            return await ask(pool, ledger=ledger), ledger


async def failed(*replies: Reply) -> tuple[ProviderError, MemoryLedger, int]:
    ledger = MemoryLedger()
    with fake_of(*replies) as fake:
        async with anthropic(fake) as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, ledger=ledger)
        return caught.value, ledger, len(fake.requests)


def raw(*events: dict[str, Any]) -> Reply:
    return Reply(raw="".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode())


def start(**usage: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    return {"type": "message_start", "message": {**message, "usage": usage}}


def text_events(text: str = "ok", index: int = 0) -> list[dict[str, Any]]:
    block = {"type": "text", "text": ""}
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": index},
    ]


def end(word: str | None = "end_turn", **usage: Any) -> list[dict[str, Any]]:
    delta = {"type": "message_delta", "delta": {"stop_reason": word}, "usage": usage}
    return [delta, {"type": "message_stop"}]


async def test_a_text() -> None:
    """S41: text in pieces, usage in two parts, the provider's ids and words in the ledger."""
    deltas: list[Delta] = []
    ledger = MemoryLedger()
    with fake_of(Reply(text=f"Grüße, 世界 {ODD}", chunk_count=4)) as fake:
        async with anthropic(fake) as pool:
            reply = await ask(pool, ledger=ledger, deltas=deltas)
    assert reply.message.blocks == (TextBlock(text=f"Grüße, 世界 {ODD}", provider="fake"),)
    assert "".join(delta.text for delta in deltas) == f"Grüße, 世界 {ODD}"
    assert (reply.finish, reply.usage.coverage, reply.usage.flags) == ("stop", "reported", ())
    assert (ledger.last.provider_request_id, ledger.last.finish) == ("req_fake000001", "end_turn")


async def test_what_is_sent() -> None:
    """S38, S39: the body is built for the model asked; the run's id goes along; no more than was asked."""
    with fake_of("ok") as fake:
        async with anthropic(fake, "claude-opus-4-7") as pool:
            await ask(
                pool, request(max_output_tokens=500, options={"reasoning_effort": "xhigh", "stop": "END"})
            )
        got = fake.requests[0]
    body = got.json
    assert (body["model"], body["max_tokens"], body["stop_sequences"]) == ("claude-opus-4-7", 500, ["END"])
    assert body["metadata"] == {"user_id": "run_01"}
    assert (body["thinking"], body["output_config"]) == ({"type": "adaptive"}, {"effort": "xhigh"})
    assert body["tools"][0]["input_schema"] == READ_TOOL.parameters
    assert got.headers["user-agent"].startswith("remit/")
    assert got.headers["x-client-request-id"].startswith("att_")
    assert got.headers["x-stainless-retry-count"] == "0"
    assert got.headers["x-api-key"] == fake.api_key
    assert "authorization" not in got.headers
    assert got.path == "/v1/messages"
    assert not {"temperature", "top_p", "service_tier"} & set(body)


@pytest.mark.parametrize(
    ("model", "options", "sent"),
    [
        ("claude-sonnet-4-6", {}, ({"type": "adaptive"}, None)),
        ("claude-sonnet-4-6", {"temperature": 0.5}, (None, None)),
        ("claude-sonnet-4-6", {"reasoning_effort": "none"}, (None, None)),
        ("claude-sonnet-5", {}, (None, None)),
        ("claude-sonnet-5", {"reasoning_effort": "none"}, ({"type": "disabled"}, None)),
        ("claude-opus-5-5", {"reasoning_effort": "low"}, ({"type": "adaptive"}, {"effort": "low"})),
        ("claude-haiku-4-5", {}, ({"type": "enabled", "budget_tokens": 10_000}, None)),
        (
            "claude-opus-4-5",
            {"reasoning_effort": "high"},
            ({"type": "enabled", "budget_tokens": 16_384}, {"effort": "high"}),
        ),
        (
            "claude-haiku-4-5",
            {"max_output_tokens": 3_000},
            ({"type": "enabled", "budget_tokens": 1_500}, None),
        ),
        ("claude-haiku-4-5", {"max_output_tokens": 1_000}, (None, None)),
    ],
)
async def test_thinking(model: str, options: dict[str, Any], sent: Any) -> None:
    """A model that doesn't think unless told to is told to; each generation in the words that it takes."""
    with fake_of("ok") as fake:
        async with anthropic(fake, model) as pool:
            await ask(pool, request(options=options))
        body = fake.requests[0].json
    assert (body.get("thinking"), body.get("output_config")) == sent


async def test_thinking_goes_back_as_it_came() -> None:
    """R30: thinking, text, thinking, two calls; trailing spaces, odd separators; byte for byte, in order."""
    blocks = (
        {"type": "thinking", "thinking": f"first  {ODD} ", "signature": "sigA+/=" * 80},
        {"type": "text", "text": f"I look. {ODD}  "},
        {"type": "redacted_thinking", "data": "hidden+/=" * 50},
        {"type": "thinking", "thinking": "", "signature": "sigB+/=" * 80},
        {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": '{"relative_path":  "a"}'},
        {"type": "tool_use", "id": "toolu_2", "name": "read_file", "input": '{"n": 2512292042121000001}'},
    )
    with fake_of(Reply(blocks=blocks), "done") as fake:
        async with anthropic(fake) as pool:
            reply = await ask(pool)
            cancelled = ToolResultsMessage(
                results=(
                    ToolResult(tool_call_id="toolu_1", name="read_file", content="found"),
                    ToolResult(
                        tool_call_id="toolu_2", name="read_file", content="cancelled", status="cancelled"
                    ),
                ),
                note="One call was cancelled.",
            )
            await ask(pool, request(*PROMPT, reply.message, cancelled))
        sent = fake.requests[-1].json["messages"]
    assert [call.arguments for call in reply.message.tool_calls] == [blocks[4]["input"], blocks[5]["input"]]
    assert sent[1]["content"] == [
        *blocks[:4],
        {**blocks[4], "input": {"relative_path": "a"}},
        {**blocks[5], "input": {"n": 2512292042121000001}},
    ]
    assert [block["type"] for block in sent[2]["content"]] == ["tool_result", "tool_result", "text"]


@pytest.mark.parametrize("other", ["provider", "model"])
async def test_thinking_of_somebody_else_is_left_out(other: str) -> None:
    """R29, R30: what another provider or model signed isn't sent, and its call ids are made to fit."""
    message = AssistantMessage(
        model="fake:claude-opus-4-7" if other == "model" else "else:gpt-5",
        blocks=(
            ThinkingBlock(text="secret", signature="s", provider="fake" if other == "model" else "else"),
            TextBlock(text="  \n"),
            ToolCallBlock(tool_call_id="functions.read:0", name="read_file", arguments="not JSON"),
        ),
    )
    with fake_of("done") as fake:
        async with anthropic(fake, "claude-haiku-4-5") as pool:
            await ask(pool, request(*PROMPT, message, results(message)))
        body = fake.requests[0].json
    (call,) = body["messages"][1]["content"]
    assert call["input"] == {"invalid_arguments": "not JSON", "characters": 8}
    assert body["messages"][2]["content"][0]["tool_use_id"] == call["id"]
    assert call["id"] == f"call_{hashlib.sha256(b'functions.read:0').hexdigest()[:32]}"
    assert "thinking" not in body  # a budget needs a turn that began with thinking


async def test_the_cache_holds() -> None:
    """Marks at tools, system and the last two user messages: from the third round on, most input is read."""
    ledger = MemoryLedger()
    replies = [Reply(thinking=f"thought {n}", tool_calls=(CALL,)) for n in range(8)]
    with fake_of(*replies) as fake:
        async with anthropic(fake) as pool:
            messages: tuple[Message, ...] = (*PROMPT, UserMessage(text="context " * 400))
            for _ in range(8):
                reply = await ask(pool, request(*messages), ledger=ledger)
                messages = (*messages, reply.message, results(reply.message, "line\n" * 40))
        bodies = [item.json for item in fake.requests]
    usages = [finish.usage for finish in ledger.ends]
    read = sum(usage.cache_read_tokens or 0 for usage in usages[3:])
    assert read >= 0.85 * sum(usage.input_tokens or 0 for usage in usages[3:])
    assert all(usage.flags == () for usage in usages)
    for body in bodies:
        assert json.dumps(body).count("cache_control") <= 4
    unmarked = [
        json.dumps(body["messages"]).replace(', "cache_control": {"type": "ephemeral"}', "")
        for body in bodies
    ]
    for before, after in itertools.pairwise(unmarked):
        assert after.startswith(before[:-1])


async def test_counters_are_made_to_include_the_cache() -> None:
    """R18, R19: disjoint counters are added once; the output of the last record wins; blocks don't count."""
    events = [
        start(input_tokens=100, cache_creation_input_tokens=30, cache_read_input_tokens=20, output_tokens=1)
    ]
    for index in range(4):
        events += text_events(f"{index}", index)
    reply, _ = await one(raw(*events, *end(output_tokens=50)))
    usage = reply.usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (150, 20, 30)
    assert (usage.output_tokens, usage.total_tokens, usage.coverage) == (50, 200, "reported")


async def test_totals_of_the_last_record_win() -> None:
    """R19, R20: totals come again, and thinking is a part of the output."""
    details: dict[str, Any] = {"output_tokens": 80, "input_tokens": 120}
    details["output_tokens_details"] = {"thinking_tokens": 60}
    reply, _ = await one(raw(start(input_tokens=100, output_tokens=1), *text_events(), *end(**details)))
    usage = reply.usage
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (120, 80, 60)


async def test_a_null_takes_no_number_away() -> None:
    """R19: a counter that the last record names as null keeps the value that it had."""
    nulls: dict[str, Any] = {"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 9}
    begin = start(input_tokens=100, cache_read_input_tokens=20, output_tokens=1)
    usage = (await one(raw(begin, *text_events(), *end(**nulls))))[0].usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.coverage) == (120, 20, "reported")


@pytest.mark.parametrize(
    ("thought", "coverage", "flags"), [(9, "reported", ()), (10, "partial", ("part_exceeds_whole",))]
)
async def test_thinking_is_at_most_the_whole(thought: int, coverage: str, flags: Any) -> None:
    """R20: a reply may be all thinking; more thinking than reply is a number that can't be true."""
    last: dict[str, Any] = {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": thought}}
    begin = start(input_tokens=5, output_tokens=1)
    usage = (await one(raw(begin, *text_events(), *end(**last))))[0].usage
    assert (usage.coverage, usage.flags, usage.reasoning_tokens) == (coverage, flags, thought)


@pytest.mark.parametrize(
    ("begin", "last", "coverage"),
    [
        ({"input_tokens": 5, "output_tokens": 1}, {}, "partial"),
        ({"input_tokens": -5, "output_tokens": 1}, {"output_tokens": 9}, "partial"),
        ({}, {"output_tokens": 9}, "partial"),
        ({"input_tokens": 5}, {"output_tokens": "9"}, "partial"),
    ],
)
async def test_missing_numbers_are_never_zero(begin: Any, last: Any, coverage: str) -> None:
    """R21: a number that didn't come, or is none, is unknown; the reply stands."""
    reply, _ = await one(raw(start(**begin), *text_events(), *end(**last)))
    assert (reply.message.text, reply.usage.coverage) == ("ok", coverage)


async def test_no_usage_at_all() -> None:
    """R21: a whole reply without any usage counts as missing."""
    reply, _ = await one(Reply(text="ok", usage=None))
    assert (reply.usage.coverage, reply.usage.input_tokens) == ("missing", None)


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("refusal", "refusal"),
    ],
)
async def test_reasons_to_stop(word: str, finish: str) -> None:
    """R32, R69: a cut or paused reply is `length`, so never an answer; a refusal is one."""
    reply, ledger = await one(Reply(text="so far", finish=word))
    assert (reply.finish, ledger.last.finish) == (finish, word)


async def test_a_cut_call() -> None:
    """R32: a call that the token limit cut comes with `length`, its text as it stands."""
    call = FakeToolCall(name="read_file", arguments='{"relative_path": "a')
    reply, _ = await one(Reply(tool_calls=(call,), finish="max_tokens"))
    assert (reply.finish, reply.message.tool_calls[0].arguments) == ("length", call.arguments)


async def test_a_refusal_says_why() -> None:
    """A refusal without text carries the provider's explanation."""
    reply, _ = await one(Reply(refusal="not this"))
    assert (reply.finish, reply.message.text) == ("refusal", "not this")


async def test_an_unknown_reason_is_no_end() -> None:
    """R69: a word that nobody knows isn't taken for an answer."""
    error, ledger, _ = await failed(Reply(text="ok", finish="compaction"))
    assert (error.reason, ledger.statuses) == ("protocol", ["failed"])


async def test_a_stream_cut_at_any_byte() -> None:
    """R69: whatever is missing of the stream, it is a cut, told with what was read, and asked again."""
    whole = raw(start(input_tokens=7, output_tokens=1), *text_events(), *end(output_tokens=3)).raw or b""
    end_mark = whole.index(b"message_stop")
    for length in range(0, len(whole), 41):
        ledger = MemoryLedger()
        with fake_of(Reply(raw=whole, break_after_bytes=length), "again") as fake:
            async with anthropic(fake, clock=JumpingClock()) as pool:
                reply = await ask(pool, ledger=ledger)
        if length < end_mark:
            assert (reply.message.text, ledger.statuses[-1]) == ("again", "completed"), length
            assert ledger.statuses[0] in ("cut", "failed")
            assert ledger.ends[0].usage.coverage == "interrupted"


@pytest.mark.parametrize(
    ("kind", "reason"), [("overloaded_error", "unavailable"), ("rate_limit_error", "rate_limited")]
)
async def test_an_error_in_the_stream_is_asked_again(kind: str, reason: str) -> None:
    """R22: an `error` event ends the attempt, with a row of its own; the next one is a new attempt."""
    error = {"type": "error", "error": {"type": kind, "message": "no"}}
    reply, ledger = await one(
        raw(start(input_tokens=9, output_tokens=1), *text_events("half"), error), "whole"
    )
    assert (reply.message.text, ledger.statuses) == ("whole", ["cut", "completed"])
    assert ledger.ends[0].code == reason
    assert (ledger.ends[0].usage.coverage, ledger.ends[0].usage.input_tokens) == ("interrupted", 9)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("invalid_request_error", "protocol"),
        ("authentication_error", "auth"),
        ("request_too_large", "context_length"),
    ],
)
async def test_a_final_error_in_the_stream(kind: str, reason: str) -> None:
    """R56: what can't get better is asked once."""
    error = {"type": "error", "error": {"type": kind, "message": "no"}}
    caught, _, count = await failed(raw(start(), error))
    assert (caught.reason, count) == (reason, 1)


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_statuses_that_may_get_better(status: int) -> None:
    """R22, R52: overloaded and limited are asked again, each attempt with its row."""
    reply, ledger = await one(Reply(status=status), "ok")
    assert (reply.message.text, ledger.statuses) == ("ok", ["refused", "completed"])
    assert ledger.ends[0].usage.total_tokens == 0


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (400, "prompt is too long: 210000 tokens > 200000 maximum", "context_length"),
        (400, "input length and `max_tokens` exceed context limit: 1 + 2 > 3", "context_length"),
        (400, "Your credit balance is too low to access the API", "rate_limited"),
        (400, "messages: odd", "protocol"),
        (401, "invalid x-api-key", "auth"),
        (403, "no", "auth"),
        (404, "model: x", "unavailable"),
        (413, "large", "context_length"),
    ],
)
async def test_statuses_that_cannot_get_better(status: int, message: str, reason: str) -> None:
    """R56: one try, nothing counted, and the provider's words in the row."""
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    error, ledger, count = await failed(Reply(status=status, body=body))
    assert (error.reason, count, ledger.statuses) == (reason, 1, ["refused"])
    assert message[:20] in (ledger.last.detail or "")


async def test_a_pause_that_is_asked_for() -> None:
    """R52: `retry-after` is kept."""
    clock = JumpingClock()
    with fake_of(Reply(status=529, headers={"retry-after": "7"}), "ok") as fake:
        async with anthropic(fake, clock=clock) as pool:
            await ask(pool)
    assert sum(clock.slept) >= 7


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "server_tool_use"}},
        {"type": "content_block_delta", "index": 4, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": 5}},
        {"type": "message_delta", "delta": {"stop_reason": 7}},
        [text_events()[0], text_events()[0]],
        [*text_events(), text_events()[1]],
        [
            text_events()[0],
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta"}},
        ],
    ],
)
async def test_garbage_is_no_answer(event: Any) -> None:
    """R84: a stream that the dialect doesn't allow fails the attempt, and is asked again."""
    events: list[dict[str, Any]] = event if isinstance(event, list) else [event]
    reply, ledger = await one(raw(start(input_tokens=1), *events, *end()), "again")
    assert (reply.message.text, ledger.statuses) == ("again", ["failed", "completed"])


async def test_an_end_without_a_reason_is_a_cut() -> None:
    """R69: `message_stop` alone doesn't say why the model stopped, so it is no end."""
    reply, ledger = await one(raw(start(input_tokens=1), *text_events(), *end(None)), "again")
    assert (reply.message.text, ledger.statuses) == ("again", ["cut", "completed"])


async def test_what_the_api_may_add_is_passed_over() -> None:
    """Unknown events and deltas change nothing."""
    events = [start(input_tokens=1), {"type": "news"}, *text_events(), *end(output_tokens=2)]
    events.insert(3, {"type": "content_block_delta", "index": 0, "delta": {"type": "sparkle"}})
    reply, _ = await one(raw(*events))
    assert reply.message.text == "ok"


async def test_a_server_of_another_kind() -> None:
    """R69: JSON or a page in place of a stream is refused once, and said."""
    for body in (b'{"type":"message","content":[]}', b"<html>hello</html>"):
        error, _, count = await failed(Reply(raw=body))
        assert (error.reason, count) == ("protocol", 1)


async def test_doubled_call_ids() -> None:
    """R26: an id that the conversation has already is replaced, and answered under the new one."""
    call = FakeToolCall(name="read_file", id="toolu_same")
    with fake_of(Reply(tool_calls=(call, call)), Reply(tool_calls=(call,)), "done") as fake:
        async with anthropic(fake) as pool:
            first = await ask(pool)
            second = await ask(pool, request(*PROMPT, first.message, results(first.message)))
            messages = (
                *PROMPT,
                first.message,
                results(first.message),
                second.message,
                results(second.message),
            )
            assert (await ask(pool, request(*messages))).message.text == "done"
    ids = [call.tool_call_id for call in (*first.message.tool_calls, *second.message.tool_calls)]
    assert len(set(ids)) == 3


async def test_withheld_tools_stay_defined() -> None:
    """A request that withholds the tools names them still: history, cache and signatures hang on them."""
    with fake_of(Reply(thinking="t", tool_calls=(CALL,)), "answer", "answer") as fake:
        async with anthropic(fake) as pool:
            reply = await ask(pool)
            history = (*PROMPT, reply.message, results(reply.message))
            await ask(pool, request(*history, tools=(), options={"parallel_tool_calls": False}))
            await ask(pool, request(*history, tools=(), run_id="taken_up_elsewhere"))
        first, second, third = (item.json for item in fake.requests)
    assert second["tools"] == first["tools"]
    assert (second["tool_choice"], third["tool_choice"]) == ({"type": "none"}, {"type": "none"})
    assert [tool["name"] for tool in third["tools"]] == ["read_file"]


async def test_empty_texts() -> None:
    """What the API refuses as empty never goes out as such."""
    message = AssistantMessage(
        model="x:y", blocks=(ToolCallBlock(tool_call_id="c", name="read_file", arguments=""),)
    )
    blank = (UserMessage(text=" "), message, results(message, ""), AssistantMessage(model="x:y", blocks=()))
    with fake_of("ok") as fake:
        async with anthropic(fake) as pool:
            await ask(pool, request(*blank, UserMessage(text="go on")))
        assert fake.requests[0].status == 200


async def test_images_go_as_bytes() -> None:
    """A data URL becomes a source that the API takes."""
    with fake_of("ok") as fake:
        async with anthropic(fake) as pool:
            await ask(pool, request(UserMessage(text="see", images=(f"data:image/png;base64,{PIXEL}",))))
        image = fake.requests[0].json["messages"][0]["content"][1]
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": PIXEL}


async def test_nothing_of_the_environment_goes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """R79: what the SDK would take from the user's environment isn't for the provider that is configured."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_WEBHOOK_SIGNING_KEY"):
        monkeypatch.setenv(name, "canary-1234567")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Canary: canary-1234567")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/canary")
    with fake_of("ok", api_key=None) as fake:
        async with anthropic(fake, api_key=None, headers={"X-Team": Secret("a")}) as pool:
            await ask(pool)
        headers = fake.requests[0].headers
    assert "canary" not in str(headers)
    assert headers["x-team"] == "a"
    assert not {"authorization", "x-api-key"} & set(headers)


async def test_the_key_is_masked() -> None:
    """R79: a key that the provider echoes isn't stored."""
    _, ledger, _ = await failed(Reply(status=400, echo_key=True))
    assert "sk-ant-fake" not in (ledger.last.detail or "")


async def test_a_base_url_with_its_version() -> None:
    """An address may end with `/v1` or not."""
    with fake_of(Reply(text="ok", repeat=True)) as fake:
        for ending in ("/v1", "/", "/v1/"):
            async with anthropic(fake, base_url=fake.base_url + ending) as pool:
                await ask(pool)
        assert {item.path for item in fake.requests} == {"/v1/messages"}


async def test_a_bound_that_is_too_large() -> None:
    """R24: the bound that we only assume gives way to the one that the API names, at once and for good."""
    models = {"claude-new-1": ClaudeModel(max_output_tokens=8_192)}
    ledger = MemoryLedger()
    with fake_of(Reply(text="ok", repeat=True), models=models) as fake:
        async with anthropic(fake, "claude-new-1") as pool:
            await ask(pool, ledger=ledger)
            await ask(pool, ledger=ledger)
            with pytest.raises(ProviderError):
                await ask(pool, request(max_output_tokens=9_000), ledger=ledger)
        assert [item.json["max_tokens"] for item in fake.requests] == [32_768, 8_192, 8_192, 9_000]
    assert ledger.statuses == ["refused", "completed", "completed", "refused"]
