"""What MCP servers say of their tools is made fit for a model, or left out."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.workspaces._mcp_results import McpResult, readable
from remit.workspaces._mcp_tools import MAX_SCHEMA_BYTES, MAX_TOOLS, Listing, OfferedTool, list_offers

FIT = re.compile(r"mcp__notes__[A-Za-z0-9_-]+\Z")


def offer(name: str = "find", **options: Any) -> OfferedTool:
    values: dict[str, Any] = {"description": "Finds.", "schema": {"type": "object"}, "reads_only": False}
    return OfferedTool(name=name, **(values | options))


def offered(*offers: OfferedTool) -> Listing:
    return list_offers("notes", offers)


def test_a_plain_tool_keeps_its_name() -> None:
    """A tool is told under `mcp__SERVER__TOOL`, its words marked as the server's."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    (tool,) = offered(offer("find", schema=schema)).tools
    assert (tool.spec.name, tool.name, tool.server) == ("mcp__notes__find", "find", "notes")
    assert tool.spec.parameters == schema
    assert tool.spec.description == "[tool of the MCP server notes; its own words follow] Finds."
    assert (tool.spec.effect, tool.spec.plugin) == ("command", "notes")


def test_only_what_is_marked_as_reading_reads() -> None:
    """A tool counts as a command unless its server marks it as changing nothing."""
    listing = offered(offer("a"), offer("b", reads_only=True))
    assert [tool.spec.effect for tool in listing.tools] == ["command", "read"]


@given(st.lists(st.text(max_size=90), max_size=12))
def test_every_name_is_fit_and_stands_once(names: list[str]) -> None:
    """R26: whatever servers call their tools, each gets one name of its own that every provider takes."""
    listing = offered(*(offer(name) for name in names))
    told = [tool.spec.name for tool in listing.tools]
    assert len(set(told)) == len(told) == len({name for name in names if name})
    assert all(FIT.match(name) and len(name) <= 64 for name in told)
    assert {tool.name for tool in listing.tools} == {name for name in names if name}


def test_a_doubled_tool_is_left_out() -> None:
    """A second tool of the same name can't be told from the first."""
    listing = offered(offer("find"), offer("find", description="Other."))
    assert [tool.spec.description[-6:] for tool in listing.tools] == ["Finds."]
    assert listing.left_out == ("find: it is offered twice",)


def test_words_are_cleaned_and_bounded() -> None:
    """Control characters, hidden characters and endless words don't reach a prompt."""
    (tool,) = offered(offer(description="a\x1b[2J\u202eb\0\n\nc" + "x" * 10_000)).tools
    assert tool.spec.description.isprintable()
    assert len(tool.spec.description) < 2_200


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array"}, "aren't an object"),
        ({"x": "y" * (MAX_SCHEMA_BYTES + 1)}, "at most"),
        ({"x": float("nan")}, "isn't JSON"),
        ({"x": object()}, "isn't JSON"),
        (json.loads('{"a":' * 40 + "1" + "}" * 40), "deep"),
    ],
)
def test_an_unfit_schema_leaves_the_tool_out(schema: dict[str, Any], why: str) -> None:
    """A schema that no provider would take, or that would fill the prompt, costs its tool alone."""
    listing = offered(offer("bad", schema=schema), offer("good"))
    assert [tool.name for tool in listing.tools] == ["good"]
    assert why in listing.left_out[0]


def test_a_loose_schema_is_made_whole() -> None:
    """What providers ask for is put in: an object, its properties, only known ones required."""
    schema = {"properties": {"a": {"type": "string"}}, "required": ["a", "b", 3]}
    (tool,) = offered(offer(schema=schema)).tools
    assert tool.spec.parameters == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
    }


def test_too_many_tools_are_cut() -> None:
    """A server can't fill a prompt: tools beyond the bound are named as left out."""
    listing = offered(*(offer(f"t{number}") for number in range(MAX_TOOLS + 5)))
    assert (len(listing.tools), len(listing.left_out)) == (MAX_TOOLS, 5)
    wide = {"type": "object", "description": "y" * (MAX_SCHEMA_BYTES - 100)}
    heavy = offered(*(offer(f"t{number}", schema=wide) for number in range(100)))
    assert len(heavy.tools) < 20
    assert heavy.left_out


def test_a_result_reads_as_one_text() -> None:
    """Parts in their order; the structured form only where there is no text."""
    assert McpResult(parts=("a", "b"), structured={"x": 1}).text == "a\nb"
    assert McpResult(parts=(), structured={"x": 1}).text == '{"x":1}'
    assert McpResult(parts=()).text == ""


def test_a_result_holds_no_control_sequences() -> None:
    """R49: what a server answers is shown as a command's output is."""
    text, cut = readable("one\x1b]0;owned\x07\x1b[2J\r\ntwo\rTWO\n", max_bytes=1000)
    assert (text, cut) == ("one\nTWO\n", False)
    assert readable("x" * 5_000, max_bytes=1_000)[1]
