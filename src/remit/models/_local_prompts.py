"""Whether a server on one's own machine has cut a prompt to its window without a word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

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
_RUN = re.compile(r"(.)\1{4,}", re.DOTALL)


def was_cut(messages: Sequence[Message], *, read_tokens: int | None, window_tokens: int | None) -> bool:
    """Whether so many tokens can't be the whole prompt.

    A small count alone proves nothing: a server may count only what its cache didn't hold.

    Args:
        messages: What was sent.
        read_tokens: What the server says that it has read.
        window_tokens: Its window; None: not known.
    """
    if read_tokens is None:
        return False
    characters = sum(len(text) for message in messages for text in _texts(message))
    if characters < _LEAST_CHARACTERS:
        return False
    if window_tokens is not None:
        near = _NEAR_WINDOW * window_tokens <= read_tokens <= window_tokens
        return near and _tellings(messages) / _CHARACTERS_PER_TOKEN_AT_MOST > read_tokens
    few = read_tokens >= 1_000 and characters / _CHARACTERS_PER_TOKEN_EVER > read_tokens
    return few and _tellings(messages) / _CHARACTERS_PER_TOKEN_EVER > read_tokens


def _tellings(messages: Iterable[Message]) -> int:
    """Characters, a run of one and the same counted as a few: a tokenizer makes next to nothing of it."""
    return sum(len(_RUN.sub(r"\1\1\1\1", text)) for message in messages for text in _texts(message))


def _texts(message: Message) -> Iterator[str]:
    match message:
        case SystemMessage(text=text) | UserMessage(text=text):
            yield text
        case AssistantMessage():
            yield from (block.text for block in message.blocks if isinstance(block, TextBlock))
            yield from (block.arguments for block in message.blocks if isinstance(block, ToolCallBlock))
        case ToolResultsMessage():
            yield from (result.content for result in message.results)
