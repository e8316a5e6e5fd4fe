"""What OpenRouter adds to Chat Completions: reasoning in details of its own, and which vendors may serve.

Source: its pages on reasoning tokens, provider routing and prompt caching, 2026-11.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remit.models._attempt import AttemptCall
from remit.models._catalog import find_claude
from remit.models._messages import AssistantBlock, ThinkingBlock
from remit.models._reading import ChunkShapeError
from remit.models._wire import is_array, is_object

_DETAILS = "reasoning_details"
_GROWING = ("text", "summary", "data")
"""Fields of a detail that come in pieces."""


def gateway_fields(call: AttemptCall) -> dict[str, Any]:
    """Fields of a request beside those of Chat Completions."""
    fields: dict[str, Any] = {
        # Vendors that would drop an option, the tools or the schema aren't asked.
        "provider": {"require_parameters": True},
        "usage": {"include": True},
    }
    effort = call.request.options.get("reasoning_effort")
    if effort is not None:
        fields["reasoning"] = {"effort": effort}
    if find_claude(call.model) is not None:
        fields["cache_control"] = {"type": "ephemeral"}
    return fields


def add_details(known: list[dict[str, Any]], pieces: Any) -> None:
    """Add the pieces of a chunk to the details that are there.

    Raises:
        ChunkShapeError: They aren't what the gateway sends.
    """
    if not is_array(pieces):
        raise ChunkShapeError(f"{_DETAILS} that are no list")
    for piece in pieces:
        if not is_object(piece):
            raise ChunkShapeError("a reasoning detail that is no object")
        last = known[-1] if known else None
        if last is not None and _goes_on(last, piece):
            _grow(last, piece)
        else:
            known.append(dict(piece))


def _goes_on(last: dict[str, Any], piece: dict[str, Any]) -> bool:
    if last.get("type") != piece.get("type") or last.get("index") != piece.get("index"):
        return False
    return last.get("id") in (None, piece.get("id")) or piece.get("id") is None


def _grow(last: dict[str, Any], piece: dict[str, Any]) -> None:
    for name, value in piece.items():
        before = last.get(name)
        if name in _GROWING and isinstance(before, str) and isinstance(value, str):
            last[name] = before + value
        elif value is not None:
            last[name] = value


def with_details(
    blocks: tuple[AssistantBlock, ...], details: list[dict[str, Any]], *, provider: str
) -> tuple[AssistantBlock, ...]:
    """The blocks of a reply, with the details on its first thought, or on one of their own."""
    for number, block in enumerate(blocks):
        if isinstance(block, ThinkingBlock):
            marked = replace(block, details={**(block.details or {}), _DETAILS: details})
            return (*blocks[:number], marked, *blocks[number + 1 :])
    return (ThinkingBlock(text="", provider=provider, details={_DETAILS: details}), *blocks)


def put_details(message: dict[str, Any], provider_details: dict[str, Any]) -> None:
    """Send a past reply's details back as they came, in place of their plain text."""
    details = provider_details.get(_DETAILS)
    if details is not None:
        message[_DETAILS] = details
        for name in ("reasoning", "reasoning_content"):
            message.pop(name, None)
