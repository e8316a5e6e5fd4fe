"""Reads a body of Responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from remit.api.dialects import (
    Conversation,
    Fields,
    flag_of,
    list_at,
    list_of,
    object_at,
    object_of,
    refuse_fields,
    text_at,
    text_of,
)
from remit.api.openai._parts import say_user, text_of_content
from remit.errors import InvalidRequest

_REFUSED: Final = {
    "conversation": "name the response before it, `previous_response_id`",
    "prompt": "send the prompt itself",
}
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call", "mcp_call"})
_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
_PASSED_OVER: Final = frozenset({"reasoning", "item_reference", "web_search_call", "compaction"})
"""Items that say nothing to whoever reads the conversation: sealed thoughts, and what only the vendor has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRequest:
    """What a client of Responses asks for."""

    model: str
    fields: dict[str, Any]
    brings_tools: bool
    metadata: Fields
    user: str | None
    session_id: str | None
    previous_response_id: str | None
    stream: bool
    background: bool
    store: bool


def read_response_request(body: Fields) -> ResponseRequest:
    """The request.

    Raises:
        InvalidRequest: A field is wrong, or would change the answer in a way that isn't honoured.
    """
    refuse_fields(body, _REFUSED)
    if object_of(object_of(body, "text"), "format").get("type") not in (None, "text"):
        raise InvalidRequest(
            "`text.format` isn't honoured here: say in the prompt what the answer is to look like",
            param="text.format",
        )
    background, store = flag_of(body, "background"), flag_of(body, "store", default=True)
    if background and not store:
        raise InvalidRequest(
            "a response in the background is looked up later: leave `store` true", param="store"
        )
    metadata = object_of(body, "metadata")
    session = metadata.get("session_id")
    return ResponseRequest(
        model=text_at(body.get("model"), "model"),
        fields=_conversation(body).request_fields(param="input"),
        brings_tools=bool(list_of(body, "tools")),
        metadata=metadata,
        user=text_of(body, "user") or text_of(body, "safety_identifier"),
        session_id=text_at(session, "metadata.session_id") if session is not None else None,
        previous_response_id=text_of(body, "previous_response_id"),
        stream=flag_of(body, "stream"),
        background=background,
        store=store,
    )


def _conversation(body: Fields) -> Conversation:
    conversation = Conversation()
    conversation.instruct(text_of_content(body.get("instructions"), "instructions"))
    given = body.get("input")
    if isinstance(given, str):
        conversation.say("user", given)
        return conversation
    for index, item in enumerate(list_at(given, "input")):
        _take(conversation, object_at(item, f"input.{index}"), f"input.{index}")
    return conversation


def _take(conversation: Conversation, item: Fields, param: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        _take_message(conversation, item, param)
    elif kind in _CALLS:
        arguments = item.get("arguments", item.get("input", item.get("action", "")))
        conversation.call(str(item.get("name", kind))[:128], arguments)
    elif kind in _RESULTS:
        result = text_of_content(item.get("output"), f"{param}.output")
        conversation.result(str(item.get("call_id", item.get("id", "a call")))[:128], result)
    elif kind not in _PASSED_OVER:
        shown = str(kind)[:40]
        raise InvalidRequest(f"`{param}`: an item of type `{shown}` isn't taken", param=param)


def _take_message(conversation: Conversation, item: Fields, param: str) -> None:
    content, at = item.get("content"), f"{param}.content"
    match item.get("role"):
        case "system" | "developer":
            conversation.instruct(text_of_content(content, at))
        case "user":
            say_user(conversation, content, at)
        case "assistant":
            conversation.say("assistant", text_of_content(content, at))
        case _:
            raise InvalidRequest(
                f"`{param}.role` must be system, developer, user or assistant", param=f"{param}.role"
            )
