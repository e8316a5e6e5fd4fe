"""What a model may write as arguments, and what it is told when it may not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.contract import ToolSpec
from remit.workspaces._settings import CommandDefinition, WorkspaceSettings
from remit.workspaces._tool_arguments import ArgumentsRefused, parse_arguments
from remit.workspaces._tool_schemas import READ_TOOLS, stage_kind_of, strict_parameters, tools_for
from remit.workspaces._tools import call_fingerprint

FULL = WorkspaceSettings(
    ref="app",
    root="/app",  # type: ignore[arg-type] - turned into a path
    shell=True,
    commands=(
        CommandDefinition(id="test", executable="pytest", args=("-q",), extra_args=True),
        CommandDefinition(id="lint", executable="ruff"),
    ),
)
SPECS = {spec.name: spec for spec in tools_for(FULL)}


@pytest.mark.parametrize("text", ["", "  ", "\n\t", "{}", " {} ", "\ufeff{}"])
def test_tools_blank_arguments_are_none(text: str) -> None:
    """R31: blank is `{}` where nothing is required."""
    assert parse_arguments(text, SPECS["list_files"]) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "null",
        "[]",
        '"x"',
        "1",
        "{",
        '{"relative_path":"a"}{"b":2}',
        "{" * 2000000,
        "[" * 100000,
        "nan",
        '{"relative_path": "a", "relative_path": "b"}',
        '{"relative_path": "a", "limit_lines": NaN}',
        "{'a': 1}",
        '{"relative_path": "a", "limit_lines": 1e999}',
        '{"relative_path": "a", "limit_lines": ' + "9" * 5000 + "}",
        '{"relative_path": 5}',
        '{"relative_path": null}',
        '{"relative_path": "a", "extra": 1}',
        '{"relative_path"}',
        '{"relative_path": "a", "limit_lines": 0}',
        '{"relative_path": "a", "limit_lines": 1.5}',
        "\x00",
        "prose {}",
        '{"relative_path": "a", "limit_lines": true}',
        '{"relative_path": "a", "limit_lines": "five"}',
        "�",
    ],
)
def test_tools_broken_arguments_are_refused(text: str) -> None:
    """R31, R84, R85: anything but one object of the right form is refused, with a short preview."""
    with pytest.raises(ArgumentsRefused) as caught:
        parse_arguments(text, SPECS["read_file"])
    message = str(caught.value)
    assert 10 < len(message) < 500
    message.encode()


def test_tools_numbers_are_exact() -> None:
    """R85, R87: whole numbers are exact; 5.0 and "5" are taken for 5, nothing else is guessed."""
    text = '{"relative_path": "a", "offset_lines": 2512292042121000001}'
    assert parse_arguments(text, SPECS["read_file"])["offset_lines"] == 2512292042121000001
    for written in ("5.0", '"5"', '" 5 "', "5e0"):
        text = f'{{"relative_path": "a", "limit_lines": {written}, "offset_lines": null}}'
        assert parse_arguments(text, SPECS["read_file"]) == {"relative_path": "a", "limit_lines": 5}
    with pytest.raises(ArgumentsRefused, match="true or false"):
        parse_arguments('{"relative_path":"a","old":"a","new":"b","replace_all":"true"}', SPECS["edit_file"])


def test_tools_limits_out_of_range_are_refused() -> None:
    """R55: more time than the workspace allows is refused with the bound, not cut in silence."""
    with pytest.raises(ArgumentsRefused, match="from 1 to 1800000"):
        parse_arguments('{"command": "x", "timeout_ms": 1800001}', SPECS["run_shell"])
    with pytest.raises(ArgumentsRefused, match="from 1 to"):
        parse_arguments('{"command": "x", "timeout_ms": 0}', SPECS["run_shell"])


def test_tools_command_ids_are_those_of_the_workspace() -> None:
    """S56: a named command is one of the definition's, told when it isn't."""
    with pytest.raises(ArgumentsRefused, match="there are: test, lint"):
        parse_arguments('{"id": "rm"}', SPECS["run_command"])
    with pytest.raises(ArgumentsRefused, match=r"args\[1\]"):
        parse_arguments('{"id": "test", "args": ["a", 1]}', SPECS["run_command"])
    assert parse_arguments('{"id": "test", "args": ["a"]}', SPECS["run_command"]) == {
        "id": "test",
        "args": ["a"],
    }


def test_tools_of_a_workspace_are_what_it_allows() -> None:
    """S56, S80: operations, shell and commands decide; planning only reads; work and review get the same."""
    assert list(SPECS) == [
        *("list_files", "read_file", "search", "read_output"),
        *("write_file", "edit_file", "apply_patch", "move_file", "delete_file", "run_shell", "run_command"),
    ]
    assert {spec.name for spec in tools_for(FULL, "plan")} == READ_TOOLS
    assert tools_for(FULL, "work") == tools_for(FULL, "review") == tools_for(FULL)
    no_shell = FULL.model_copy(update={"shell": False, "commands": ()})
    assert {spec.effect for spec in tools_for(no_shell)} == {"read", "write"}
    read_only = FULL.model_copy(update={"operations": ("read",)})
    assert {spec.name for spec in tools_for(read_only)} == READ_TOOLS
    only_commands = FULL.model_copy(update={"operations": ("command",)})
    assert [spec.name for spec in tools_for(only_commands)] == ["read_output", "run_shell", "run_command"]
    plain = FULL.model_copy(update={"commands": (CommandDefinition(id="lint", executable="ruff"),)})
    assert "args" not in str(next(spec for spec in tools_for(plain) if spec.name == "run_command").parameters)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_tools_schemas_are_closed_and_short(spec: ToolSpec) -> None:
    """S80: each schema is closed and described; the strict form requires every key, and null leaves one
    out.
    """
    assert spec.parameters["additionalProperties"] is False
    assert len(spec.description) <= 400
    strict = strict_parameters(spec.parameters)
    properties = strict["properties"]
    assert isinstance(properties, dict)
    assert strict["required"] == list(properties)
    for schema in properties.values():
        assert schema["description"].endswith((".", ";"))
    required = spec.parameters["required"]
    assert isinstance(required, list)
    nulls = dict.fromkeys(properties)
    if not required:
        assert parse_arguments(json.dumps(nulls), spec) == {}
    json.dumps(spec.to_json())


def test_tools_schema_bytes_are_stable() -> None:
    """S79: the same settings give the same bytes, since they stand in every prompt."""
    one, other = (json.dumps([spec.to_json() for spec in tools_for(FULL)]) for _ in range(2))
    assert one == other
    assert len(one) < 9_000


@pytest.mark.parametrize(
    ("stage_id", "kind"), [("plan", "plan"), ("work-1", "work"), ("review-12", "review")]
)
def test_tools_stage_kinds(stage_id: str, kind: str) -> None:
    """S44: a stage's kind is in its id."""
    assert stage_kind_of(stage_id) == kind


