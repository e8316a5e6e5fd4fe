"""Our messages as the input items of OpenAI Responses, and output items as our blocks.

Items go back as they came: reasoning with its encrypted content, messages and calls under their ids. The
API refuses an id without the reasoning that it belongs to, and reasoning without what follows it, so of
another provider's or model's reply neither goes along.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, assert_never

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
from remit.models._wire import is_array, is_object
from remit.primitives import clean_text

_CALL_ID_CHARS = 64
_REASONING_FIELDS = ("id", "type", "summary", "content", "encrypted_content")
_ITEM = "item"
"""Where a thought keeps the item that it came in."""


def items_for(messages: Iterable[Message], *, provider: str, model: str) -> list[dict[str, Any]]:
    """The conversation as input items.

    Args:
        messages: It.
        provider: Whose opaque fields go along: the configured provider's name.
        model: `NAME:MODEL` that is asked.
    """
    items: list[dict[str, Any]] = []
    for message in messages:
        match message:
            case SystemMessage(text=text):
                items.append({"role": "developer", "content": text})
            case UserMessage():
                items.append({"role": "user", "content": _user_content(message)})
            case AssistantMessage():
                own = message.model == model
                items += _assistant_items(message, provider if own else None)
            case ToolResultsMessage():
                items += _result_items(message)
            case _:
                assert_never(message)
    return items


def _user_content(message: UserMessage) -> Any:
    if not message.images:
        return message.text
    images = [{"type": "input_image", "detail": "auto", "image_url": url} for url in message.images]
    return [{"type": "input_text", "text": message.text}, *images]


def _result_items(message: ToolResultsMessage) -> Iterator[dict[str, Any]]:
    for result in message.results:
        call_id = safe_call_id(result.tool_call_id)
        yield {"type": "function_call_output", "call_id": call_id, "output": result.content}
    if message.note:
        yield {"role": "user", "content": message.note}


def _assistant_items(message: AssistantMessage, provider: str | None) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for block in message.blocks:
        details = block.details or {} if provider is not None and block.provider == provider else {}
        match block:
            case TextBlock(text=text):
                if text:
                    _add_text(items, text, details)
            case ThinkingBlock():
                if is_object(item := details.get(_ITEM)):
                    items.append({key: item[key] for key in _REASONING_FIELDS if item.get(key) is not None})
            case ToolCallBlock():
                call = {
                    "type": "function_call",
                    "call_id": safe_call_id(block.tool_call_id),
                    "name": block.name,
                    "arguments": wire_arguments(block.arguments),
                }
                items.append({**call, **_ids(details)})
            case _:
                assert_never(block)
    while items and items[-1].get("type") == "reasoning":
        items.pop()  # nothing followed it: the reply was cut
    return items


def _add_text(items: list[dict[str, Any]], text: str, details: dict[str, Any]) -> None:
    """A text as part of the message item that it came in, or as a message without one."""
    if "id" not in details:
        items.append({"role": "assistant", "content": text})
        return
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
    if items and items[-1].get("type") == "message" and items[-1]["id"] == details["id"]:
        items[-1]["content"].append(part)
        return
    phase = {"phase": details["phase"]} if "phase" in details else {}
    head = {"type": "message", "role": "assistant", "status": "completed"}
    items.append({**head, **_ids(details), **phase, "content": [part]})


def _ids(details: dict[str, Any]) -> dict[str, Any]:
    return {"id": details["id"]} if "id" in details else {}


def safe_call_id(call_id: str) -> str:
    """A call id of any provider in a form that the API takes; always the same for the same id."""
    if len(call_id) <= _CALL_ID_CHARS:
        return call_id
    return f"call_{hashlib.sha256(call_id.encode(errors='replace')).hexdigest()[:32]}"


def blocks_of(items: Iterable[dict[str, Any]], *, provider: str) -> tuple[AssistantBlock, ...]:
    """The blocks of a reply, in the order of its items."""
    blocks: list[AssistantBlock] = []
    for item in items:
        ids: dict[str, Any] = {"id": item["id"]} if isinstance(item.get("id"), str) else {}
        match item["type"]:
            case "reasoning":
                blocks.append(
                    ThinkingBlock(text=_summary(item), provider=provider, details={_ITEM: _storable(item)})
                )
            case "message":
                phase = {"phase": item["phase"]} if isinstance(item.get("phase"), str) else {}
                blocks += _text_blocks(item, provider, {**ids, **phase})
            case _:
                blocks.append(
                    ToolCallBlock(
                        tool_call_id=item["call_id"],
                        name=item["name"],
                        arguments=clean_text(item["arguments"])[0],
                        provider=provider,
                        details=ids or None,
                    )
                )
    return tuple(blocks)


def _text_blocks(item: dict[str, Any], provider: str, details: dict[str, Any]) -> Iterator[TextBlock]:
    for part in item["content"]:
        if part["type"] == "refusal":
            yield TextBlock(text=clean_text(part["refusal"])[0], details={"refusal": True})
        else:
            yield TextBlock(text=clean_text(part["text"])[0], provider=provider, details=details or None)


def _summary(item: dict[str, Any]) -> str:
    """What can be read of a thought: its summary, or the thought itself where it is open."""
    parts: list[Any] = [*(item.get("summary") or []), *(item.get("content") or [])]
    texts = [part["text"] for part in parts if is_object(part) and isinstance(part.get("text"), str)]
    return clean_text("\n\n".join(texts))[0]


def _storable(value: Any) -> Any:
    """The value without characters that no store can hold; the same in all else."""
    if isinstance(value, str):
        return clean_text(value)[0]
    if is_object(value):
        return {key: _storable(item) for key, item in value.items()}
    return [_storable(item) for item in value] if is_array(value) else value
