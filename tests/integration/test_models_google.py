"""Gemini through the real SDK, over real HTTP, against the strict fake."""

from __future__ import annotations

import json
from dataclasses import replace
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
from remit.primitives import Secret
from remit.testing import FakeProvider, FakeToolCall, GeminiDialect, Reply

pytest.importorskip("google.genai", reason="the extra `google` isn't installed")
ODD = "x\u0085y\u2028z\u2029w\u000bv"
CALL = FakeToolCall(name="read_file", arguments='{"relative_path": "a.py"}')
SKIP = "skip_thought_signature_validator"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def results(message: AssistantMessage, content: str = "found", status: str = "success") -> ToolResultsMessage:
    return ToolResultsMessage(
        results=tuple(
            ToolResult(tool_call_id=call.tool_call_id, name=call.name, content=content, status=status)
            for call in message.tool_calls
        )
    )


def google(fake: FakeProvider, model: str = "gemini-3.8-flash", **settings: Any) -> Any:
    return pool_for(fake, kind="google", model=model, **settings)


def fake_of(*replies: Reply | str, **settings: Any) -> FakeProvider:
    return FakeProvider(list(replies), dialect=GeminiDialect(**settings))


async def one(*replies: Reply | str, model: str = "gemini-3.8-flash") -> tuple[ModelReply, MemoryLedger]:
    ledger = MemoryLedger()
    with fake_of(*replies) as fake:
        async with google(fake, model) as pool:
            return await ask(pool, ledger=ledger), ledger


async def failed(*replies: Reply) -> tuple[ProviderError, MemoryLedger, int]:
    ledger = MemoryLedger()
    with fake_of(*replies) as fake:
        async with google(fake) as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, ledger=ledger)
        return caught.value, ledger, len(fake.requests)


def raw(*chunks: Any) -> Reply:
    return Reply(raw="".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode())


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **more}


def usage(prompt: int, said: int, **more: int) -> dict[str, Any]:
    total = prompt + said + more.get("thoughtsTokenCount", 0)
    return {
        "usageMetadata": {
            "promptTokenCount": prompt,
            "candidatesTokenCount": said,
            "totalTokenCount": total,
            **more,
        }
    }


async def test_a_text() -> None:
    """S41: text in pieces; usage, the provider's id and word in the ledger."""
    deltas: list[Delta] = []
    ledger = MemoryLedger()
    with fake_of(Reply(text=f"Grüße, 世界 {ODD}", chunk_count=4)) as fake:
        async with google(fake) as pool:
            reply = await ask(pool, ledger=ledger, deltas=deltas)
    assert reply.message.text == f"Grüße, 世界 {ODD}"
    assert "".join(delta.text for delta in deltas) == f"Grüße, 世界 {ODD}"
    assert (reply.finish, reply.usage.coverage, reply.usage.flags) == ("stop", "reported", ())
    assert (ledger.last.provider_request_id, ledger.last.finish) == ("req_fake000001", "STOP")


async def test_what_is_sent() -> None:
    """S38, S39: the body is built for the model asked, who we are goes along, no more than was asked."""
    with fake_of("ok") as fake:
        async with google(fake) as pool:
            options = {"reasoning_effort": "low", "stop": "END", "temperature": 0.5, "seed": 7}
            await ask(pool, request(max_output_tokens=500, options=options))
        got = fake.requests[0]
    assert got.path == "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
    body = got.json
    assert body["generationConfig"] == {
        "maxOutputTokens": 500,
        "stopSequences": ["END"],
        "temperature": 0.5,
        "seed": 7,
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
    }
    assert body["systemInstruction"] == {"parts": [{"text": "You work."}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "Do it."}]}]
    (declared,) = [tool for tool in body["tools"][0]["functionDeclarations"] if tool["name"] == "read_file"]
    assert declared["parametersJsonSchema"] == READ_TOOL.parameters
    assert got.headers["user-agent"].startswith("remit/")
    assert got.headers["x-client-request-id"].startswith("att_")
    assert got.headers["x-goog-api-key"] == fake.api_key
    assert "authorization" not in got.headers


