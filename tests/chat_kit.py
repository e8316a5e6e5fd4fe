"""Streams of Chat Completions made by hand, and what a pool makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from model_kit import MemoryLedger, ask, pool_for
from remit.errors import ProviderError
from remit.models import ModelReply
from remit.testing import FakeProvider, OpenAIChatDialect, Reply

COMPATIBLE = OpenAIChatDialect(models=None)
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk with one choice; `more` adds and replaces fields."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return {**base, **more}


def stream(*records: Any, end: str = "\n", plain: bool = False) -> bytes:
    """Records as events; text stays as it is, all else becomes JSON."""
    lines = [item if isinstance(item, str) else json.dumps(item, ensure_ascii=plain) for item in records]
    return "".join(f"data: {line}{end}{end}" for line in lines).encode()


GOOD = stream(chunk({"content": "whole"}), chunk({}, "stop"), chunk(choices=[], usage=USAGE), "[DONE]")


async def failure(
    *replies: Reply, dialect: OpenAIChatDialect | None = None, **settings: Any
) -> tuple[ProviderError, MemoryLedger, FakeProvider]:
    """Ask once, and have it fail."""
    ledger = MemoryLedger()
    with FakeProvider(list(replies), dialect=dialect) as fake:
        async with pool_for(fake, **settings) as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, ledger=ledger)
    return caught.value, ledger, fake


async def success(*replies: Reply, **settings: Any) -> tuple[ModelReply, MemoryLedger]:
    """Ask a compatible server once, and have it succeed."""
    ledger = MemoryLedger()
    with FakeProvider(list(replies), dialect=COMPATIBLE) as fake:
        async with pool_for(fake, kind="openai-compatible", **settings) as pool:
            reply = await ask(pool, ledger=ledger)
    return reply, ledger
