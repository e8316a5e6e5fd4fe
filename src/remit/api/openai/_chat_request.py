"""Reads a body of Chat Completions. Sampling and its like are the binding's, and passed over."""

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
)
from remit.api.openai._parts import say_user, text_of_content
from remit.errors import InvalidRequest

_REFUSED: Final = {
    "audio": "an answer is text",
    "logprobs": "a run has none",
    "web_search_options": "a run has its workspace's own tools",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What a client of Chat Completions asks for."""

    wish: Wish
    stream: bool
    include_usage: bool
    """Whether the stream's last chunk is to tell the bill."""


def read_chat_request(body: Fields) -> ChatRequest:
    """The request.

    Raises:
        InvalidRequest: A field is wrong, or would change the answer in a way that isn't honoured.
    """
    _refuse(body)
    conversation = Conversation()
    for index, message in enumerate(list_at(body.get("messages"), "messages")):
        _take(conversation, object_at(message, f"messages.{index}"), f"messages.{index}")
    metadata = object_of(body, "metadata")
    session = metadata.get("session_id")
    facts: dict[str, Any] = {"door": "openai-chat"}
    if (user := body.get("user")) is not None:
        facts["user"] = user  # text by the letter; some front ends put an object there
    wish = Wish(
        model=text_at(body.get("model"), "model"),
        fields=conversation.request_fields(param="messages"),
        brings_tools=bool(list_of(body, "tools") or list_of(body, "functions")),
        metadata=metadata,
        facts=facts,
        session_id=text_at(session, "metadata.session_id") if session is not None else None,
    )
    return ChatRequest(
        wish=wish,
        stream=flag_of(body, "stream"),
        include_usage=flag_of(object_of(body, "stream_options"), "include_usage"),
    )


def _refuse(body: Fields) -> None:
    refuse_fields(body, _REFUSED)
    if body.get("n") not in (None, 1):
        raise InvalidRequest("`n`: a run has one answer", param="n")
    if object_of(body, "response_format").get("type") not in (None, "text"):
        raise InvalidRequest(
            "`response_format` isn't honoured here: say in the prompt what the answer is to look like",
            param="response_format",
        )
    if any(word != "text" for word in list_of(body, "modalities")):
        raise InvalidRequest("`modalities`: an answer is text", param="modalities")


def _take(conversation: Conversation, message: Fields, param: str) -> None:
    content, at = message.get("content"), f"{param}.content"
    match message.get("role"):
        case "system" | "developer":
            conversation.instruct(text_of_content(content, at))
        case "user":
            say_user(conversation, content, at)
        case "assistant":
            conversation.say("assistant", text_of_content(content, at))
            _take_calls(conversation, message, param)
        case "tool" | "function":
            named = message.get("tool_call_id") or message.get("name") or "a call"
            conversation.result(str(named)[:128], text_of_content(content, at))
        case _:
            raise InvalidRequest(
                f"`{param}.role` must be system, developer, user, assistant or tool", param=f"{param}.role"
            )


def _take_calls(conversation: Conversation, message: Fields, param: str) -> None:
    calls = list(list_of(message, "tool_calls"))
    if message.get("function_call") is not None:
        calls.append({"function": message["function_call"]})
    for index, entry in enumerate(calls):
        at = f"{param}.tool_calls.{index}"
        call = object_at(entry, at)
        called = object_at(call.get("function") or call.get("custom") or {}, f"{at}.function")
        arguments = called.get("arguments", called.get("input", ""))
        conversation.call(str(called.get("name", "a tool"))[:128], arguments)
