"""The schemas that Claude can be held to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.models._json_mode import reply_schema
from remit.models._strict_schema import strict_schema
from remit.stages._answers import submit_tool
from remit.testing import BedrockDialect
from remit.testing.fake_provider._strict_forms import form_fault, schema_fault
from remit.workspaces import DELEGATE, WorkspaceSettings
from remit.workspaces._tool_schemas import tools_for

TEXT: dict[str, Any] = {"type": "string"}


def closed(**fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": sorted(fields),
        "additionalProperties": False,
    }


def test_every_tool_of_ours_has_a_strict_form() -> None:
    """R31: a stage's whole reply, all tools of a workspace and its answer, can be held to its schema."""
    settings = WorkspaceSettings(ref="app", root=Path("/srv/app"), shell=True)
    tools = (*tools_for(settings), submit_tool("work"))
    strict = strict_schema(reply_schema(tools))
    assert strict is not None
    assert strict_schema(reply_schema((*tools, DELEGATE))) is None, "a child's limits are a free form"
    assert form_fault({"type": "json_schema", "schema": strict}) is None
    calls = strict["properties"]["call"]["anyOf"]
    assert [call["properties"]["tool"]["enum"] for call in calls] == [[tool.name] for tool in tools]
    for call, tool in zip(calls, tools, strict=True):
        own: Any = tool.parameters
        assert set(call["properties"]["arguments"]["properties"]) == set(own["properties"])


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (closed(a={"type": "integer", "minimum": 1, "maximum": 9}), closed(a={"type": "integer"})),
        (closed(a={**TEXT, "maxLength": 9, "pattern": "^x"}), closed(a=TEXT)),
        (closed(a={**TEXT, "format": "date"}), closed(a={**TEXT, "format": "date"})),
        (closed(a={**TEXT, "format": "made-up"}), closed(a=TEXT)),
        (
            closed(a={"type": "array", "items": TEXT, "minItems": 3, "uniqueItems": True}),
            closed(a={"type": "array", "items": TEXT}),
        ),
        (closed(a={"type": ["string", "null"]}), closed(a={"anyOf": [TEXT, {"type": "null"}]})),
        (closed(a={"oneOf": [TEXT, {"type": "null"}]}), closed(a={"anyOf": [TEXT, {"type": "null"}]})),
        (closed(a={"type": "string", "enum": ["x", None]}), closed(a={"enum": ["x", None]})),
        (closed(a={"const": 1}), closed(a={"const": 1})),
        ({"type": "object", "properties": {"a": TEXT}}, {**closed(a=TEXT), "required": []}),
        ({"type": "object", "properties": {}}, closed()),
        ({"type": "object", "additionalProperties": False}, closed()),
        ({**closed(a=TEXT), "required": ["a", "b", ["a"], {}]}, closed(a=TEXT)),
        (closed(a={**TEXT, "title": 7, "description": "what"}), closed(a={**TEXT, "description": "what"})),
        (closed(a={**TEXT, "format": {}}), closed(a=TEXT)),
    ],
)
def test_what_is_left_of_a_schema(schema: dict[str, Any], strict: dict[str, Any]) -> None:
    """R31: bounds are left out, alternatives and closed objects stay."""
    assert strict_schema(schema) == strict
    assert schema_fault(strict) is None


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        closed(a={}),
        closed(a={"type": "object"}),
        closed(a={"type": "object", "additionalProperties": TEXT}),
        {**closed(a=TEXT), "additionalProperties": True},
        closed(a={"$ref": "#/$defs/a"}),
        closed(a={"allOf": [TEXT]}),
        closed(a={"type": "array"}),
        closed(a={"enum": [{}]}),
        closed(a={"anyOf": []}),
        closed(a={"type": "file"}),
        closed(a={"type": {}}),
        closed(a={"type": []}),
        closed(a={"enum": "text"}),
        closed(a={"anyOf": "text"}),
        {**closed(a=TEXT), "required": None},
        {**closed(a=TEXT), "properties": []},
        closed(a={"type": "object", "patternProperties": {"^x": TEXT}, "additionalProperties": False}),
        {"type": "object", "properties": {f"p{number}": TEXT for number in range(25)}},
        closed(**{f"p{number}": {"anyOf": [TEXT, {"type": "null"}]} for number in range(17)}),
    ],
)
def test_what_has_no_strict_form(schema: dict[str, Any]) -> None:
    """R31: what is open, or too much, isn't bent into something else: the prompt holds it."""
    assert strict_schema(schema) is None


