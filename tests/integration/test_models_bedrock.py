"""Bedrock's Converse stream over real HTTP: binary frames, its own rules, and no client in between."""

from __future__ import annotations

import json
from typing import Any

import pytest

from model_kit import PROMPT, JumpingClock, MemoryLedger, ask, pool_for, request
from remit.errors import ConfigError, ProviderError
from remit.models import (
    AssistantMessage,
    AwsCredentials,
    Delta,
    ModelReply,
    ProviderSettings,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
    check_options,
    message_from_json,
    message_to_json,
)
from remit.primitives import Secret
from remit.testing import BedrockDialect, FakeAccount, FakeProvider, FakeToolCall, Reply
from remit.testing.fake_provider._bedrock import event_frame

CALL = FakeToolCall(name="read_file", arguments='{"relative_path": "a.py"}')
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


def bedrock(fake: FakeProvider, model: str = CLAUDE, **settings: Any) -> Any:
    return pool_for(fake, kind="bedrock", model=model, location="us-east-1", **settings)


def fake_of(*replies: Reply | str) -> FakeProvider:
    return FakeProvider(list(replies), dialect=BedrockDialect())


def results(message: AssistantMessage, content: str = "found") -> ToolResultsMessage:
    return ToolResultsMessage(
        results=tuple(
            ToolResult(tool_call_id=call.tool_call_id, name=call.name, content=content)
            for call in message.tool_calls
        ),
        note="80 % used",
    )


async def test_two_rounds() -> None:
    """R29, R30: thoughts go back with their signatures, results right after their calls, roles alternate."""
    two = Reply(thinking="Let me look.", text="Looking.", tool_calls=(CALL, CALL), chunk_count=3)
    deltas: list[Delta] = []
    with fake_of(two, "done", "more") as fake:
        async with bedrock(fake) as pool:
            first = await ask(pool, deltas=deltas)
            stored = message_from_json(json.loads(json.dumps(message_to_json(first.message))))
            second = await ask(pool, request(*PROMPT, stored, results(first.message, " ")))
            await ask(
                pool,
                request(
                    *PROMPT, stored, results(first.message), second.message, UserMessage(text="x"), tools=()
                ),
            )
        assert [got.status for got in fake.requests] == [200] * 3
        path, body = fake.requests[0].path, fake.requests[0].json
    assert first.finish == "tool_calls"
    assert [call.arguments for call in first.message.tool_calls] == ['{"relative_path": "a.py"}'] * 2
    assert "".join(delta.text for delta in deltas if delta.kind == "text") == "Looking."
    assert (second.message.text, second.usage.coverage, second.usage.flags) == ("done", "reported", ())
    assert path == "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"
    assert body["inferenceConfig"] == {"maxTokens": 64_000}
    assert body["additionalModelRequestFields"]["thinking"]["type"] == "enabled"
    assert body["system"][-1] == {"cachePoint": {"type": "default"}}


async def test_another_vendors_model() -> None:
    """What only Claude takes isn't sent to another."""
    with fake_of("ok") as fake:
        async with bedrock(fake, "amazon.nova-pro-v1:0") as pool:
            await ask(pool, request(options={"temperature": 0.5, "stop": "END"}, max_output_tokens=99))
        body = fake.requests[0].json
    assert body["inferenceConfig"] == {"maxTokens": 99, "temperature": 0.5, "stopSequences": ["END"]}
    assert "cachePoint" not in json.dumps(body)
    assert "additionalModelRequestFields" not in body


async def test_the_cache_is_counted_once() -> None:
    """R18: input is the sum of what was plain, read and written."""
    usage = {"inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": 80, "cacheWriteInputTokens": 7}
    with fake_of(Reply(text="ok", usage={**usage, "totalTokens": 102})) as fake:
        async with bedrock(fake) as pool:
            reply = await ask(pool)
    got = reply.usage
    assert (got.input_tokens, got.cache_read_tokens, got.cache_write_tokens) == (97, 80, 7)
    assert (got.total_tokens, got.coverage) == (102, "reported")