@pytest.mark.parametrize(
    "stage_id", ["", "plan-1", "work", "work-", "work-x", "rework-1", "work-1-2", "work-\u0661"]
)
def test_tools_stage_kinds_that_are_none(stage_id: str) -> None:
    """S44: what is no stage id is told."""
    with pytest.raises(ValueError, match="stage id"):
        stage_kind_of(stage_id)


def test_tools_fingerprint_sees_through_the_writing() -> None:
    """R56: the same call is the same however it is written; another isn't."""
    one = call_fingerprint("edit_file", '{"old": "a", "new": "b"}')
    assert one == call_fingerprint("edit_file", '{"new":"b","old":"\\u0061"}')
    assert one != call_fingerprint("edit_file", '{"old": "a", "new": "c"}')
    assert one != call_fingerprint("write_file", '{"old": "a", "new": "b"}')
    assert call_fingerprint("x", "{broken") == call_fingerprint("x", " {broken ")


@given(
    st.text(max_size=200) | st.binary(max_size=100).map(lambda data: data.decode("utf-8", "surrogateescape"))
)
def test_tools_any_text_is_arguments_or_refused(text: str) -> None:
    """R31: no text at all raises anything else."""
    for spec in SPECS.values():
        said = ""
        try:
            parse_arguments(text, spec)
        except ArgumentsRefused as refusal:
            said = str(refusal)
        assert len(said) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(list(SPECS.values())), st.data())
def test_tools_any_values_are_typed_or_refused(spec: ToolSpec, data: st.DataObject) -> None:
    """R31, R87: what comes through has the types of the schema."""
    properties = spec.parameters["properties"]
    assert isinstance(properties, dict)
    value = {key: data.draw(JSON, label=key) for key in properties}
    try:
        arguments = parse_arguments(json.dumps(value), spec)
    except ArgumentsRefused:
        return
    types = {"string": str, "integer": int, "boolean": bool, "array": list}
    for key, given_value in arguments.items():
        assert isinstance(given_value, types[properties[key]["type"]])
