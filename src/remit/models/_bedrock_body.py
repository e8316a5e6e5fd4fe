"""Our messages as a Converse request, and the blocks of a reply as ours.

The API wants roles to alternate, every call answered in the very next message, tools defined where calls
stand in the history, and no text that is blank.

Source: the API reference of ConverseStream, 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from remit.contract import ToolSpec
from remit.models._anthropic_body import safe_call_id
from remit.models._arguments import wire_arguments
from remit.models._bedrock_observer import ConverseBlock
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
from remit.primitives import clean_text, load_json

_NOTHING = "(empty)"
_SEALED = "sealed"
_CACHE_POINT = {"cachePoint": {"type": "default"}}


def converse_messages(messages: Iterable[Message], *, provider: str, model: str) -> dict[str, Any]:
    """The conversation as `messages` and `system`.

    Args:
        messages: It.
        provider: Whose opaque fields go along: the configured provider's name.
        model: `NAME:MODEL` that is asked.
    """
    system: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for message in messages:
        match message:
            case SystemMessage(text=text):
                system.append({"text": text})
            case UserMessage():
                _add(turns, "user", [{"text": message.text or _NOTHING}, *map(_image, message.images)])
            case AssistantMessage():
                _add(turns, "assistant", _blocks(message, provider if message.model == model else None))
            case ToolResultsMessage():
                _add(turns, "user", _results(message))
            case _:
                assert_never(message)
    return {"messages": turns, **({"system": system} if system else {})}


def _add(turns: list[dict[str, Any]], role: str, content: list[dict[str, Any]]) -> None:
    """One more message, or more of the last one where that is of the same role."""
    if not content:
        return
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += content
    else:
        turns.append({"role": role, "content": content})


def _image(url: str) -> dict[str, Any]:
    head, _, data = url.partition(",")
    kind = head.removeprefix("data:image/").partition(";")[0]
    return {"image": {"format": kind, "source": {"bytes": data}}}


def _results(message: ToolResultsMessage) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    for result in message.results:
        status = "success" if result.status == "success" else "error"
        shown = [{"text": result.content if result.content.strip() else _NOTHING}]
        answer = {"toolUseId": safe_call_id(result.tool_call_id), "content": shown, "status": status}
        content.append({"toolResult": answer})
    return [*content, {"text": message.note}] if message.note else content


def _blocks(message: AssistantMessage, provider: str | None) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    for block in message.blocks:
        own = provider is not None and block.provider == provider
        match block:
            case TextBlock(text=text):
                if text.strip():
                    content.append({"text": text})
            case ThinkingBlock():
                if own and (thought := _thought(block)):
                    content.append({"reasoningContent": thought})
            case ToolCallBlock():
                call_id = safe_call_id(block.tool_call_id)
                arguments = load_json(wire_arguments(block.arguments))
                content.append({"toolUse": {"toolUseId": call_id, "name": block.name, "input": arguments}})
            case _:
                assert_never(block)
    return content


def _thought(block: ThinkingBlock) -> dict[str, Any]:
    sealed = (block.details or {}).get(_SEALED)
    if sealed:
        return {"redactedContent": sealed}
    signed = {"signature": block.signature} if block.signature else {}
    return {"reasoningText": {"text": block.text, **signed}} if block.text or signed else {}


def blocks_of(blocks: Iterable[ConverseBlock], *, provider: str) -> tuple[AssistantBlock, ...]:
    """The blocks of a reply, in order."""
    return tuple(_block(block, provider) for block in blocks)


def _block(block: ConverseBlock, provider: str) -> AssistantBlock:
    text = clean_text(block.text)[0]
    match block.kind:
        case "text":
            return TextBlock(text=text, provider=provider)
        case "thought":
            details = {_SEALED: block.sealed} if block.sealed else None
            signature = block.signature or None
            return ThinkingBlock(text=text, signature=signature, provider=provider, details=details)
        case "call":
            return ToolCallBlock(
                tool_call_id=block.call_id, name=block.name, arguments=text, provider=provider
            )
        case _:
            assert_never(block.kind)


def tool_config(tools: Iterable[ToolSpec], *, cached: bool) -> dict[str, Any]:
    """The tools, with a cache mark after them where the model has a cache that wants one."""
    specs: list[dict[str, Any]] = [
        {
            "toolSpec": {
                "name": tool.name,
                "description": tool.description or tool.name,
                "inputSchema": {"json": tool.parameters},
            }
        }
        for tool in tools
    ]
    return {"tools": [*specs, _CACHE_POINT] if cached else specs}


def mark_cache(body: dict[str, Any]) -> None:
    """Cache marks after the system text and the last two messages of the user."""
    if "system" in body:
        body["system"].append(_CACHE_POINT)
    users = [turn for turn in body["messages"] if turn["role"] == "user"]
    for turn in users[-2:]:
        turn["content"].append(_CACHE_POINT)
