"""OpenAI Responses through the real SDK, over real HTTP, against the strict fake."""

from __future__ import annotations

import hashlib
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
    message_from_json,
    message_to_json,
)
from remit.primitives import dump_json
from remit.testing import ChatModel, FakeProvider, FakeToolCall, OpenAIResponsesDialect, Reply

ODD = "x\u0085y\u2028z\u2029w\u000bv"
CALL = FakeToolCall(name="read_file", arguments='{"relative_path":  "a\\u00e9.py", "n": 2512292042121000001}')


def results(message: AssistantMessage) -> ToolResultsMessage:
    found = (
        ToolResult(tool_call_id=call.tool_call_id, name=call.name, content="found")
        for call in message.tool_calls
    )
    return ToolResultsMessage(results=tuple(found))


def responses(fake: FakeProvider, model: str = "gpt-5.2", **settings: Any) -> Any:
    return pool_for(fake, kind="openai", model=model, **settings)


def fake_of(*replies: Reply | str, **settings: Any) -> FakeProvider:
    return FakeProvider(list(replies), dialect=OpenAIResponsesDialect(**settings))


async def one(*replies: Reply | str, model: str = "gpt-5.2") -> tuple[ModelReply, MemoryLedger]:
    ledger = MemoryLedger()
    with fake_of(*replies) as fake:
        async with responses(fake, model) as pool:
            return await ask(pool, ledger=ledger), ledger


async def failed(*replies: Reply) -> tuple[ProviderError, MemoryLedger, int]:
    ledger = MemoryLedger()
    with fake_of(*replies) as fake:
        async with responses(fake) as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, ledger=ledger)
        return caught.value, ledger, len(fake.requests)


def raw(*events: dict[str, Any]) -> Reply:
    return Reply(raw="".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode())


