"""A provider that runs on loopback: strict, scripted, and wire-faithful also in its faults."""

from remit.testing.fake_provider._anthropic import AnthropicDialect
from remit.testing.fake_provider._aws_account import FakeAccount
from remit.testing.fake_provider._bedrock import BedrockDialect
from remit.testing.fake_provider._claude_models import ClaudeModel
from remit.testing.fake_provider._gateways import AzureDialect, OpenRouterDialect
from remit.testing.fake_provider._gemini import GeminiDialect
from remit.testing.fake_provider._gemini_rules import GeminiModel
from remit.testing.fake_provider._ollama import OllamaDialect, OllamaModel
from remit.testing.fake_provider._openai_chat import OpenAIChatDialect
from remit.testing.fake_provider._openai_rules import ChatModel
from remit.testing.fake_provider._process import FakeProviderProcess
from remit.testing.fake_provider._provider import FakeProvider
from remit.testing.fake_provider._reply import FakeToolCall, RecordedRequest, Reply, route_by_stage
from remit.testing.fake_provider._responses import OpenAIResponsesDialect

__all__ = [
    "AnthropicDialect",
    "AzureDialect",
    "BedrockDialect",
    "ChatModel",
    "ClaudeModel",
    "FakeAccount",
    "FakeProvider",
    "FakeProviderProcess",
    "FakeToolCall",
    "GeminiDialect",
    "GeminiModel",
    "OllamaDialect",
    "OllamaModel",
    "OpenAIChatDialect",
    "OpenAIResponsesDialect",
    "OpenRouterDialect",
    "RecordedRequest",
    "Reply",
    "route_by_stage",
]
