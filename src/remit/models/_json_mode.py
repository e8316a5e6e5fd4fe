"""Tools for models that can't call them: one JSON object a round, which is a tool call.

The answer of a stage is a call too, of its submit tool, so every reply has one form. A provider that can
holds the model to its schema; the schema stands in the prompt for any other. The conversation is plain text
both ways: past calls are shown as the very text that they came in, results as what the user says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, assert_never

from remit.contract import ToolSpec
from remit.models._attempt import Completed
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
from remit.models._port import Delta, ModelRequest
from remit.models._wire import is_object
from remit.primitives import StrictJsonError, dump_json, load_json

_AS_CAME = "json_reply"
"""Where a call keeps the text that it came in."""
_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\r?\n(?P<inside>.*)\n[ \t]*```\s*", re.IGNORECASE | re.DOTALL)
_REFUSES_TOOLS = re.compile(
    r"not support (?:tools|tool use|tool calling|function calling)"
    r"|support tool use"  # a gateway: no endpoint that does was found
    r"|(?:tools|tool use|tool calling|function calling) (?:is|are) not (?:supported|enabled)"
    r"|enable-auto-tool-choice|requires --jinja",
    re.IGNORECASE,
)
_HOW = """# How you reply

Reply with exactly one JSON object and nothing else, no words around it and no code fence:

{"thought": "why, in one sentence", "call": {"tool": "NAME", "arguments": {}}}

Each reply calls one tool; its result comes back as the next message. You end by calling `SUBMIT`, whose \
arguments are your answer.

# The tools, each with the JSON schema of its arguments
"""
_HOW_WITHOUT_END = "You end by calling"


def refuses_tools(detail: str) -> bool:
    """Whether a provider's words say that the model can't call tools."""
    return _REFUSES_TOOLS.search(detail) is not None


def as_json_request(request: ModelRequest) -> ModelRequest:
    """The same request for a model that replies in JSON: no tools, but a schema; without tools as it is."""
    if not request.tools:
        return request
    return replace(
        request,
        messages=tuple(_plain_messages(request.messages, request.tools)),
        tools=(),
        reply_schema=reply_schema(request.tools),
        options={name: value for name, value in request.options.items() if name != "parallel_tool_calls"},
    )


def reply_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """What a reply must look like: a thought, and a call of one of the tools."""
    calls = [
        _closed({"tool": {"type": "string", "enum": [tool.name]}, "arguments": tool.parameters})
        for tool in tools
    ]
    return _closed({"thought": {"type": "string"}, "call": {"anyOf": calls} if len(calls) > 1 else calls[0]})


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _instructions(tools: Sequence[ToolSpec]) -> str:
    submit = next((tool.name for tool in tools if tool.name.startswith("submit_")), None)
    how = _HOW.replace("SUBMIT", submit) if submit else _HOW.partition(_HOW_WITHOUT_END)[0].rstrip()
    listed = (f"\n## {tool.name}\n{tool.description}\n{dump_json(tool.parameters)}" for tool in tools)
    return how + "".join(listed)


def _plain_messages(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    how = _instructions(tools)
    heads = [message.text for message in messages if isinstance(message, SystemMessage)]
    plain: list[Message] = [SystemMessage(text="\n\n".join([*heads, how]))]
    for message in messages:
        match message:
            case SystemMessage():
                continue
            case UserMessage():
                plain.append(message)
            case AssistantMessage():
                plain.append(_as_text(message))
            case ToolResultsMessage():
                plain.append(UserMessage(text=_results_text(message)))
            case _:
                assert_never(message)
    return plain


def _as_text(message: AssistantMessage) -> AssistantMessage:
    """A past reply as text: what came, or what would have come from a model that calls tools by itself."""
    if not message.tool_calls:
        return message
    texts = [_call_text(call) for call in message.tool_calls]
    thoughts = tuple(block for block in message.blocks if isinstance(block, ThinkingBlock))
    return replace(message, blocks=(*thoughts, TextBlock(text="\n".join(texts))))


def _call_text(call: ToolCallBlock) -> str:
    came = (call.details or {}).get(_AS_CAME)
    if isinstance(came, str):
        return came
    try:
        arguments = load_json(call.arguments)
    except StrictJsonError:
        arguments = call.arguments
    return dump_json({"thought": "", "call": {"tool": call.name, "arguments": arguments}})


def _results_text(message: ToolResultsMessage) -> str:
    texts = [f"Result of `{result.name}` ({result.status}):\n{result.content}" for result in message.results]
    return "\n\n".join([*texts, message.note] if message.note else texts)


def read_json_reply(completed: Completed, *, new_id: Callable[[], str]) -> Completed:
    """The reply with its JSON object taken for the tool call that it is.

    A text that is no such object stays text: the stage says what was wrong with it. A reply that was cut is
    left as it is, however whole it looks.
    """
    message = completed.message
    if completed.finish != "stop" or message.tool_calls:
        return completed
    call = _read_call(message.text, new_id)
    if call is None:
        return completed
    thoughts = tuple(block for block in message.blocks if isinstance(block, ThinkingBlock))
    return replace(completed, message=replace(message, blocks=(*thoughts, call)), finish="tool_calls")


def _read_call(text: str, new_id: Callable[[], str]) -> ToolCallBlock | None:
    fenced = _FENCE.fullmatch(text)
    bare = (fenced["inside"] if fenced is not None else text).strip(" \t\r\n\ufeff")
    if not bare.startswith("{"):
        return None
    try:
        value = load_json(bare)
    except StrictJsonError:
        return None
    call: Any = value.get("call", value) if is_object(value) else None
    if not is_object(call) or not isinstance(call.get("tool"), str):
        return None
    # What isn't an object is refused by the tool, with its own words.
    arguments = call.get("arguments", {})
    return ToolCallBlock(
        tool_call_id=new_id(),
        name=call["tool"],
        arguments=arguments if isinstance(arguments, str) else dump_json(arguments),
        details={_AS_CAME: text},
    )


def as_call_deltas(on_delta: Callable[[Delta], None]) -> Callable[[Delta], None]:
    """Shows the pieces of a JSON reply as what they are: pieces of a tool call, no text for a reader."""

    def show(delta: Delta) -> None:
        on_delta(replace(delta, kind="tool_call") if delta.kind == "text" else delta)

    return show
