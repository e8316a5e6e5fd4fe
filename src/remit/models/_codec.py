"""Messages as JSON, for transcripts. Every key is always present; nothing is lost on the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from remit.models._messages import (
    AssistantBlock,
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
    message_role,
)


def message_to_json(message: Message) -> dict[str, Any]:
    """The message as JSON values."""
    body: dict[str, Any] = {"role": message_role(message)}
    match message:
        case SystemMessage():
            body |= {"text": message.text}
        case UserMessage():
            body |= {"text": message.text, "images": list(message.images)}
        case AssistantMessage():
            body |= {"model": message.model, "blocks": [_block_to_json(block) for block in message.blocks]}
        case ToolResultsMessage():
            body |= {"results": [_result_to_json(result) for result in message.results], "note": message.note}
        case _:
            assert_never(message)
    return body


def message_from_json(body: Mapping[str, Any]) -> Message:
    """The inverse of `message_to_json`.

    Raises:
        ValueError: It isn't a message as `message_to_json` writes it.
    """
    try:
        return _message_from_json(body)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a stored message: {error!r}") from None


def _message_from_json(body: Mapping[str, Any]) -> Message:
    match body["role"]:
        case "system":
            return SystemMessage(text=body["text"])
        case "user":
            return UserMessage(text=body["text"], images=tuple(body["images"]))
        case "assistant":
            blocks = tuple(_block_from_json(block) for block in body["blocks"])
            return AssistantMessage(blocks=blocks, model=body["model"])
        case "tool":
            results = tuple(ToolResult(**result) for result in body["results"])
            return ToolResultsMessage(results=results, note=body["note"])
        case role:
            raise ValueError(f"not a stored message: role {role!r}")


def _block_to_json(block: AssistantBlock) -> dict[str, Any]:
    origin = {"provider": block.provider, "details": block.details}
    match block:
        case TextBlock():
            return {"kind": "text", "text": block.text, **origin}
        case ThinkingBlock():
            return {"kind": "thinking", "text": block.text, "signature": block.signature, **origin}
        case ToolCallBlock():
            call = {"tool_call_id": block.tool_call_id, "name": block.name, "arguments": block.arguments}
            return {"kind": "tool_call", **call, **origin}
        case _:
            assert_never(block)


def _block_from_json(body: Mapping[str, Any]) -> AssistantBlock:
    fields = {key: value for key, value in body.items() if key != "kind"}
    match body["kind"]:
        case "text":
            return TextBlock(**fields)
        case "thinking":
            return ThinkingBlock(**fields)
        case "tool_call":
            return ToolCallBlock(**fields)
        case kind:
            raise ValueError(f"not a stored message: block {kind!r}")


def _result_to_json(result: ToolResult) -> dict[str, Any]:
    return {
        "tool_call_id": result.tool_call_id,
        "name": result.name,
        "content": result.content,
        "status": result.status,
    }