@pytest.mark.parametrize(
    ("model", "options", "sent"),
    [
        ("gemini-2.0-flash", {}, None),
        ("gemini-2.5-pro", {}, {"includeThoughts": True}),
        ("gemini-2.5-pro", {"reasoning_effort": "high"}, {"includeThoughts": True, "thinkingBudget": 24_576}),
        ("gemini-2.5-flash", {"reasoning_effort": "none"}, {"includeThoughts": False, "thinkingBudget": 0}),
        (
            "gemini-3-pro-preview",
            {"reasoning_effort": "high"},
            {"includeThoughts": True, "thinkingLevel": "high"},
        ),
    ],
)
async def test_thinking(model: str, options: dict[str, Any], sent: Any) -> None:
    """Each generation is told to think in the words that it takes."""
    with fake_of("ok") as fake:
        async with google(fake, model) as pool:
            await ask(pool, request(options=options))
        assert (fake.requests[0].json.get("generationConfig") or {}).get("thinkingConfig") == sent


@pytest.mark.parametrize("call_ids", [True, False])
async def test_signatures_round_trip(call_ids: bool) -> None:
    """S30, R29, R30: thoughts and signatures go back on the part that they came on; the fake demands it."""
    two = Reply(thinking="Let me look.", tool_calls=(CALL, FakeToolCall(name="read_file", arguments="{}")))
    with fake_of(two, Reply(text="done"), Reply(text="and more"), call_ids=call_ids) as fake:
        async with google(fake) as pool:
            first = await ask(pool)
            stored = message_from_json(json.loads(json.dumps(message_to_json(first.message))))
            assert stored == first.message
            conversation: list[Message] = [*PROMPT, stored, results(first.message)]
            second = await ask(pool, request(*conversation))
            conversation += [second.message, UserMessage(text="Go on.")]
            await ask(pool, request(*conversation))
        bodies = [got.json for got in fake.requests]
    thought, call, other = first.message.blocks
    assert isinstance(thought, ThinkingBlock)
    assert isinstance(call, ToolCallBlock)
    assert call.details is not None
    assert len(call.details["signature"]) == 640
    assert isinstance(other, ToolCallBlock)
    sent = bodies[1]["contents"][1]["parts"]
    assert sent[0] == {"text": "Let me look.", "thought": True}
    assert sent[1]["thoughtSignature"] == call.details["signature"]
    assert "thoughtSignature" not in sent[2]
    assert [part["functionResponse"]["response"] for part in bodies[1]["contents"][2]["parts"]] == [
        {"output": "found"}
    ] * 2
    assert bodies[2]["contents"][: len(bodies[1]["contents"])] == bodies[1]["contents"]
    assert second.message.text == "done"


async def test_another_ones_turn_is_marked() -> None:
    """R29: a call of another provider brings no signature of its own, and is taken all the same."""
    foreign = AssistantMessage(
        model="other:claude-sonnet-4-6",
        blocks=(
            ThinkingBlock(text="hm", signature="sig", provider="other"),
            TextBlock(text="Looking.", provider="other"),
            ToolCallBlock(tool_call_id="toolu_1", name="read_file", arguments="{}", provider="other"),
            ToolCallBlock(tool_call_id="toolu_2", name="read_file", arguments="not json", provider="other"),
        ),
    )
    with fake_of("ok") as fake:
        async with google(fake) as pool:
            await ask(pool, request(*PROMPT, foreign, results(foreign, status="failed")))
        parts = fake.requests[0].json["contents"][1]["parts"]
        answers = fake.requests[0].json["contents"][2]["parts"]
    assert [sorted(part) for part in parts] == [
        ["text"],
        ["functionCall", "thoughtSignature"],
        ["functionCall"],
    ]
    assert parts[1]["thoughtSignature"] == SKIP
    assert parts[2]["functionCall"]["args"]["invalid_arguments"] == "not json"
    assert answers[0]["functionResponse"] == {"name": "read_file", "response": {"error": "found"}}


@pytest.mark.parametrize("where", ["altered", "moved"])
async def test_the_fake_checks_signatures(where: str) -> None:
    """R29: the fake takes no signature that is altered or stands on another part."""
    with fake_of(Reply(tool_calls=(CALL,))) as fake:
        async with google(fake) as pool:
            first = await ask(pool)
            (call,) = first.message.tool_calls
            assert call.details is not None
            if where == "altered":
                changed = replace(call, details={**call.details, "signature": "QUJD"})
            else:
                changed = replace(call, arguments='{"relative_path": "b.py"}')
            other = AssistantMessage(blocks=(changed,), model=first.model)
            with pytest.raises(ProviderError) as caught:
                await ask(pool, request(*PROMPT, other, results(other)))
    assert "signature is not valid" in str(caught.value.fields)