def test_the_most_that_is_taken() -> None:
    """R31: as many optional fields and alternatives as the API takes, and no fewer."""
    fields = {f"p{number}": TEXT for number in range(24)}
    optional = {"type": "object", "properties": fields}
    assert strict_schema(optional) == {**closed(**fields), "required": []}
    unions = closed(**{f"p{number:02}": {"anyOf": [TEXT, {"type": "null"}]} for number in range(16)})
    assert strict_schema(unions) == unions


ANY_SCHEMA: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(
        [
            TEXT,
            {"type": "integer", "minimum": 0},
            {"type": "object"},
            {"type": "object", "properties": {}, "additionalProperties": False},
            {"enum": ["a", 1]},
            {"type": ["number", "null"]},
            {"$ref": "#"},
            {},
            True,
            None,
            "text",
        ]
    ),
    lambda below: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items, "maxItems": 2}, below),
        st.builds(lambda options: {"anyOf": options}, st.lists(below, max_size=3)),
        st.builds(
            lambda fields, shut: {"type": "object", "properties": fields, **({} if shut is None else shut)},
            st.dictionaries(st.sampled_from("abcdef"), below, max_size=4),
            st.sampled_from([None, {"additionalProperties": False}, {"additionalProperties": True}]),
        ),
    ),
    max_leaves=12,
)


@given(ANY_SCHEMA)
def test_whatever_comes_out_is_taken(schema: Any) -> None:
    """R31: over any schema of a stranger's server: none, or one that the API takes."""
    strict = strict_schema(schema)
    assert strict is None or schema_fault(strict) is None


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({**closed(**{f"p{number}": TEXT for number in range(25)}), "required": []}, "too many optional"),
    (closed(**{f"p{number}": {"anyOf": [TEXT]} for number in range(17)}), "union types"),
    (closed(**{f"p{number}": {"type": ["string", "null"]} for number in range(17)}), "union types"),
    (closed(a={"type": "array", "items": TEXT, "minItems": 2}), "minItems"),
    (closed(a={**TEXT, "maxLength": 3}), "'maxLength' is not supported"),
    (closed(a={"type": "file"}), "'file' is not supported"),
    (closed(a={"title": "x"}), "is not supported"),
    ({"type": "object", "properties": {}}, "additionalProperties"),
    (closed(a={"type": "array", "items": True}), "has to be an object"),
)


@pytest.mark.parametrize(("schema", "word"), REFUSED)
def test_the_fake_refuses_what_the_api_does(schema: dict[str, Any], word: str) -> None:
    """R31: each rule of the API's by its name; the bounds themselves are taken."""
    assert word in str(schema_fault(schema))
    assert schema_fault({**closed(**{f"p{number}": TEXT for number in range(24)}), "required": []}) is None
    assert schema_fault(closed(a={"type": "array", "items": TEXT, "minItems": 1})) is None


def shaped(**changes: Any) -> dict[str, Any]:
    """Bedrock's field for the form of a reply."""
    definition = {"name": "reply", "schema": json.dumps(closed()), **changes.pop("definition", {})}
    form = {"type": "json_schema", "structure": {"jsonSchema": definition}, **changes.pop("form", {})}
    return {"textFormat": form, **changes}


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (shaped(), None),
        (shaped(more=1), "textFormat"),
        (shaped(form={"type": "text"}), "textFormat"),
        (shaped(form={"more": 1}), "textFormat"),
        (shaped(definition={"strict": True}), "textFormat"),
        (shaped(definition={"schema": "{"}), "textFormat"),
        (shaped(definition={"schema": json.dumps({"type": "object"})}), "additionalProperties"),
        ({}, "textFormat"),
    ],
)
def test_the_fake_refuses_what_bedrock_does(config: dict[str, Any], word: str | None) -> None:
    """R31: a field of another shape, or a schema that the API of the model refuses."""
    body = {"messages": [{"role": "user", "content": [{"text": "x"}]}], "outputConfig": config}
    fault = BedrockDialect()._fault(body)
    assert (fault is None) if word is None else (word in str(fault))
