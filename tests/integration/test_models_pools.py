"""A pool over two dialects at once: real SDKs, real HTTP, strict fakes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from model_kit import PROMPT, JumpingClock, MemoryLedger, ask, request
from remit.errors import ProviderError
from remit.models import (
    Pool,
    PoolMember,
    PoolSettings,
    ProviderSettings,
    ToolResult,
    ToolResultsMessage,
    build_pool,
)
from remit.primitives import Secret, SystemIds
from remit.testing import AnthropicDialect, FakeProvider, FakeToolCall, OpenAIResponsesDialect, Reply

pytest.importorskip("anthropic", reason="the extra `anthropic` isn't installed")
CALL = FakeToolCall(name="read_file", arguments='{"relative_path": "a"}')


@asynccontextmanager
async def both(openai: FakeProvider, claude: FakeProvider) -> AsyncGenerator[Pool]:
    providers = {
        name: ProviderSettings(name=name, kind=name, base_url=fake.base_url, api_key=Secret(fake.api_key))
        for name, fake in (("openai", openai), ("anthropic", claude))
    }
    members = (
        PoolMember(model="openai:gpt-5.2"),
        PoolMember(model="anthropic:claude-haiku-4-5", order=2),
    )
    settings = PoolSettings(name="default", members=members)
    pool = build_pool(settings, providers, clock=JumpingClock(), ids=SystemIds())
    try:
        yield pool
    finally:
        await pool.aclose()


async def test_falls_back_to_another_dialect() -> None:
    """R22, R29: the body is built for the member chosen, and each attempt is counted where it was made."""
    ledger = MemoryLedger()
    with (
        FakeProvider([Reply(status=503)], dialect=OpenAIResponsesDialect()) as openai,
        FakeProvider(["from the other"], dialect=AnthropicDialect()) as claude,
    ):
        async with both(openai, claude) as pool:
            reply = await ask(pool, ledger=ledger)
        assert (openai.requests[0].path, claude.requests[0].path) == ("/v1/responses", "/v1/messages")
        assert claude.requests[0].model == "claude-haiku-4-5"
    assert (reply.model, reply.message.text) == ("anthropic:claude-haiku-4-5", "from the other")
    assert [start.model for start in ledger.starts] == ["openai:gpt-5.2", "anthropic:claude-haiku-4-5"]
    assert [start.max_output_tokens for start in ledger.starts] == [128_000, 64_000]


async def test_tool_calls_bind_the_conversation() -> None:
    """What one member began with tools, it ends, or nobody does: its signatures mean nothing elsewhere."""
    with (
        FakeProvider(
            [Reply(thinking="t", tool_calls=(CALL,)), Reply(status=401)], dialect=OpenAIResponsesDialect()
        ) as openai,
        FakeProvider([Reply(text="never", repeat=True)], dialect=AnthropicDialect()) as claude,
    ):
        async with both(openai, claude) as pool:
            reply = await ask(pool)
            (call,) = reply.message.tool_calls
            answer = ToolResult(tool_call_id=call.tool_call_id, name=call.name, content="x")
            history = (*PROMPT, reply.message, ToolResultsMessage(results=(answer,)))
            with pytest.raises(ProviderError) as caught:
                await ask(pool, request(*history))
        assert caught.value.reason == "auth"
        assert claude.requests == []


async def test_a_text_of_one_is_understood_by_the_other() -> None:
    """A conversation without tool calls may go on elsewhere; sealed reasoning stays behind."""
    with (
        FakeProvider(
            [Reply(thinking="t", text="draft"), Reply(status=401)], dialect=OpenAIResponsesDialect()
        ) as openai,
        FakeProvider(["final"], dialect=AnthropicDialect()) as claude,
    ):
        async with both(openai, claude) as pool:
            draft = await ask(pool)
            final = await ask(pool, request(*PROMPT, draft.message, PROMPT[1]))
        sent = claude.requests[0].json["messages"]
    assert final.message.text == "final"
    assert sent[1] == {"role": "assistant", "content": [{"type": "text", "text": "draft"}]}
