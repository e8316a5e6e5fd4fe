"""Whether a server on one's own machine has cut a prompt to its window without a word."""

from __future__ import annotations

from collections.abc import Iterable

from remit.models._messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultsMessage,
    UserMessage,
)

_CHARACTERS_PER_TOKEN_AT_MOST = 6
"""More than text of any kind has on average; beside a count that lies near the window it is proof enough."""
_CHARACTERS_PER_TOKEN_EVER = 12
"""More than even rows of dashes have."""
_NEAR_WINDOW = 0.4
"""A server that drops old messages keeps at least so much of its window."""
_LEAST_CHARACTERS = 8_000


def was_cut(messages: Iterable[Message], *, read_tokens: int | None, window_tokens: int | None) -> bool:
    """Whether so many tokens can't be the whole prompt.

    A small count alone proves nothing: a server may count only what its cache didn't hold.

    Args:
        messages: What was sent.
        read_tokens: What the server says that it has read.
        window_tokens: Its window; None: not known.
    """
    if read_tokens is None:
        return False
    characters = sum(map(_characters, messages))
    if characters < _LEAST_CHARACTERS:
        return False
    if window_tokens is not None:
        near = _NEAR_WINDOW * window_tokens <= read_tokens <= window_tokens
        return near and characters / _CHARACTERS_PER_TOKEN_AT_MOST > read_tokens
    return read_tokens >= 1_000 and characters / _CHARACTERS_PER_TOKEN_EVER > read_tokens


def _characters(message: Message) -> int:
    match message:
        case SystemMessage(text=text) | UserMessage(text=text):
            return len(text)
        case AssistantMessage():
            texts = (block.text for block in message.blocks if isinstance(block, TextBlock))
            calls = (block.arguments for block in message.blocks if isinstance(block, ToolCallBlock))
            return sum(map(len, texts)) + sum(map(len, calls))
        case ToolResultsMessage():
            return sum(len(result.content) for result in message.results)
