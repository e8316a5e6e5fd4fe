"""What counts as a stage's answer, and what the model is told otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.contract import StageKind
from remit.stages import SHAPES, Invalid, Valid, read_arguments, read_text, submit_tool

GOOD: dict[StageKind, dict[str, Any]] = {
    "plan": {"plan": "Do it.", "verification": "Run it."},
    "work": {"completion": "Did it.", "verification": "Ran it."},
    "review": {"decision": "pass", "output": "It is done.", "summary": "Looked at it."},
}
KINDS: tuple[StageKind, ...] = ("plan", "work", "review")


def reason(answer: Valid | Invalid) -> str:
    assert isinstance(answer, Invalid), answer
    return answer.reason


@pytest.mark.parametrize("kind", KINDS)
def test_a_bare_object_is_the_answer(kind: StageKind) -> None:
    """S28, S29: exactly one object with exactly the stage's keys."""
    assert read_text(kind, json.dumps(GOOD[kind])) == Valid(fields=GOOD[kind])
    assert read_arguments(kind, json.dumps(GOOD[kind])) == Valid(fields=GOOD[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "\ufeff {}\n\n",
        " \t\r\n{}\r\n",
        "```json\n{}\n```",
        "```\n{}\n```",
        "```JSON \r\n{}\r\n```\r\n",
        "\ufeff```json\n\n{}\n\n```\n",
        "````json\n{}\n````",
    ],
)
def test_one_enclosing_fence_and_white_space_are_tolerated(kind: StageKind, around: str) -> None:
    """R82: bare, one fence with or without a label, byte order mark, spaces, CRLF."""
    assert read_text(kind, around.replace("{}", json.dumps(GOOD[kind], indent=1))) == Valid(fields=GOOD[kind])


def test_backticks_inside_a_string_are_text() -> None:
    """R82: a fence inside a string is neither the end of the fence nor of the answer."""
    fields = {"plan": "Write\n```py\nx = 1\n```\nthere.", "verification": "`make test`"}
    assert read_text("plan", f"```json\n{json.dumps(fields)}\n```") == Valid(fields=fields)


@pytest.mark.parametrize(
    "around",
    [
        "Here it is:\n{}",
        "{}\nThat's all.",
        "```json\n{}\n```\nDone.",
        "Sure!\n```json\n{}\n```",
        "```bash\nls\n```\n```json\n{}\n```",
        "```yaml\n{}\n```",
        "```json\n{}",
        "{}\n```",
        "```json {} ```",
        "``\n{}\n``",
        "{} {}",
        "{}{}",
        "[{}]",
        "{},",
        "",
        "   ",
        "Done.",
        "null",
        '"pass"',
        "```json\n```",
        "```json\n\n```",
        "{",
        '{"plan": "a"',
    ],
)
def test_anything_around_or_instead_is_invalid(around: str) -> None:
    """R82, S29: words around it, two objects, another fence, prose: asked again."""
    text = around.replace("{}", json.dumps(GOOD["plan"]))
    assert isinstance(read_text("plan", text), Invalid)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_and_foreign_keys_are_named(kind: StageKind) -> None:
    """R87: the model is told which key is missing and which doesn't belong."""
    for key in SHAPES[kind].keys:
        fields = {other: text for other, text in GOOD[kind].items() if other != key}
        told = reason(read_text(kind, json.dumps(fields | {"notes": "x"})))
        assert f"The key `{key}` is missing" in told
        assert '"notes" doesn\'t belong' in told


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [None, True, False, 0, 8, 1.5, [], ["pass"], {}, {"a": "b"}])
def test_nothing_is_coerced(kind: StageKind, value: object) -> None:
    """R87, R83: the right idea in the wrong type isn't the answer, in a gate least of all."""
    for key in SHAPES[kind].keys:
        told = reason(read_text(kind, json.dumps(GOOD[kind] | {key: value})))
        assert f"`{key}` must be a string" in told


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u00a0", "\u200b", "\u2028", "\ufeff", "\u200b \u200d"])
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("plan", "plan"),
        ("plan", "verification"),
        ("work", "completion"),
        ("work", "verification"),
        ("review", "output"),
        ("review", "summary"),
    ],
)
def test_blank_required_strings_are_invalid(kind: StageKind, key: str, blank: str) -> None:
    """S28, R86: a string in which nothing can be seen is empty."""
    assert f"`{key}` must not be empty" in reason(read_text(kind, json.dumps(GOOD[kind] | {key: blank})))


@pytest.mark.parametrize("word", ["PASS", "Pass", " pass", "passed", "approve", "ok", "yes", "true", ""])
def test_no_other_word_is_a_decision(word: str) -> None:
    """S27: what merely sounds like a pass is no answer, so it can't succeed."""
    assert "`decision` must be exactly" in reason(
        read_text("review", json.dumps(GOOD["review"] | {"decision": word}))
    )


@pytest.mark.parametrize("kind", KINDS)
def test_submit_tools_ask_for_exactly_the_answer(kind: StageKind) -> None:
    """R87: the schema that the model is given is the one that is checked."""
    tool = submit_tool(kind)
    assert tool.name == f"submit_{kind}"
    assert tool.parameters["required"] == list(GOOD[kind])
    assert set(tool.parameters["properties"]) == set(GOOD[kind])  # type: ignore[arg-type] - JSON Schema
    assert tool.parameters["additionalProperties"] is False