def message_item(text: str = "ok") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def done(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    response = {"id": "resp_1", "model": "m", "status": "completed", "output": list(items), **more}
    return {"type": "response.completed", "response": response}


CREATED = {"type": "response.created", "response": {"id": "resp_1", "model": "m", "status": "in_progress"}}


async def test_a_text() -> None:
    """S41: text in pieces, usage at the end, the provider's ids and words in the ledger."""
    deltas: list[Delta] = []
    ledger = MemoryLedger()
    with fake_of(Reply(text=f"Grüße, 世界 {ODD}", thinking="hm", chunk_count=4)) as fake:
        async with responses(fake) as pool:
            reply = await ask(pool, ledger=ledger, deltas=deltas)
    assert reply.message.text == f"Grüße, 世界 {ODD}"
    assert "".join(delta.text for delta in deltas if delta.kind == "text") == reply.message.text
    assert "".join(delta.text for delta in deltas if delta.kind == "reasoning") == "hm"
    assert (reply.finish, reply.usage.coverage, reply.usage.flags) == ("stop", "reported", ())
    assert (ledger.last.provider_request_id, ledger.last.finish) == ("req_fake000001", "completed")


async def test_what_is_sent() -> None:
    """S38, S39: nothing is stored there, reasoning is asked for sealed, the run's id is the cache key."""
    options = {"verbosity": "low", "parallel_tool_calls": False, "service_tier": "flex"}
    with fake_of("ok") as fake:
        async with responses(fake) as pool:
            await ask(pool, request(options=options, max_output_tokens=500))
        got = fake.requests[0]
    body = got.json
    assert got.path == "/v1/responses"
    assert (body["model"], body["stream"], body["store"]) == ("gpt-5.2", True, False)
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["prompt_cache_key"] == "run_01"
    assert body["reasoning"] == {"effort": "medium"}
    assert (body["max_output_tokens"], body["text"]) == (500, {"verbosity": "low"})
    assert (body["parallel_tool_calls"], body["service_tier"]) == (False, "flex")
    assert body["input"] == [
        {"role": "developer", "content": "You work."},
        {"role": "user", "content": "Do it."},
    ]
    assert body["tools"][0]["parameters"] == READ_TOOL.parameters
    assert body["tools"][0]["strict"] is False
    assert got.headers["user-agent"].startswith("remit/")
    assert got.headers["x-client-request-id"].startswith("att_")
    assert got.headers["x-stainless-retry-count"] == "0"


@pytest.mark.parametrize(
    ("model", "options", "reasoning", "sealed"),
    [
        ("gpt-4.1", {"temperature": 0.5}, None, False),
        ("gpt-5", {}, None, True),
        ("gpt-5.2", {"temperature": 0.5}, None, True),
        ("gpt-5.4", {}, {"effort": "medium"}, True),
        ("gpt-5.6-sol", {}, None, True),
        ("gpt-5.6-sol", {"reasoning_effort": "high"}, {"effort": "high"}, True),
    ],
)
async def test_reasoning_beside_tools(model: str, options: Any, reasoning: Any, sealed: bool) -> None:
    """Here every model reasons beside tools; one whose default is off is told to."""
    with fake_of("ok") as fake:
        async with responses(fake, model) as pool:
            await ask(pool, request(options=options))
        body = fake.requests[0].json
    assert (body.get("reasoning"), "include" in body) == (reasoning, sealed)


async def test_items_go_back_as_they_came() -> None:
    """R29, R30: sealed reasoning, ids, phases and arguments return as they came, by way of the store too."""
    blocks = (
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealA+/=" * 80},
        {**message_item(f"I look. {ODD}  "), "phase": "commentary"},
        {
            "type": "reasoning",
            "id": "rs_2",
            "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
            "encrypted_content": "sealB+/=" * 80,
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "read_file",
            "arguments": '{"a":  1}',
        },
        {
            "type": "function_call",
            "id": "fc_2",
            "call_id": "c2",
            "name": "read_file",
            "arguments": CALL.argument_text,
        },
    )
    with fake_of(Reply(blocks=blocks), "done") as fake:
        async with responses(fake) as pool:
            reply = await ask(pool)
            stored = message_from_json(json.loads(dump_json(message_to_json(reply.message))))
            assert isinstance(stored, AssistantMessage)
            await ask(pool, request(*PROMPT, stored, results(stored)))
        sent = fake.requests[-1].json["input"]
    assert sent[2:7] == list(blocks)
    assert [item["call_id"] for item in sent[7:]] == ["c1", "c2"]
    assert [block.text for block in reply.message.blocks if isinstance(block, ThinkingBlock)] == [
        "",
        "one\n\ntwo",
    ]


@pytest.mark.parametrize("other", ["provider", "model"])
async def test_what_somebody_else_sealed_is_left_out(other: str) -> None:
    """R29: neither sealed reasoning nor ids go to another provider or model; the calls do."""
    own = other == "model"
    thought = {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": "s"}
    message = AssistantMessage(
        model="fake:gpt-5" if own else "else:gpt-5.2",
        blocks=(
            ThinkingBlock(text="secret", provider="fake" if own else "else", details={"item": thought}),
            TextBlock(text="I look.", provider="fake", details={"id": "msg_9"}),
            ToolCallBlock(tool_call_id="x" * 80, name="read_file", arguments="not JSON"),
        ),
    )
    with fake_of("done") as fake:
        async with responses(fake) as pool:
            await ask(pool, request(*PROMPT, message, results(message)))
        text, call, output = fake.requests[0].json["input"][2:]
    assert text == {"role": "assistant", "content": "I look."}
    assert call["call_id"] == output["call_id"] == f"call_{hashlib.sha256(b'x' * 80).hexdigest()[:32]}"
    assert json.loads(call["arguments"]) == {"invalid_arguments": "not JSON", "characters": 8}
    assert "id" not in call


async def test_prompts_are_append_only() -> None:
    """Every request of a stage begins with the bytes of the one before: the cache holds."""
    with fake_of(*(Reply(thinking=f"t{n}", text="x", tool_calls=(CALL,)) for n in range(4))) as fake:
        async with responses(fake) as pool:
            messages: tuple[Message, ...] = PROMPT
            for _ in range(4):
                reply = await ask(pool, request(*messages))
                messages = (*messages, reply.message, results(reply.message))
        bodies = [json.dumps(item.json["input"])[:-1] for item in fake.requests]
    for number in range(1, 4):
        assert bodies[number].startswith(bodies[number - 1])


async def test_a_cut_thought_is_not_sent_alone() -> None:
    """R32: reasoning that the limit cut, without anything after it, can't go back; what is there, can."""
    with fake_of(Reply(thinking="long", finish="max_output_tokens"), "done") as fake:
        async with responses(fake) as pool:
            reply = await ask(pool)
            assert reply.finish == "length"
            await ask(pool, request(*PROMPT, reply.message, UserMessage(text="go on")))
        assert [item["role"] for item in fake.requests[-1].json["input"]] == ["developer", "user", "user"]


async def test_usage() -> None:
    """R18, R20: cache reads and reasoning are parts of what the API counts."""
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64},
        "output_tokens": 5200,
        "output_tokens_details": {"reasoning_tokens": 5000},
        "total_tokens": 5300,
    }
    reply, _ = await one(Reply(text="ok", usage=usage))
    got = reply.usage
    assert (got.input_tokens, got.cache_read_tokens, got.output_tokens, got.reasoning_tokens) == (
        100,
        64,
        5200,
        5000,
    )
    assert (got.total_tokens, got.coverage, got.raw) == (5300, "reported", usage)


