"""A conversation as Remit keeps it: neutral between providers, nothing lost.

Assistant messages are stored block by block as they came. A block's opaque provider fields
(signatures, encrypted reasoning, item ids) are sent back byte for byte to the provider that gave
them, and left out for any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, assert_never


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMessage:
    """Instructions; only at the head of a conversation."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """What the stage is told."""

    text: str
    images: tuple[str, ...] = ()
    """Data URLs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlock:
    """Text of the model."""

    text: str
    provider: str | None = None
    details: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingBlock:
    """Reasoning of the model; never part of an answer."""

    text: str
    signature: str | None = None
    provider: str | None = None
    details: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallBlock:
    """A tool call that the model asks for."""

    tool_call_id: str
    """Unique within the stage; as the provider gave it, or made when it gave none or one twice."""
    name: str
    arguments: str
    """The argument text exactly as it came."""
    provider: str | None = None
    details: dict[str, Any] | None = None


AssistantBlock = TextBlock | ThinkingBlock | ToolCallBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """One reply of the model."""

    blocks: tuple[AssistantBlock, ...]
    model: str
    """`NAME:MODEL` that gave it."""

    @property
    def text(self) -> str:
        """Its text, without reasoning."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))

    @property
    def tool_calls(self) -> tuple[ToolCallBlock, ...]:
        """Its tool calls, in order."""
        return tuple(block for block in self.blocks if isinstance(block, ToolCallBlock))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The answer to one tool call."""

    tool_call_id: str
    name: str
    content: str
    status: str = "success"
    """A `ToolStatus`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultsMessage:
    """The answers to all tool calls of the message before it, in call order, and perhaps a note."""

    results: tuple[ToolResult, ...]
    note: str | None = None
    """Text of Remit's own for the model, after the results: a limit that is near, a caller's message."""


Message = SystemMessage | UserMessage | AssistantMessage | ToolResultsMessage


def message_role(message: Message) -> Literal["system", "user", "assistant", "tool"]:
    """The role under which a transcript shows the message."""
    match message:
        case SystemMessage():
            return "system"
        case UserMessage():
            return "user"
        case AssistantMessage():
            return "assistant"
        case ToolResultsMessage():
            return "tool"
        case _:
            assert_never(message)