async def test_parallel_calls() -> None:
    """R26: calls of one tool are several calls, also where nobody gives them ids, or one id twice."""
    calls = tuple(
        FakeToolCall(name="read_file", arguments={"relative_path": name}, id="same") for name in ("a", "b")
    )
    for call_ids in (True, False):
        with fake_of(Reply(tool_calls=calls), "ok", call_ids=call_ids) as fake:
            async with google(fake) as pool:
                reply = await ask(pool)
                await ask(pool, request(*PROMPT, reply.message, results(reply.message)))
            assert [got.status for got in fake.requests] == [200, 200]
        ids = [call.tool_call_id for call in reply.message.tool_calls]
        assert len(set(ids)) == 2
        assert [json.loads(call.arguments)["relative_path"] for call in reply.message.tool_calls] == [
            "a",
            "b",
        ]
        assert reply.finish == "tool_calls"


async def test_hidden_thoughts_are_output() -> None:
    """R20: prompt 10, said 200, thought 5000: output is 5200, of which reasoning 5000."""
    reply, _ = await one(
        raw(chunk({"text": "ok"}, finish="STOP", **usage(10, 200, thoughtsTokenCount=5_000)))
    )
    assert reply.usage.output_tokens == 5_200
    assert reply.usage.reasoning_tokens == 5_000
    assert reply.usage.total_tokens == 5_210
    assert (reply.usage.coverage, reply.usage.flags) == ("reported", ())


async def test_cached_input_is_counted_once() -> None:
    """R18: what was read from the cache is a part of the input; what tools put in is input too."""
    more = {"cachedContentTokenCount": 80, "toolUsePromptTokenCount": 7}
    record = chunk({"text": "ok"}, finish="STOP", **usage(100, 5, **more))
    record["usageMetadata"]["totalTokenCount"] = 112
    reply, _ = await one(raw(record))
    assert (reply.usage.input_tokens, reply.usage.cache_read_tokens) == (107, 80)
    assert (reply.usage.output_tokens, reply.usage.coverage) == (5, "reported")


@pytest.mark.parametrize(
    ("counts", "coverage", "flag"),
    [
        ({"promptTokenCount": 10, "totalTokenCount": 10}, "reported", None),
        ({"promptTokenCount": 10}, "partial", None),
        (
            {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 40},
            "partial",
            "total_mismatch",
        ),
        ({"promptTokenCount": -1, "candidatesTokenCount": 5}, "partial", "bad_number"),
        ({"promptTokenCount": 1e999, "candidatesTokenCount": 5}, "partial", "bad_number"),
        ("nonsense", "missing", "bad_usage"),
        (None, "missing", None),
    ],
)
async def test_odd_usage(counts: Any, coverage: str, flag: str | None) -> None:
    """R20, R21, R84: what isn't named is zero only where the total says so; nonsense is never a zero."""
    more = {} if counts is None else {"usageMetadata": counts}
    reply, _ = await one(raw(chunk({"text": "ok"}, finish="STOP", **more)))
    assert reply.usage.coverage == coverage
    assert flag is None or flag in reply.usage.flags
    if coverage == "missing":
        assert reply.usage.input_tokens is None


async def test_usage_after_the_end() -> None:
    """R19: counters are totals, the last one wins, also when it comes after the reason to stop."""
    reply, _ = await one(
        raw(
            chunk({"text": "a"}, **usage(100, 1)),
            chunk({"text": "b"}, finish="STOP"),
            {"usageMetadata": usage(100, 50)["usageMetadata"]},
        )
    )
    assert (reply.message.text, reply.usage.output_tokens, reply.usage.coverage) == ("ab", 50, "reported")


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("STOP", "stop"),
    ],
)
async def test_ends(word: str, finish: str) -> None:
    """R32, R86: each word for the end in ours; a cut is no answer."""
    reply, ledger = await one(Reply(text="some", finish=word))
    assert (reply.finish, ledger.last.finish) == (finish, word)


