"""What tests need, ours and yours: stand-ins that are strict where the real thing is.

Names are loaded when they are first used (PEP 562), so that a test pays only for what it takes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.testing._fakes_stages import FakeJournal, FakePool, FakeTools, PoolReply, tool_response
    from remit.testing._memory_store import MemoryStore
    from remit.testing._store_suite import StoreHarness, StoreSuite
    from remit.testing.fake_provider import (
        AnthropicDialect,
        AzureDialect,
        BedrockDialect,
        ChatModel,
        ClaudeModel,
        FakeAccount,
        FakeProvider,
        FakeProviderProcess,
        FakeToolCall,
        GeminiDialect,
        GeminiModel,
        OllamaDialect,
        OllamaModel,
        OpenAIChatDialect,
        OpenAIResponsesDialect,
        OpenRouterDialect,
        RecordedRequest,
        Reply,
        route_by_stage,
    )

_HOMES = {
    "AnthropicDialect": "fake_provider",
    "AzureDialect": "fake_provider",
    "BedrockDialect": "fake_provider",
    "FakeAccount": "fake_provider",
    "ChatModel": "fake_provider",
    "ClaudeModel": "fake_provider",
    "FakeJournal": "_fakes_stages",
    "FakePool": "_fakes_stages",
    "FakeProvider": "fake_provider",
    "FakeProviderProcess": "fake_provider",
    "FakeToolCall": "fake_provider",
    "FakeTools": "_fakes_stages",
    "GeminiDialect": "fake_provider",
    "GeminiModel": "fake_provider",
    "OllamaDialect": "fake_provider",
    "OllamaModel": "fake_provider",
    "MemoryStore": "_memory_store",
    "OpenAIChatDialect": "fake_provider",
    "OpenAIResponsesDialect": "fake_provider",
    "OpenRouterDialect": "fake_provider",
    "PoolReply": "_fakes_stages",
    "RecordedRequest": "fake_provider",
    "Reply": "fake_provider",
    "StoreHarness": "_store_suite",
    "StoreSuite": "_store_suite",
    "route_by_stage": "fake_provider",
    "tool_response": "_fakes_stages",
}

__all__ = [
    "AnthropicDialect",
    "AzureDialect",
    "BedrockDialect",
    "ChatModel",
    "ClaudeModel",
    "FakeAccount",
    "FakeJournal",
    "FakePool",
    "FakeProvider",
    "FakeProviderProcess",
    "FakeToolCall",
    "FakeTools",
    "GeminiDialect",
    "GeminiModel",
    "MemoryStore",
    "OllamaDialect",
    "OllamaModel",
    "OpenAIChatDialect",
    "OpenAIResponsesDialect",
    "OpenRouterDialect",
    "PoolReply",
    "RecordedRequest",
    "Reply",
    "StoreHarness",
    "StoreSuite",
    "route_by_stage",
    "tool_response",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