@pytest.mark.parametrize("how", ["close", "reset", "hang"])
async def test_a_stream_that_breaks_off(how: Any) -> None:
    """R21, R69: a reply that ends, breaks or falls silent in the middle is a cut, and asked again."""
    half = Reply(text="half " * 200, chunk_count=50, break_after_bytes=2_000, break_how=how)
    ledger = MemoryLedger()
    with fake_of(half, Reply(text="whole", piece_bytes=5)) as fake:
        async with bedrock(fake, clock=JumpingClock(), idle_timeout_ms=300) as pool:
            reply = await ask(pool, ledger=ledger)
    assert reply.message.text == "whole"
    assert ledger.statuses == ["cut", "completed"]
    assert ledger.ends[0].usage.coverage == "interrupted"


async def test_an_exception_in_the_stream() -> None:
    """R22, R52: an exception frame ends the attempt in its own meaning."""
    frames = event_frame("messageStart", {"role": "assistant"})
    frames += event_frame("throttlingException", {"message": "Too many requests"}, kind="exception")
    ledger = MemoryLedger()
    with fake_of(Reply(raw=frames), "whole") as fake:
        async with bedrock(fake, clock=JumpingClock()) as pool:
            assert (await ask(pool, ledger=ledger)).message.text == "whole"
    assert (ledger.ends[0].status, ledger.ends[0].code) == ("failed", "rate_limited")


@pytest.mark.parametrize(
    ("reply", "reason", "count"),
    [
        (Reply(status=400, body={"message": "Input is too long for requested model."}), "context_length", 1),
        (Reply(status=403), "auth", 1),
        (Reply(status=404), "unavailable", 1),
        (Reply(text="x", finish="shrug"), "protocol", 1),
        (Reply(raw=b"\x00" * 200), "protocol", 5),
        (Reply(raw=b"<html>no</html>"), "protocol", 1),
    ],
)
async def test_failures(reply: Reply, reason: str, count: int) -> None:
    """R56: what can't get better is asked once; bytes that are no frames are said to be so."""
    ledger = MemoryLedger()
    with fake_of(*[reply] * 5) as fake:
        async with bedrock(fake, clock=JumpingClock()) as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, ledger=ledger)
    assert (caught.value.reason, len(ledger.ends)) == (reason, count)


@pytest.mark.parametrize(
    ("word", "finish"),
    [("max_tokens", "length"), ("guardrail_intervened", "content_filter"), ("end_turn", "stop")],
)
async def test_ends(word: str, finish: str) -> None:
    """R32, R86: each word for the end in ours."""
    with fake_of(Reply(text="some", finish=word)) as fake:
        async with bedrock(fake) as pool:
            assert (await ask(pool)).finish == finish


def test_settings_and_options() -> None:
    """A region and a key are needed; what a model wouldn't take is refused at start."""
    with pytest.raises(ValueError, match="an API key, or the credentials"):
        ProviderSettings(name="x", kind="bedrock")
    with pytest.raises(ValueError, match="region"):
        ProviderSettings(name="x", kind="bedrock", api_key=Secret("key"))
    with pytest.raises(ValueError, match="region"):  # where it signs for one
        ProviderSettings(
            name="x", kind="bedrock", aws=credentials_of(FakeAccount()), base_url="http://127.0.0.1:1"
        )
    for model, options in (
        (CLAUDE, {"seed": 1}),
        ("us.anthropic.claude-opus-4-7-v1:0", {"temperature": 0.5}),
        ("amazon.nova-pro-v1:0", {"reasoning_effort": "low"}),
    ):
        with pytest.raises(ConfigError, match=next(iter(options))):
            check_options(kind="bedrock", model=model, options=options)


