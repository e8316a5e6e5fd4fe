"""A reply as it may be kept: every store and every later request must be able to hold it.

Providers' opaque fields (signatures, details, items) are kept as they came, whatever they are; but what
isn't JSON, or can't stand in a database, would end the run as a fault of ours when it is stored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remit.models._attempt import Broken, Completed, Outcome
from remit.models._messages import AssistantBlock, TextBlock, ThinkingBlock, ToolCallBlock
from remit.models._wire import is_array, is_object
from remit.primitives import clean_text

_DEEPEST = 100
"""Levels of an opaque field. What providers send has under ten; stores and dialects stop at some hundreds."""


class _UnstorableError(Exception):
    """Part of a reply can't be kept."""


def as_storable(outcome: Outcome) -> Outcome:
    """The same, with NUL, lone surrogates and numbers that JSON doesn't have replaced (R44, R84).

    A whole reply with texts that are none, or with fields nested without end, counts as broken (R85).
    """
    if isinstance(outcome, Broken):
        return outcome
    message = outcome.message
    try:
        blocks = tuple(_storable_block(block) for block in message.blocks)
    except _UnstorableError as error:
        return _broken(outcome, str(error))
    return outcome if blocks == message.blocks else replace(outcome, message=replace(message, blocks=blocks))


def _broken(outcome: Completed, why: str) -> Broken:
    return Broken(
        status="failed",
        reason="protocol",
        usage=outcome.usage,
        detail=why,
        retryable=True,
        most_retries=1,
    )


def _storable_block(block: AssistantBlock) -> AssistantBlock:
    details = None if block.details is None else _storable(block.details, 0)
    match block:
        case ToolCallBlock():
            return replace(
                block,
                tool_call_id=_text(block.tool_call_id, "a tool call's id"),
                name=_text(block.name, "a tool's name"),
                arguments=_text(block.arguments, "a tool call's arguments"),
                details=details,
            )
        case ThinkingBlock():
            signature: object = block.signature
            signed = clean_text(signature)[0] if isinstance(signature, str) else None
            return replace(block, text=_text(block.text, "a thought"), signature=signed, details=details)
        case TextBlock():
            return replace(block, text=_text(block.text, "a text"), details=details)


def _text(value: object, what: str) -> str:
    """The text; libraries that build their objects unchecked let anything through."""
    if not isinstance(value, str):
        raise _UnstorableError(f"{what} that is no text")
    return clean_text(value)[0]


def _storable(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise _UnstorableError(f"a field nested deeper than {_DEEPEST} levels")
    if isinstance(value, str):
        return clean_text(value)[0]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if is_object(value):
        return {clean_text(str(key))[0]: _storable(item, depth + 1) for key, item in value.items()}
    if is_array(value):
        return [_storable(item, depth + 1) for item in value]
    return value
