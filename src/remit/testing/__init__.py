"""What tests need, ours and yours: stand-ins that are strict where the real thing is."""

from remit.testing.fake_provider import (
    ChatModel,
    FakeProvider,
    FakeProviderProcess,
    FakeToolCall,
    OpenAIChatDialect,
    RecordedRequest,
    Reply,
    route_by_stage,
)

__all__ = [
    "ChatModel",
    "FakeProvider",
    "FakeProviderProcess",
    "FakeToolCall",
    "OpenAIChatDialect",
    "RecordedRequest",
    "Reply",
    "route_by_stage",
]