EVENTS: list[tuple[str, dict[str, Any]]] = [
    (
        "contentBlockStart",
        {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": "read_file"}}},
    ),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"toolUse": {"input": "{}"}}}),
    ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "x"}}),
    ("messageStop", {"stopReason": "tool_use"}),
    ("metadata", {"usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}}),
]
NONSENSE: list[Any] = [None, [], {}, "text", 7, -1, True, [None], 1e999, {"a": [1]}]


async def test_nonsense_in_any_field() -> None:
    """R20, R31, R84: whatever stands in a field ends in a reply with a true bill, or a typed failure."""
    with fake_of() as fake:
        async with bedrock(fake, clock=JumpingClock()) as pool:
            for changed, (_, event) in enumerate(EVENTS):
                for path in _places(event):
                    for value in NONSENSE:
                        events = json.loads(json.dumps(EVENTS))
                        holder = events[changed][1]
                        for step in path[:-1]:
                            holder = holder[step]
                        holder[path[-1]] = value
                        frames = b"".join(event_frame(name, record) for name, record in events)
                        fake.script(*[Reply(raw=frames)] * 5)
                        ledger = MemoryLedger()
                        outcome: ModelReply | ProviderError
                        try:
                            outcome = await ask(pool, ledger=ledger)
                        except ProviderError as error:
                            outcome = error
                        if isinstance(outcome, ProviderError):
                            assert outcome.reason in ("protocol", "cut", "empty_result"), (path, value)
                        elif "usage" not in path:
                            assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (10, 5)
                        assert len(ledger.starts) == len(ledger.ends)
                        fake._replies.clear()


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else ()
    return [place for key, inner in items for place in [(*path, key), *_places(inner, (*path, key))]]


def credentials_of(account: FakeAccount, **other: Any) -> AwsCredentials:
    token = account.session_token
    values: dict[str, Any] = {
        "access_key_id": account.access_key_id,
        "secret_access_key": Secret(account.secret_access_key),
        "session_token": None if token is None else Secret(token),
    }
    return AwsCredentials(**values | other)


@pytest.mark.parametrize("token", [None, "FwoGZXIvYXdzEXAMPLE+token/with=signs"])
async def test_requests_signed_for_an_account(token: str | None) -> None:
    """Without an API key each request carries a signature that the other side works out by itself."""
    clock = JumpingClock()
    account = FakeAccount(session_token=token, now=clock.now())
    with FakeProvider(["done", "more"], dialect=BedrockDialect(account=account)) as fake:
        async with bedrock(fake, api_key=None, aws=credentials_of(account), clock=clock) as pool:
            first = await ask(pool)
            await ask(pool, request(*PROMPT, first.message, UserMessage(text="Größe? \u2028 naïve")))
        assert [got.status for got in fake.requests] == [200, 200]
        assert {got.headers.get("x-amz-security-token") for got in fake.requests} == {token}
    assert first.message.text == "done"


@pytest.mark.parametrize(
    ("aws", "settings"),
    [
        ({"secret_access_key": Secret("another/secret")}, {}),
        ({"access_key_id": "AKIAOTHER"}, {}),
        ({"session_token": Secret("unasked")}, {}),
        ({}, {"location": "eu-west-1"}),
    ],
)
async def test_a_signature_of_somebody_else_is_refused_once(
    aws: dict[str, Any], settings: dict[str, Any]
) -> None:
    """R56: wrong credentials or another region end as `auth`, after one try, and no secret is told."""
    clock = JumpingClock()
    account, ledger = FakeAccount(now=clock.now()), MemoryLedger()
    with FakeProvider(["done"], dialect=BedrockDialect(account=account)) as fake:
        wanted: dict[str, Any] = {"location": "us-east-1", **settings}
        pool = pool_for(
            fake,
            kind="bedrock",
            model=CLAUDE,
            api_key=None,
            aws=credentials_of(account, **aws),
            clock=clock,
            **wanted,
        )
        async with pool as asked:
            with pytest.raises(ProviderError) as caught:
                await ask(asked, ledger=ledger)
        assert len(fake.requests) == 1
    assert caught.value.reason == "auth"
    assert "another/secret" not in repr(ledger.__dict__)
