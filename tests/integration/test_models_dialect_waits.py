"""Cancels, silence and resets in the middle of a reply, over each dialect whose stream names its records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from model_kit import JumpingClock, MemoryLedger, ask, need_sdk, pool_for
from remit.testing import (
    AnthropicDialect,
    BedrockDialect,
    FakeProvider,
    GeminiDialect,
    OpenAIResponsesDialect,
    Reply,
)

DIALECTS: dict[str, tuple[str, Any]] = {
    "openai": ("gpt-5.2", OpenAIResponsesDialect),
    "anthropic": ("claude-sonnet-4-6", AnthropicDialect),
    "google": ("gemini-3.8-flash", GeminiDialect),
    "bedrock": ("anthropic.claude-sonnet-4-5-v1:0", BedrockDialect),
}
HALF = Reply(text="a long answer " * 50, chunk_count=50, break_after_bytes=2_000, break_how="hang")


@pytest.fixture(params=DIALECTS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    need_sdk(name)
    return name


async def test_a_cancel_in_the_middle(kind: str) -> None:
    """S: the stream is closed, the provider sees it, and what was read is kept as a lower bound."""
    model, dialect = DIALECTS[kind]
    ledger, seen = MemoryLedger(), asyncio.Event()
    with FakeProvider([HALF], dialect=dialect()) as fake:
        async with pool_for(fake, kind=kind, model=model) as pool:

            class Deltas(list[Any]):
                def append(self, delta: Any) -> None:
                    seen.set()

            async with asyncio.TaskGroup() as group:
                asking = group.create_task(ask(pool, ledger=ledger, deltas=Deltas()))
                await asyncio.wait_for(seen.wait(), 20)
                asking.cancel()
            (request,) = fake.requests
            assert await asyncio.to_thread(request.wait)
    assert asking.cancelled()
    assert request.hung_up
    assert (ledger.statuses, ledger.last.usage.coverage) == (["cancelled"], "interrupted")
    assert ledger.last.usage.coverage == "interrupted"
    if kind in ("anthropic", "google"):
        assert ledger.last.usage.input_tokens


@pytest.mark.parametrize("how", ["close", "reset", "hang"])
async def test_a_stream_that_breaks_off(kind: str, how: Any) -> None:
    """R21, R69: a reply that ends, breaks or falls silent in the middle is a cut, and asked again."""
    model, dialect = DIALECTS[kind]
    ledger = MemoryLedger()
    half = Reply(text="half " * 50, chunk_count=50, break_after_bytes=2_000, break_how=how)
    with FakeProvider([half, "whole"], dialect=dialect()) as fake:
        settings: dict[str, Any] = {"idle_timeout_ms": 300} if how == "hang" else {}
        async with pool_for(fake, kind=kind, model=model, clock=JumpingClock(), **settings) as pool:
            reply = await ask(pool, ledger=ledger)
    assert reply.message.text == "whole"
    assert ledger.statuses == ["cut", "completed"]
    assert ledger.ends[0].usage.coverage == "interrupted"


async def test_a_byte_at_a_time(kind: str) -> None:
    """R70: however the bytes come, in whichever framing, the reply is the same."""
    model, dialect = DIALECTS[kind]
    text = "ü\u2028世\u0085界"
    replies = [
        Reply(text=text, thinking="hm", piece_bytes=7),
        Reply(text=text, thinking="hm", line_end="\r\n", piece_bytes=11),
        Reply(text=text, thinking="hm", line_end="\r", tail=b": bye\r\r"),
    ]
    with FakeProvider(replies, dialect=dialect()) as fake:
        async with pool_for(fake, kind=kind, model=model) as pool:
            got = [await ask(pool) for _ in replies]
    assert [reply.message.text for reply in got] == [text] * 3
    assert len({reply.usage.output_tokens for reply in got}) == 1
