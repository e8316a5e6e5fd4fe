"""What counts as a stage's answer: pure, strict, and able to say what was wrong.

An answer is exactly one JSON object with exactly the stage's keys, each a string. It stands alone as
the reply's text (one enclosing code fence is tolerated, and white space or a byte order mark around
it), or is the argument text of the stage's submit tool. Nothing is coerced: `true` isn't "pass", and a
list isn't a plan. Whatever else comes is `Invalid`, with a sentence that the model can act on.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from remit.contract import StageKind, ToolSpec
from remit.primitives import StrictJsonError, clean_text, load_json

MAX_ANSWER_CHARS: Final = 1_000_000
"""More than this is no answer; the most that a model can put out is below it."""

DECISIONS: Final = ("pass", "revise", "reject")

_AROUND: Final = " \t\r\n\ufeff"
_FENCE: Final = re.compile(
    r"(?P<fence>`{3,})[ \t]*(?:json)?[ \t]*\r?\n(?P<inside>.*)\n[ \t]*(?P=fence)",
    re.IGNORECASE | re.DOTALL,
)
_MAX_DEPTH: Final = 8
_PREVIEW_CHARS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerShape:
    """The keys of one stage's answer."""

    tool: str
    """The name of the submit tool."""
    tool_description: str
    keys: Mapping[str, str]
    """Each key with what it says; all are required, and all are strings."""


SHAPES: Final[Mapping[StageKind, AnswerShape]] = {
    "plan": AnswerShape(
        tool="submit_plan",
        tool_description="Hand in the finished plan and end this stage. Call it alone, once.",
        keys={
            "plan": "What is to be done, step by step, with the files and functions concerned. Not empty.",
            "verification": "How to tell that it was done right: what to run and what to expect. Not empty.",
        },
    ),
    "work": AnswerShape(
        tool="submit_work",
        tool_description="Report the finished work and end this stage. Call it alone, once.",
        keys={
            "completion": "What was done and what wasn't, file by file where files changed. Not empty.",
            "verification": "What was run or looked at to prove it, and what came out. Not empty.",
        },
    ),
    "review": AnswerShape(
        tool="submit_review",
        tool_description="Give the verdict and end this stage. Call it alone, once.",
        keys={
            "decision": 'Exactly one of "pass", "revise" or "reject".',
            "output": 'The answer for whoever asked. Not empty with "pass"; otherwise it may be "".',
            "summary": 'Why, in a few sentences; with "revise", what has to change. Not empty.',
        },
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Valid:
    """The answer, key by key, as it was written."""

    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """No answer."""

    reason: str
    """One or two sentences to the model: what was wrong."""


def submit_tool(kind: StageKind) -> ToolSpec:
    """The tool by which a stage hands in its answer."""
    shape = SHAPES[kind]
    properties: dict[str, Any] = {
        key: {"type": "string", "description": meaning} for key, meaning in shape.keys.items()
    }
    if "decision" in properties:
        properties["decision"]["enum"] = list(DECISIONS)
    return ToolSpec(
        name=shape.tool,
        description=shape.tool_description,
        parameters={
            "type": "object",
            "properties": properties,
            "required": list(shape.keys),
            "additionalProperties": False,
        },
        effect="read",
    )


def read_text(kind: StageKind, text: str) -> Valid | Invalid:
    """The answer that a reply's text is, or why it isn't one."""
    if len(text) > MAX_ANSWER_CHARS:
        return Invalid(reason=f"It has {len(text)} characters; an answer has at most {MAX_ANSWER_CHARS}.")
    bare = text.strip(_AROUND)
    fenced = _FENCE.fullmatch(bare)
    if fenced is not None:
        bare = fenced["inside"].strip(_AROUND)
    if not bare.startswith("{"):
        return Invalid(
            reason=f"It begins with {_preview(bare)}. It must be one JSON object and nothing else: "
            "no words before or after it."
        )
    return _read_object(kind, bare)


def read_arguments(kind: StageKind, arguments: str) -> Valid | Invalid:
    """The answer that the arguments of the submit tool are, or why they aren't one."""
    if len(arguments) > MAX_ANSWER_CHARS:
        return Invalid(
            reason=f"The arguments have {len(arguments)} characters; at most {MAX_ANSWER_CHARS} are read."
        )
    bare = arguments.strip(_AROUND)
    if not bare.startswith("{"):
        return Invalid(reason=f"The arguments must be one JSON object; they begin with {_preview(bare)}.")
    return _read_object(kind, bare)


def _read_object(kind: StageKind, text: str) -> Valid | Invalid:
    try:
        value = load_json(text, max_depth=_MAX_DEPTH)
    except StrictJsonError as error:
        return Invalid(reason=f"It isn't one valid JSON object: {_readable(str(error))}.")
    # It begins with a brace and it is JSON, so it is an object.
    return _check_fields(kind, cast("dict[str, Any]", value))


def _check_fields(kind: StageKind, value: dict[str, Any]) -> Valid | Invalid:
    keys = SHAPES[kind].keys
    problems = [f"the key `{key}` is missing" for key in keys if key not in value]
    problems += [f"the key {_preview(key)} doesn't belong in it" for key in value if key not in keys][:5]
    problems += [
        f"`{key}` must be a string, not {_json_type(value[key])}"
        for key in keys
        if key in value and not isinstance(value[key], str)
    ]
    if problems:
        return Invalid(reason=_sentence(problems, keys))
    fields = {key: cast("str", value[key]) for key in keys}
    problems = _check_content(kind, fields)
    if problems:
        return Invalid(reason=_sentence(problems, keys))
    # What can't be stored is replaced; all else of the text stays as it was written.
    return Valid(fields={key: clean_text(text)[0] for key, text in fields.items()})


def _check_content(kind: StageKind, fields: Mapping[str, str]) -> list[str]:
    problems: list[str] = []
    decision = fields.get("decision")
    if kind == "review" and decision not in DECISIONS:
        problems.append(
            f'`decision` must be exactly "pass", "revise" or "reject", not {_preview(decision or "")}'
        )
    needs_no_output = kind == "review" and decision in {"revise", "reject"}
    for key, text in fields.items():
        if is_blank(text) and key != "decision" and not (key == "output" and needs_no_output):
            problems.append(f"`{key}` must not be empty")
    return problems


def is_blank(text: str) -> bool:
    """Whether a reader would see nothing: only white space, control and format characters."""
    return all(character.isspace() or unicodedata.category(character) in {"Cc", "Cf"} for character in text)


def _sentence(problems: list[str], keys: Mapping[str, str]) -> str:
    named = ", ".join(f"`{key}`" for key in keys)
    listed = "; ".join(problems)
    return f"{listed[:1].upper()}{listed[1:]}. The object has exactly these keys, all strings: {named}."


def _preview(text: str) -> str:
    """A short, printable quote of what came."""
    if not text:
        return "nothing"
    cut = text if len(text) <= _PREVIEW_CHARS else text[:_PREVIEW_CHARS] + "…"
    return f'"{_readable(cut)}"'


def _readable(text: str) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _json_type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"