@pytest.mark.parametrize(
    ("usage", "coverage"),
    [
        (None, "missing"),
        ({"input_tokens": 3}, "partial"),
        ({"input_tokens": -3, "output_tokens": 4, "total_tokens": 1}, "partial"),
        ({"input_tokens": 3, "output_tokens": "4"}, "partial"),
    ],
)
async def test_missing_numbers_are_never_zero(usage: Any, coverage: str) -> None:
    """R21: a number that didn't come, or is none, is unknown; the reply stands."""
    reply, _ = await one(Reply(text="ok", usage=usage))
    assert (reply.message.text, reply.usage.coverage) == ("ok", coverage)


@pytest.mark.parametrize(
    ("word", "finish"), [("max_output_tokens", "length"), ("content_filter", "content_filter")]
)
async def test_incomplete(word: str, finish: str) -> None:
    """R69: `response.incomplete` is an end mark, but no answer."""
    reply, ledger = await one(Reply(text="so far", finish=word))
    assert (reply.finish, ledger.last.finish, reply.message.text) == (finish, word, "so far")


async def test_a_refusal() -> None:
    """A refusal is told apart from an answer, with its words."""
    reply, _ = await one(Reply(refusal="I won't"))
    assert (reply.finish, reply.message.text) == ("refusal", "I won't")


async def test_no_output_at_all() -> None:
    """An end without any item is asked once more."""
    reply, ledger = await one(raw(CREATED, done()), "ok")
    assert (reply.message.text, ledger.ends[0].code) == ("ok", "empty_result")


async def test_items_that_come_only_at_the_end() -> None:
    """A server that sends no item when it is whole sends all of them with the end."""
    reply, _ = await one(raw(CREATED, done(message_item("late"))))
    assert reply.message.text == "late"


async def test_a_stream_cut_at_any_byte() -> None:
    """R69: whatever is missing of the stream, it is a cut, and asked again."""
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    item = message_item()
    events = (
        CREATED,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        done(item, usage=usage),
    )
    whole = raw(*events).raw or b""
    for length in range(0, len(whole) - 3, 53):
        ledger = MemoryLedger()
        with fake_of(Reply(raw=whole, break_after_bytes=length), "again") as fake:
            async with responses(fake, clock=JumpingClock()) as pool:
                reply = await ask(pool, ledger=ledger)
        assert (reply.message.text, ledger.statuses[-1]) == ("again", "completed"), length
        assert ledger.ends[0].usage.coverage == "interrupted"


@pytest.mark.parametrize(
    ("error", "reason", "again"),
    [
        ({"code": "server_error", "message": "x"}, "unavailable", True),
        ({"code": "rate_limit_exceeded", "message": "x"}, "rate_limited", True),
        ({"code": "invalid_prompt", "message": "x"}, "protocol", False),
        ({"code": "context_length_exceeded", "message": "x"}, "context_length", False),
        ({"code": "insufficient_quota", "message": "insufficient_quota"}, "rate_limited", False),
    ],
)
@pytest.mark.parametrize("form", ["failed", "error"])
async def test_failures_in_the_stream(form: str, error: dict[str, str], reason: str, again: bool) -> None:
    """R22, R56: `response.failed` and `error` end the attempt; what can't get better is asked once."""
    usage = {"input_tokens": 7, "output_tokens": 0, "total_tokens": 7}
    failed_response = {"id": "r", "model": "m", "status": "failed", "error": error, "usage": usage}
    event = {"type": "response.failed", "response": failed_response}
    bad = raw(CREATED, event if form == "failed" else {"type": "error", **error, "sequence_number": 2})
    if not again:
        caught, ledger, count = await failed(bad)
        assert (caught.reason, count) == (reason, 1)
        return
    reply, ledger = await one(bad, "ok")
    assert (reply.message.text, ledger.ends[0].code, ledger.ends[0].status) == ("ok", reason, "failed")
    assert ledger.ends[0].usage.input_tokens == (7 if form == "failed" else None)


