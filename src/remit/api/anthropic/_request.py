"""Reads a body of Messages. Sampling, caching and thinking budgets are the binding's, and passed over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from remit.api.dialects import (
    Conversation,
    Fields,
    Wish,
    flag_of,
    list_at,
    list_of,
    object_at,
    object_of,
    refuse_fields,
    text_at,
    text_of,
)
from remit.errors import InvalidRequest

_REFUSED: Final = {"container": "a run works in its own workspace"}
_PASSED_OVER: Final = frozenset({"thinking", "redacted_thinking", "container_upload", "compaction"})
_CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRequest:
    """What a client of Messages asks for."""

    wish: Wish
    stream: bool
    shows_thinking: bool
    """Whether thinking was asked for; else the first block is the answer's text."""


def read_message_request(body: Fields) -> MessageRequest:
    """The request.

    Raises:
        InvalidRequest: A field is wrong, or would change the answer in a way that isn't honoured.
    """
    _check_bounds(body)
    conversation = read_conversation(body)
    metadata = object_of(body, "metadata")
    session = metadata.get("session_id")
    facts: dict[str, Any] = {"door": "anthropic-messages"}
    if (user := text_of(metadata, "user_id")) is not None:
        facts["user"] = user
    wish = Wish(
        model=text_at(body.get("model"), "model"),
        fields=conversation.request_fields(param="messages"),
        brings_tools=bool(list_of(body, "tools") or list_of(body, "mcp_servers")),
        metadata={key: value for key, value in metadata.items() if key != "user_id"},
        facts=facts,
        session_id=text_at(session, "metadata.session_id") if session is not None else None,
    )
    thinking = object_of(body, "thinking").get("type")
    return MessageRequest(
        wish=wish, stream=flag_of(body, "stream"), shows_thinking=thinking in ("enabled", "adaptive")
    )


def _check_bounds(body: Fields) -> None:
    refuse_fields(body, _REFUSED)
    form = object_of(object_of(body, "output_config"), "format") or object_of(body, "output_format")
    if form:
        raise InvalidRequest(
            "`output_config.format` isn't honoured here: say in the prompt what the answer is to look like",
            param="output_config.format",
        )
    most = body.get("max_tokens")
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise InvalidRequest("`max_tokens` must be a number from 1 on", param="max_tokens")


def read_conversation(body: Fields) -> Conversation:
    """The instructions and messages of a body.

    Raises:
        InvalidRequest: They can't be read, or hold what isn't taken.
    """
    conversation = Conversation()
    conversation.instruct(_text_of(body.get("system"), "system"))
    for index, entry in enumerate(list_at(body.get("messages"), "messages")):
        message = object_at(entry, f"messages.{index}")
        content, at = message.get("content"), f"messages.{index}.content"
        match message.get("role"):
            case "system" | "developer":
                conversation.instruct(_text_of(content, at))
            case "user":
                _take(conversation, content, at, role="user")
            case "assistant":
                _take(conversation, content, at, role="assistant")
            case _:
                raise InvalidRequest(
                    f"`messages.{index}.role` must be user, assistant or system",
                    param=f"messages.{index}.role",
                )
    return conversation


def _text_of(content: object, param: str) -> str:
    """The text of content that holds nothing else."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for index, entry in enumerate(list_at(content, param)):
        block = object_at(entry, f"{param}.{index}")
        if block.get("type", "text") != "text":
            raise _unknown(block, f"{param}.{index}")
        texts.append(text_at(block.get("text"), f"{param}.{index}.text"))
    return "\n\n".join(texts)


def _take(conversation: Conversation, content: object, param: str, *, role: Any) -> None:
    if content is None or isinstance(content, str):
        conversation.say(role, content or "")
        return
    for index, entry in enumerate(list_at(content, param)):
        at = f"{param}.{index}"
        _take_block(conversation, object_at(entry, at), at, role=role)


def _take_block(conversation: Conversation, block: Fields, param: str, *, role: Any) -> None:
    kind = block.get("type")
    if kind == "text":
        conversation.say(role, text_at(block.get("text"), f"{param}.text"))
    elif kind == "image":
        conversation.show(_image_url(object_of(block, "source")), param=param)
    elif kind == "document":
        conversation.say(role, _document(block, param))
    elif kind in _CALLS:
        conversation.call(str(block.get("name", "a tool"))[:128], block.get("input", {}))
    elif kind is not None and str(kind).endswith("tool_result"):
        _take_result(conversation, block, param)
    elif kind not in _PASSED_OVER:
        raise _unknown(block, param)


def _take_result(conversation: Conversation, block: Fields, param: str) -> None:
    """What a client's tool brought: text, and pictures beside it."""
    content, texts = block.get("content"), list[str]()
    parts: list[Any] = [content] if isinstance(content, str) else list_of(block, "content")
    named = str(block.get("tool_use_id", "a call"))[:128]
    for index, entry in enumerate(parts):
        part = {"type": "text", "text": entry} if isinstance(entry, str) else entry
        inner = object_at(part, f"{param}.content.{index}")
        if inner.get("type") == "image":
            conversation.show(_image_url(object_of(inner, "source")), param=f"{param}.content.{index}")
        elif inner.get("type") == "text":
            texts.append(text_at(inner.get("text"), f"{param}.content.{index}.text"))
        elif inner.get("type") == "document":
            texts.append(_document(inner, f"{param}.content.{index}"))
        else:
            texts.append(f"[{str(inner.get('type'))[:40]}]")
    conversation.result(named, "\n\n".join(texts))


def _image_url(source: Fields) -> str:
    if source.get("type") == "base64":
        return f"data:{source.get('media_type', 'image/png')};base64,{source.get('data', '')}"
    return str(source.get("url", source.get("file_id", "")))


def _document(block: Fields, param: str) -> str:
    source = object_of(block, "source")
    title = f"[document {block['title']}]\n" if block.get("title") else ""
    if source.get("type") == "text":
        return title + text_at(source.get("data"), f"{param}.source.data")
    if source.get("type") == "content":
        return title + _text_of(source.get("content"), f"{param}.source.content")
    raise InvalidRequest(
        f"`{param}`: a document is taken as text only; put its text into the message", param=param
    )


def _unknown(block: Fields, param: str) -> InvalidRequest:
    kind = str(block.get("type"))[:40]
    return InvalidRequest(
        f"`{param}`: a block of type `{kind}` isn't taken: send text, or a picture", param=param
    )
