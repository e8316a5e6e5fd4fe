"""Our messages as the contents of a Gemini request, and the parts of a reply as our blocks.

Parts go back as they came, each signature on the part that it came on (R29): the API refuses a call of the
turn under way whose signature is missing. A call that another model made has none; for those the API knows a
word that says so.

Source: the pages on thought signatures and function calling, 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from remit.contract import ToolSpec
from remit.models._arguments import wire_arguments
from remit.models._google_observer import WirePart
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
from remit.primitives import clean_text, load_json

FOREIGN_SIGNATURE = "skip_thought_signature_validator"
"""What the API takes in place of a signature on a call that it didn't make."""
_SIGNATURE, _RAW_ID = "signature", "id"
_SCHEMA_WORDS = frozenset(
    {
        "$defs", "$ref", "additionalProperties", "anyOf", "description", "enum", "format", "items",
        "maxItems", "maximum", "minItems", "minimum", "oneOf", "prefixItems", "properties",
        "required", "title", "type",
    }
)  # fmt: skip


def contents_for(messages: Iterable[Message], *, provider: str, model: str) -> dict[str, Any]:
    """The conversation as `contents` and, where there are instructions, `systemInstruction`.

    Args:
        messages: It.
        provider: Whose opaque fields go along: the configured provider's name.
        model: `NAME:MODEL` that is asked.
    """
    system: list[dict[str, Any]] = []
    contents: list[dict[str, Any]] = []
    raw_ids: dict[str, str] = {}
    for message in messages:
        match message:
            case SystemMessage(text=text):
                system.append({"text": text})
            case UserMessage():
                contents.append(_content("user", [{"text": message.text}, *map(_image, message.images)]))
            case AssistantMessage():
                raw_ids |= _raw_ids(message, provider)
                parts = _assistant_parts(message, provider if message.model == model else None)
                contents += [_content("model", parts)] if parts else []
            case ToolResultsMessage():
                contents += _results(message, raw_ids)
            case _:
                assert_never(message)
    body: dict[str, Any] = {"contents": contents}
    return {**body, "systemInstruction": {"parts": system}} if system else body


def _content(role: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": role, "parts": parts}


def _image(url: str) -> dict[str, Any]:
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        kind = head.removeprefix("data:").removesuffix(";base64")
        return {"inlineData": {"mimeType": kind, "data": data}}
    return {"fileData": {"fileUri": url}}


def _raw_ids(message: AssistantMessage, provider: str) -> dict[str, str]:
    """The provider's own ids of the calls of a message, by ours."""
    return {
        call.tool_call_id: str(call.details[_RAW_ID])
        for call in message.tool_calls
        if call.provider == provider and call.details and _RAW_ID in call.details
    }


def _results(message: ToolResultsMessage, raw_ids: dict[str, str]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for result in message.results:
        key = "output" if result.status == "success" else "error"
        raw_id = raw_ids.get(result.tool_call_id)
        named = {"id": raw_id} if raw_id else {}
        parts.append({"functionResponse": {**named, "name": result.name, "response": {key: result.content}}})
    contents = [_content("user", parts)] if parts else []
    # A note has a content of its own: the results of a turn stand alone.
    return [*contents, _content("user", [{"text": message.note}])] if message.note else contents


def _assistant_parts(message: AssistantMessage, provider: str | None) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    signed = True
    for block in message.blocks:
        own = provider is not None and block.provider == provider
        details = block.details or {} if own else {}
        mark = {"thoughtSignature": details[_SIGNATURE]} if _SIGNATURE in details else {}
        match block:
            case TextBlock(text=text):
                if text or mark:
                    parts.append({"text": text, **mark})
            case ThinkingBlock():
                if own:
                    thought = {"thoughtSignature": block.signature} if block.signature else {}
                    parts.append({"text": block.text, "thought": True, **thought})
            case ToolCallBlock():
                call: dict[str, Any] = {
                    "name": block.name,
                    "args": load_json(wire_arguments(block.arguments)),
                }
                if _RAW_ID in details:
                    call["id"] = details[_RAW_ID]
                if not own and signed:
                    mark = {"thoughtSignature": FOREIGN_SIGNATURE}
                signed = False  # only the first of parallel calls has one
                parts.append({"functionCall": call, **mark})
            case _:
                assert_never(block)
    return parts


def blocks_of(parts: Iterable[WirePart], *, provider: str) -> tuple[AssistantBlock, ...]:
    """The blocks of a reply, one for each part."""
    return tuple(_block(part, provider) for part in parts)


def _block(part: WirePart, provider: str) -> AssistantBlock:
    details: dict[str, Any] = {_SIGNATURE: part.signature} if part.signature else {}
    match part.kind:
        case "text":
            return TextBlock(text=clean_text(part.text)[0], provider=provider, details=details or None)
        case "thought":
            text = clean_text(part.text)[0]
            return ThinkingBlock(text=text, signature=part.signature or None, provider=provider)
        case "call":
            if part.raw_id:
                details[_RAW_ID] = part.raw_id
            return ToolCallBlock(
                tool_call_id=part.call_id,
                name=part.name,
                arguments=clean_text(part.text)[0],
                provider=provider,
                details=details or None,
            )
        case _:
            assert_never(part.kind)


def declarations_of(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """The tools as function declarations."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parametersJsonSchema": plain_schema(tool.parameters),
        }
        for tool in tools
    ]


def plain_schema(schema: Any) -> Any:
    """A schema in the words that the API knows; it refuses a request for one that it doesn't."""
    if not is_object(schema):
        return schema
    plain: dict[str, Any] = {}
    for word, value in schema.items():
        if word == "const":
            plain["enum"] = [value]
        elif word in ("properties", "$defs") and is_object(value):
            plain[word] = {name: plain_schema(inner) for name, inner in value.items()}
        elif word in ("anyOf", "oneOf", "prefixItems") and is_array(value):
            plain[word] = [plain_schema(inner) for inner in value]
        elif word in ("items", "additionalProperties"):
            plain[word] = plain_schema(value)
        elif word in _SCHEMA_WORDS:
            plain[word] = value
    return plain