@pytest.mark.parametrize(
    "event",
    [
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "web_search_call", "id": "w"},
        },
        {"type": "response.output_item.done", "output_index": "x", "item": {"type": "message"}},
        {"type": "response.output_text.delta", "delta": 5},
        {"type": "response.completed", "response": 5},
    ],
)
async def test_garbage_is_no_answer(event: dict[str, Any]) -> None:
    """R84: a stream that the dialect doesn't allow fails the attempt, and is asked again."""
    reply, ledger = await one(raw(CREATED, event), "ok")
    assert (reply.message.text, ledger.statuses[0]) == ("ok", "failed")


async def test_what_the_api_may_add_is_passed_over() -> None:
    """Unknown events change nothing."""
    item = message_item()
    news = {"type": "response.news", "sequence_number": 4}
    reply, _ = await one(raw(CREATED, news, {"type": "keepalive"}, done(item)))
    assert reply.message.text == "ok"


async def test_doubled_call_ids() -> None:
    """R26: an id that the conversation has already is replaced, and answered under the new one."""
    call = FakeToolCall(name="read_file", id="call_same")
    with fake_of(Reply(tool_calls=(call, call)), Reply(tool_calls=(call,)), "done") as fake:
        async with responses(fake) as pool:
            first = await ask(pool)
            second = await ask(pool, request(*PROMPT, first.message, results(first.message)))
            history = (
                *PROMPT,
                first.message,
                results(first.message),
                second.message,
                results(second.message),
            )
            assert (await ask(pool, request(*history))).message.text == "done"
    ids = [call.tool_call_id for call in (*first.message.tool_calls, *second.message.tool_calls)]
    assert len(set(ids)) == 3


async def test_a_model_that_seals_nothing() -> None:
    """What only we ask for is left out once it is refused, at once and for good."""
    models = {"new-1": ChatModel(), "gpt-5.2": ChatModel()}
    with fake_of(Reply(text="ok", repeat=True), models=models) as fake:
        async with responses(fake, "new-1") as pool:
            ledger = MemoryLedger()
            await ask(pool, request(max_output_tokens=900), ledger=ledger)
            await ask(pool, request(max_output_tokens=900), ledger=ledger)
        assert ledger.statuses == ["refused", "completed", "completed"]
        async with responses(fake, "gpt-5.2") as pool:
            await ask(pool)
        assert "reasoning" not in fake.requests[-1].json


async def test_statuses() -> None:
    """R22, R56: limited is asked again, unauthorised isn't."""
    reply, ledger = await one(Reply(status=429), Reply(status=503), "ok")
    assert (reply.message.text, ledger.statuses) == ("ok", ["refused", "refused", "completed"])
    error, _, count = await failed(Reply(status=401))
    assert (error.reason, count) == ("auth", 1)


async def test_images() -> None:
    """A data URL goes along as an input image."""
    url = "data:image/png;base64,AAAA"
    with fake_of("ok") as fake:
        async with responses(fake) as pool:
            await ask(pool, request(UserMessage(text="see", images=(url,))))
        content = fake.requests[0].json["input"][0]["content"]
    assert content[1] == {"type": "input_image", "detail": "auto", "image_url": url}


async def test_nothing_of_the_environment_goes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """R79: what the SDK would take from the user's environment isn't for the provider that is configured."""
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "canary-1234567")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Canary: canary-1234567")
    with fake_of("ok") as fake:
        async with responses(fake) as pool:
            await ask(pool)
        assert "canary" not in str(fake.requests[0].headers)