async def test_a_blocked_prompt() -> None:
    """R86: a prompt that isn't taken is a reply of its own, with what it cost."""
    reply, ledger = await one(Reply(refusal="PROHIBITED_CONTENT"))
    assert (reply.finish, reply.message.blocks) == ("content_filter", ())
    assert ledger.last.finish == "PROHIBITED_CONTENT"
    assert reply.usage.input_tokens


@pytest.mark.parametrize("word", ["MALFORMED_FUNCTION_CALL", "OTHER"])
async def test_nothing_usable(word: str) -> None:
    """R69: a reply that its provider calls malformed is asked for again, and never run."""
    reply, ledger = await one(Reply(text="half", finish=word), "whole")
    assert reply.message.text == "whole"
    assert ledger.statuses == ["failed", "completed"]


async def test_an_unknown_word_is_no_end() -> None:
    """A word that nobody knows is no answer."""
    error, ledger, _ = await failed(Reply(text="some", finish="SHRUG"))
    assert (error.reason, ledger.statuses) == ("protocol", ["failed"])


async def test_no_end_is_a_cut() -> None:
    """R21, R69: without a reason to stop the reply is cut, whatever came."""
    reply, ledger = await one(Reply(text="half", done=False), "whole")
    assert reply.message.text == "whole"
    assert ledger.ends[0].status == "cut"
    assert ledger.ends[0].usage.coverage == "interrupted"
    assert ledger.ends[0].usage.input_tokens


async def test_an_end_that_nobody_closes() -> None:
    """R69: with the reason to stop seen, a connection that stays open changes nothing."""
    body = raw(chunk({"text": "whole"}, finish="STOP", **usage(10, 5))).raw
    assert body is not None
    reply, ledger = await one(Reply(raw=body + b": later", break_after_bytes=len(body), break_how="hang"))
    assert (reply.message.text, reply.usage.coverage) == ("whole", "reported")
    assert "odd_tail" in reply.usage.flags
    assert ledger.statuses == ["completed"]


async def test_not_streamed() -> None:
    """A gateway that answers with one list in place of a stream is understood."""
    records = [chunk({"text": "a"}), chunk({"text": "b"}, finish="STOP", **usage(10, 5))]
    body = json.dumps(records).encode()
    reply, _ = await one(Reply(raw=body, content_type="application/json"))
    assert (reply.message.text, reply.usage.flags) == ("ab", ("not_streamed",))


async def test_retry_info() -> None:
    """R52: what the body asks for is kept, for everybody with the key."""
    clock = JumpingClock()
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    body = {
        "error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow down", "details": details}
    }
    ledger = MemoryLedger()
    with fake_of(Reply(status=429, body=body), "ok") as fake:
        async with google(fake, clock=clock) as pool:
            await ask(pool, ledger=ledger)
    assert ledger.statuses == ["refused", "completed"]
    assert 34.5 <= sum(clock.slept) <= 37
    assert ledger.ends[0].usage.total_tokens == 0


async def test_an_error_in_the_stream() -> None:
    """R22, R52: an error record ends the attempt, says when to come back, and its row stays."""
    clock = JumpingClock()
    error = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "Please try again in 12s."}}
    ledger = MemoryLedger()
    with fake_of(raw(chunk({"text": "ha"}, **usage(10, 1)), error), "whole") as fake:
        async with google(fake, clock=clock) as pool:
            reply = await ask(pool, ledger=ledger)
    assert reply.message.text == "whole"
    assert ledger.statuses == ["cut", "completed"]
    assert (ledger.ends[0].code, ledger.ends[0].usage.coverage) == ("unavailable", "interrupted")
    assert sum(clock.slept) >= 12


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(status=403), "auth"),
        (Reply(status=404), "unavailable"),
        (Reply(status=400), "protocol"),
        (
            Reply(status=429, body={"error": {"message": "quotaId: GenerateRequestsPerDayPerProject"}}),
            "rate_limited",
        ),
    ],
)
async def test_what_cannot_get_better(reply: Reply, reason: str) -> None:
    """R56: one try."""
    error, ledger, count = await failed(reply)
    assert (error.reason, ledger.statuses, count) == (reason, ["refused"], 1)


