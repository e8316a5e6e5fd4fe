"""How many tokens a request may cost, before anybody counted them.

The estimate reserves budget, so it errs upwards: prose has some 4.5 characters a token, code and JSON
about 3; here a character counts a third of a token, and each byte beyond the first of a character three
quarters more (Chinese then counts 1.8 tokens a character, Cyrillic 1.1). Text that is denser than that
(code that is mostly punctuation: 2.4; base64 2; hex 1.6) is underestimated, by up to half:
that is the margin by which a run may pass a token or money cap, for the input of its calls in flight.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from remit.contract import ToolSpec
from remit.models._messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultsMessage,
    UserMessage,
)
from remit.models._wire import is_object
from remit.primitives import dump_json

_CHARACTERS_PER_TOKEN = 3.0
_TOKENS_PER_EXTRA_BYTE = 0.75
_SEALED_CHARACTERS_PER_TOKEN = 4
_MESSAGE_TOKENS = 8
"""Role and separators."""
_CALL_TOKENS = 16
_TOOL_TOKENS = 16
_IMAGE_TOKENS = 2_000
"""More than any size of image costs at the providers that say what one costs."""
_MEASURED_AT_MOST = 512
_measured: dict[int, tuple[ToolSpec, int]] = {}


def estimate_text_tokens(text: str) -> int:
    """An upper estimate of the tokens of one text; 0 for none."""
    extra_bytes = 0 if text.isascii() else len(text.encode(errors="replace")) - len(text)
    return int(len(text) / _CHARACTERS_PER_TOKEN + extra_bytes * _TOKENS_PER_EXTRA_BYTE + 0.999)


def estimate_input_tokens(messages: Iterable[Message], tools: Iterable[ToolSpec] = ()) -> int:
    """An upper estimate of what a request's messages and tools cost as input."""
    return sum(map(_message_tokens, messages)) + sum(map(_tool_tokens, tools))


def _message_tokens(message: Message) -> int:
    match message:
        case SystemMessage():
            return _MESSAGE_TOKENS + estimate_text_tokens(message.text)
        case UserMessage():
            images = _IMAGE_TOKENS * len(message.images)
            return _MESSAGE_TOKENS + estimate_text_tokens(message.text) + images
        case AssistantMessage():
            return _MESSAGE_TOKENS + sum(map(_block_tokens, message.blocks))
        case ToolResultsMessage():
            note = _MESSAGE_TOKENS + estimate_text_tokens(message.note) if message.note else 0
            contents = (_CALL_TOKENS + estimate_text_tokens(result.content) for result in message.results)
            return note + sum(contents)
        case _:
            assert_never(message)


def _block_tokens(block: TextBlock | ThinkingBlock | ToolCallBlock) -> int:
    match block:
        case TextBlock():
            return estimate_text_tokens(block.text)
        case ThinkingBlock():
            return estimate_text_tokens(block.text) + _sealed_tokens(block)
        case ToolCallBlock():
            return _CALL_TOKENS + estimate_text_tokens(block.name) + estimate_text_tokens(block.arguments)
        case _:
            assert_never(block)


def _sealed_tokens(block: ThinkingBlock) -> int:
    """What stands behind a thought that is handed out sealed: base64 of about its text."""
    item = (block.details or {}).get("item")
    sealed = item.get("encrypted_content") if is_object(item) else None
    seals = [seal for seal in (block.signature, sealed) if isinstance(seal, str)]
    return sum(len(seal) // _SEALED_CHARACTERS_PER_TOKEN for seal in seals)


def _tool_tokens(tool: ToolSpec) -> int:
    """Measured once an object, since every attempt asks: most tools are the same objects in every run."""
    known = _measured.get(id(tool))
    if known is not None and known[0] is tool:
        return known[1]
    tokens = _measure_tool(tool)
    if len(_measured) >= _MEASURED_AT_MOST:
        _measured.clear()
    _measured[id(tool)] = tool, tokens  # the tool too: its id is its own as long as it lives
    return tokens


def _measure_tool(tool: ToolSpec) -> int:
    schema = estimate_text_tokens(dump_json(tool.parameters))
    return _TOOL_TOKENS + estimate_text_tokens(tool.name) + estimate_text_tokens(tool.description) + schema
