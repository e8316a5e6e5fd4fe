"""Our messages in pydantic-ai's form and back, block by block, with nothing lost or repaired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_never

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from remit.models._arguments import wire_arguments
from remit.models._messages import (
    AssistantBlock,
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultsMessage,
    UserMessage,
)
from remit.primitives import dump_json

_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
"""A stamp for the library's messages: they need one, and nothing of it goes out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who gave a block: in our words, and in the library's."""

    provider: str
    """The configured provider's name."""
    library_name: str
    canonical_system: str
    model: str | None = None
    """`NAME:MODEL` that is asked, where what is opaque goes back to the same model only; None: to any of the
    provider's."""
    whole_arguments: bool = False
    """The dialect sends arguments as an object, so they must be one."""
    image_bytes: Callable[[str], tuple[bytes, str] | None] | None = None
    """Takes a data URL apart, where the dialect doesn't take one as an address."""


def messages_for_library(messages: Sequence[Message], origin: Origin) -> list[ModelMessage]:
    """The conversation for a provider; what is opaque goes back only to the one that gave it."""
    return [_for_library(message, origin) for message in messages]


def _for_library(message: Message, origin: Origin) -> ModelMessage:
    match message:
        case SystemMessage(text=text):
            return _request([SystemPromptPart(text, timestamp=_LONG_AGO)])
        case UserMessage():
            return _request([_user(message, origin)])
        case AssistantMessage():
            return _response(message, origin)
        case ToolResultsMessage():
            parts: list[ModelRequestPart] = [
                ToolReturnPart(
                    tool_name=result.name,
                    content=result.content,
                    tool_call_id=result.tool_call_id,
                    timestamp=_LONG_AGO,
                )
                for result in message.results
            ]
            if message.note:
                parts.append(UserPromptPart(message.note, timestamp=_LONG_AGO))
            return _request(parts)
        case _:
            assert_never(message)


def _request(parts: list[ModelRequestPart]) -> ModelRequest:
    return ModelRequest(parts=parts, timestamp=_LONG_AGO)


def _user(message: UserMessage, origin: Origin) -> UserPromptPart:
    if not message.images:
        return UserPromptPart(message.text, timestamp=_LONG_AGO)
    content: list[UserContent] = [message.text, *(_image(url, origin) for url in message.images)]
    return UserPromptPart(content, timestamp=_LONG_AGO)


def _image(url: str, origin: Origin) -> UserContent:
    parts = origin.image_bytes(url) if origin.image_bytes is not None else None
    return ImageUrl(url) if parts is None else BinaryContent(parts[0], media_type=parts[1])


def _response(message: AssistantMessage, origin: Origin) -> ModelResponse:
    parts: list[ModelResponsePart] = []
    for block in message.blocks:
        own = block.provider == origin.provider and origin.model in (None, message.model)
        details = dict(block.details) if own and block.details else None
        match block:
            case TextBlock(text=text):
                if text:
                    parts.append(TextPart(text, provider_name=origin.library_name, provider_details=details))
            case ThinkingBlock():
                if own:  # to another provider, somebody else's thoughts are no thoughts of its model
                    parts.append(_thinking(block, details, origin))
            case ToolCallBlock():
                parts.append(
                    ToolCallPart(
                        tool_name=block.name,
                        args=wire_arguments(block.arguments) if origin.whole_arguments else block.arguments,
                        tool_call_id=block.tool_call_id,
                        provider_name=origin.library_name if own else None,
                        provider_details=details,
                    )
                )
            case _:
                assert_never(block)
    return ModelResponse(
        parts=parts,
        timestamp=_LONG_AGO,
        provider_name=origin.library_name,
        canonical_system=origin.canonical_system,
    )


def _thinking(block: ThinkingBlock, details: dict[str, Any] | None, origin: Origin) -> ThinkingPart:
    part_id = details.pop("part_id", None) if details else None
    return ThinkingPart(
        block.text,
        id=part_id,
        signature=block.signature,
        provider_name=origin.library_name,
        provider_details=details or None,
    )


def blocks_from_library(parts: Iterable[ModelResponsePart], origin: Origin) -> tuple[AssistantBlock, ...]:
    """The blocks of a reply, in their order."""
    blocks: list[AssistantBlock] = []
    for part in parts:
        match part:
            case TextPart(content=text):
                details = part.provider_details or None
                blocks.append(TextBlock(text=text, provider=origin.provider, details=details))
            case ThinkingPart():
                details = {**(part.provider_details or {}), **({"part_id": part.id} if part.id else {})}
                blocks.append(
                    ThinkingBlock(
                        text=part.content,
                        signature=part.signature,
                        provider=origin.provider,
                        details=details or None,
                    )
                )
            case ToolCallPart():
                blocks.append(
                    ToolCallBlock(
                        tool_call_id=part.tool_call_id,
                        name=part.tool_name,
                        arguments=part.args if isinstance(part.args, str) else dump_json(part.args or {}),
                        provider=origin.provider,
                        details=part.provider_details or None,
                    )
                )
            case _:
                raise ValueError(f"a part that no one asked for: {type(part).__name__}")
    return tuple(blocks)