async def test_a_wrong_key() -> None:
    """R56, R79: a key that isn't taken is `auth`, and its text is in no record."""
    ledger = MemoryLedger()
    with fake_of("ok") as fake:
        async with google(fake, api_key=Secret("AIza-wrong-9876543210")) as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, ledger=ledger)
    assert caught.value.reason == "auth"
    assert "AIza-wrong" not in str(ledger.last)


async def test_a_prompt_that_is_too_long() -> None:
    """R56: the API's own words for it are understood."""
    with fake_of("ok") as fake:
        async with google(fake, "gemini-2.0-flash") as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, request(UserMessage(text="word " * 900_000)))
    assert caught.value.reason == "context_length"


async def test_withheld_tools_stay_defined() -> None:
    """A request that may not call anything still names the tools of the conversation."""
    with fake_of(Reply(tool_calls=(CALL,)), "answer") as fake:
        async with google(fake) as pool:
            first = await ask(pool)
            await ask(pool, request(*PROMPT, first.message, results(first.message), tools=()))
        body = fake.requests[1].json
    assert body["tools"] == fake.requests[0].json["tools"]
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}


async def test_a_bound_that_is_too_large() -> None:
    """A bound that only we assumed gives way to the one that the API names; a stage's own doesn't."""
    from remit.testing import GeminiModel

    models = {"gemma-next": GeminiModel(thinking="no", signs=False, max_output_tokens=8_192)}
    with fake_of("ok", models=models) as fake:
        async with google(fake, "gemma-next") as pool:
            ledger = MemoryLedger()
            await ask(pool, ledger=ledger)
            assert ledger.statuses == ["refused", "completed"]
            assert fake.requests[1].json["generationConfig"]["maxOutputTokens"] == 8_192
            with pytest.raises(ProviderError):
                await ask(pool, request(max_output_tokens=9_000))


async def test_the_cache_is_met() -> None:
    """After three rounds, most of the input is read from the cache: prompts are byte-stable."""
    with fake_of(*[Reply(tool_calls=(CALL,))] * 3, "done") as fake:
        async with google(fake) as pool:
            conversation: list[Message] = [PROMPT[0], UserMessage(text="Do it. " * 2_000)]
            for _ in range(3):
                reply = await ask(pool, request(*conversation))
                conversation += [reply.message, results(reply.message)]
            reply = await ask(pool, request(*conversation))
    assert reply.usage.input_tokens is not None
    assert reply.usage.cache_read_tokens is not None
    assert reply.usage.cache_read_tokens >= 0.75 * reply.usage.input_tokens


async def test_an_image() -> None:
    """S: an image goes out as its bytes."""
    with fake_of("ok") as fake:
        async with google(fake) as pool:
            await ask(pool, request(UserMessage(text="See.", images=(f"data:image/png;base64,{PIXEL}",))))
        parts = fake.requests[0].json["contents"][0]["parts"]
    assert parts[1] == {"inlineData": {"mimeType": "image/png", "data": PIXEL}}


async def test_a_byte_at_a_time() -> None:
    """R70: however the bytes come, in whichever framing, the reply is the same."""
    text = f"ü{ODD}界"
    replies = [
        Reply(text=text, piece_bytes=7),
        Reply(text=text, line_end="\r\n"),
        Reply(text=text, line_end="\r"),
    ]
    with fake_of(*replies) as fake:
        async with google(fake) as pool:
            got = [await ask(pool) for _ in replies]
    assert [reply.message.text for reply in got] == [text] * 3


ODD_ARGUMENTS = ["null", "[]", '"x"', "7", '{"n": 2512292042121000001}']


@pytest.mark.parametrize("arguments", ODD_ARGUMENTS)
async def test_odd_arguments_arrive_as_they_are(arguments: str) -> None:
    """R31, R85: what isn't an object is shown to the tool layer as it came, and can be sent back."""
    part = {"functionCall": {"name": "read_file", "args": json.loads(arguments)}}
    dialect = GeminiDialect(models=None)
    with FakeProvider([raw(chunk(part, finish="STOP", **usage(1, 1))), "ok"], dialect=dialect) as fake:
        async with google(fake) as pool:
            reply = await ask(pool)
            (call,) = reply.message.tool_calls
            assert call.arguments == ("{}" if arguments == "null" else arguments)
            await ask(pool, request(*PROMPT, reply.message, results(reply.message)))
