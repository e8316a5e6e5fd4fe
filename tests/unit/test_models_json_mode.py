"""Tools for models that can't call them: one JSON object a round."""

from __future__ import annotations

import json
from typing import Any

import pytest

from model_kit import PROMPT, READ_TOOL, SUBMIT_TOOL, request
from remit.contract import AttemptUsage
from remit.models import (
    AssistantMessage,
    Delta,
    Finish,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
)
from remit.models._attempt import Completed
from remit.models._json_mode import (
    as_call_deltas,
    as_json_request,
    read_json_reply,
    refuses_tools,
    reply_schema,
)

USAGE = AttemptUsage(coverage="missing")


def read(text: str, *, finish: Finish = "stop", thought: bool = False) -> Completed:
    blocks: tuple[Any, ...] = (TextBlock(text=text),)
    blocks = (ThinkingBlock(text="hm"), *blocks) if thought else blocks
    message = AssistantMessage(blocks=blocks, model="x:m")
    completed = Completed(message=message, finish=finish, usage=USAGE)
    return read_json_reply(completed, new_id=lambda: "call_1")


def test_a_request_without_tools_is_left_alone() -> None:
    """A plain question has no tools to be told of."""
    plain = request(tools=())
    assert as_json_request(plain) is plain


def test_tools_become_a_prompt_and_a_schema() -> None:
    """Each tool is named with its schema, and the reply's schema allows a call of exactly one of them."""
    made = as_json_request(request(options={"parallel_tool_calls": True, "temperature": 0}))
    assert (made.tools, made.options) == ((), {"temperature": 0})
    head = made.messages[0]
    assert isinstance(head, SystemMessage)
    assert head.text.startswith("You work.\n\n")
    assert "`submit_work`" in head.text
    assert json.dumps(READ_TOOL.parameters, separators=(",", ":")) in head.text
    assert made.reply_schema == reply_schema((READ_TOOL, SUBMIT_TOOL))
    assert made.reply_schema is not None
    calls = made.reply_schema["properties"]["call"]["anyOf"]
    assert [call["properties"]["tool"]["enum"] for call in calls] == [["read_file"], ["submit_work"]]
    assert calls[0]["properties"]["arguments"] == READ_TOOL.parameters


def test_the_history_is_text_as_it_came() -> None:
    """Prompts only grow: a past reply goes back as the very text that it was, results as the user's words."""
    text = '{ "thought": "Look.", "call": {"tool":"read_file", "arguments": {"relative_path":"a"}} }'
    past = read(text).message
    results = ToolResultsMessage(
        results=(ToolResult(tool_call_id="call_1", name="read_file", content="found"),), note="80 % used"
    )
    first = as_json_request(request(*PROMPT))
    made = as_json_request(request(*PROMPT, past, results))
    assert made.messages[: len(first.messages)] == first.messages
    assert isinstance(made.messages[2], AssistantMessage)
    assert made.messages[2].text == text
    assert made.messages[3] == UserMessage(text="Result of `read_file` (success):\nfound\n\n80 % used")


def test_the_calls_of_a_model_with_tools_become_text() -> None:
    """A conversation that another member began is shown in the form that is asked for, broken calls too."""
    calls = tuple(
        ToolCallBlock(tool_call_id=name, name="read_file", arguments=arguments)
        for name, arguments in (("a", '{"relative_path":"x"}'), ("b", "{"))
    )
    made = as_json_request(request(*PROMPT, AssistantMessage(blocks=calls, model="y:m")))
    assert isinstance(made.messages[2], AssistantMessage)
    first, second = (json.loads(line)["call"] for line in made.messages[2].text.split("\n"))
    assert first == {"tool": "read_file", "arguments": {"relative_path": "x"}}
    assert second == {"tool": "read_file", "arguments": "{"}


ARGUMENTS = '{"relative_path": "a", "n": 2512292042121000001}'
CALL = '{"thought": "t", "call": {"tool": "read_file", "arguments": ARGS}}'.replace("ARGS", ARGUMENTS)


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"\ufeff  {CALL}\n",
        f"```json\n{CALL}\n```",
        f"```\r\n{CALL}\n```\n",
        '{"tool": "read_file", "arguments": {"relative_path": "a", "n": 2512292042121000001}}',
    ],
)
def test_a_call_is_read(text: str) -> None:
    """R82, R85: bare, in one fence, with white space around, also without its envelope; numbers exact."""
    got = read(text, thought=True)
    thought, call = got.message.blocks
    assert isinstance(thought, ThinkingBlock)
    assert isinstance(call, ToolCallBlock)
    assert (call.name, call.tool_call_id, got.finish) == ("read_file", "call_1", "tool_calls")
    assert json.loads(call.arguments) == {"relative_path": "a", "n": 2512292042121000001}


@pytest.mark.parametrize(
    "text",
    [
        f"Sure! {CALL}",
        f"{CALL} {CALL}",
        '{"completion": "done", "verification": "ran"}',
        '{"call": {"tool": 7}}',
        '{"call": ["read_file"]}',
        '{"tool": "read_file", "tool": "delete_file", "arguments": {}}',
        '{"call": {"tool": "x", "arguments": NaN}}',
        "",
        "[1]",
        "{" * 100_000,
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    """R82, R84, R85: words around it, two objects, doubled keys, NaN: nothing is guessed or run."""
    got = read(text)
    assert (got.message.tool_calls, got.message.text, got.finish) == ((), text, "stop")


@pytest.mark.parametrize("finish", ["length", "content_filter", "refusal"])
def test_a_cut_call_is_no_call(finish: Finish) -> None:
    """R32: a reply that was cut or withheld is never run, however whole it looks."""
    assert read(CALL, finish=finish).message.tool_calls == ()


@pytest.mark.parametrize("arguments", ["[]", "7", "null", '"x"'])
def test_odd_arguments_go_to_the_tool(arguments: str) -> None:
    """R31: what isn't an object is refused by the tool, with its own words."""
    (call,) = read(f'{{"call": {{"tool": "read_file", "arguments": {arguments}}}}}').message.tool_calls
    assert call.arguments == ("x" if arguments == '"x"' else arguments)


def test_deltas_are_no_text() -> None:
    """A viewer isn't shown raw JSON as what the model says."""
    seen: list[Delta] = []
    show = as_call_deltas(seen.append)
    show(Delta(kind="text", text="{"))
    show(Delta(kind="reasoning", text="hm"))
    assert [delta.kind for delta in seen] == ["tool_call", "reasoning"]


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ('HTTP 400: "registry.ollama.ai/library/tiny:latest does not support tools"', True),
        ("HTTP 404: No endpoints found that support tool use.", True),
        ('HTTP 400: "auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser', True),
        ("HTTP 500: tools param requires --jinja flag", True),
        ("HTTP 400: Function calling is not enabled for this model", True),
        ("HTTP 400: tools[0].function.name: wrong pattern", False),
        ("HTTP 400: this model does not support temperature", False),
    ],
)
def test_who_says_that_it_has_no_tools(words: str, refused: bool) -> None:
    """The words of servers for it, and no others."""
    assert refuses_tools(words) is refused
