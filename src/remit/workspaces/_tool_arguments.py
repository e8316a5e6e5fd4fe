"""Reads the arguments of a tool call as a model wrote them. What isn't right is said, and nothing is done.

Strict JSON: one object, no key twice, no NaN, whole numbers exact, depth and size bounded. Blank text is `{}`
where nothing is required. Taken beside the exact types: a whole number written as 5.0 or "5", and null for an
optional argument that is left out. Nothing else is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from remit.contract import ToolSpec
from remit.primitives import StrictJsonError, load_json

__all__ = ["ArgumentsRefused", "parse_arguments", "parse_object"]

MAX_ARGUMENT_CHARS: Final = 16_777_216
_PREVIEW_CHARS: Final = 120
_MAX_INTEGER: Final = 2**63 - 1
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}")


class ArgumentsRefused(ValueError):
    """The arguments can't be used; the message is for the model."""


def parse_arguments(text: str, spec: ToolSpec) -> dict[str, object]:
    """The checked arguments of a call.

    Raises:
        ArgumentsRefused: with a short preview of what came, and what was expected.
    """
    properties, required = _schema(spec)
    return _checked(parse_object(text), properties, required)


def parse_object(text: str) -> dict[str, object]:
    """The arguments of a call whose schema somebody else checks.

    Raises:
        ArgumentsRefused: they aren't one JSON object; with a short preview of what came.
    """
    if len(text) > MAX_ARGUMENT_CHARS:
        raise ArgumentsRefused(f"the arguments have {len(text)} characters; at most {MAX_ARGUMENT_CHARS}")
    if not text.strip():
        value: Any = {}
    else:
        try:
            value = load_json(text)
        except StrictJsonError as error:
            raise ArgumentsRefused(f"the arguments aren't valid JSON ({error}): {_preview(text)}") from None
    if not isinstance(value, dict):
        raise ArgumentsRefused(f"the arguments must be one JSON object: {_preview(text)}")
    return cast("dict[str, object]", value)


def _schema(spec: ToolSpec) -> tuple[dict[str, dict[str, Any]], list[str]]:
    return cast("dict[str, dict[str, Any]]", spec.parameters["properties"]), cast(
        "list[str]", spec.parameters["required"]
    )


def _checked(
    value: Mapping[str, object], properties: Mapping[str, dict[str, Any]], required: list[str]
) -> dict[str, object]:
    unknown = [key for key in value if key not in properties]
    if unknown:
        raise ArgumentsRefused(f"unknown argument {_preview(unknown[0])}; there are: {', '.join(properties)}")
    checked: dict[str, object] = {}
    for key, schema in properties.items():
        given = value.get(key)
        if given is not None:
            checked[key] = _checked_value(key, given, schema)
        elif key in required:
            raise ArgumentsRefused(f"`{key}` is missing; it is required")
    return checked


def _checked_value(key: str, value: object, schema: Mapping[str, Any]) -> object:
    kind = schema["type"]
    if kind == "string":
        return _checked_text(key, value, schema)
    if kind == "integer":
        return _checked_number(key, value, schema)
    if kind == "boolean":
        if not isinstance(value, bool):
            raise ArgumentsRefused(f"`{key}` must be true or false, not {_preview(value)}")
        return value
    if not isinstance(value, list):
        raise ArgumentsRefused(f"`{key}` must be a list of texts, not {_preview(value)}")
    return [
        _checked_text(f"{key}[{index}]", item, {}) for index, item in enumerate(cast("list[object]", value))
    ]


def _checked_text(key: str, value: object, schema: Mapping[str, Any]) -> str:
    if not isinstance(value, str):
        raise ArgumentsRefused(f"`{key}` must be text, not {_preview(value)}")
    choices: list[str] | None = schema.get("enum")
    if choices is not None and value not in choices:
        raise ArgumentsRefused(f"`{key}` is {_preview(value)}; there are: {', '.join(choices)}")
    return value


def _checked_number(key: str, value: object, schema: Mapping[str, Any]) -> int:
    if (isinstance(value, float) and value.is_integer()) or (
        isinstance(value, str) and _WHOLE.fullmatch(value.strip())
    ):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentsRefused(f"`{key}` must be a whole number, not {_preview(value)}")
    low, high = schema.get("minimum", -_MAX_INTEGER), schema.get("maximum", _MAX_INTEGER)
    if not low <= value <= high:
        raise ArgumentsRefused(f"`{key}` is {_preview(value)}; it must be from {low} to {high}")
    return value


def _preview(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = "".join(char if char.isprintable() else " " for char in text[:_PREVIEW_CHARS])
    return f"{text!r}" + ("..." if len(str(value)) > _PREVIEW_CHARS else "")
