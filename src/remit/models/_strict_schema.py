"""A reply's schema in the form that Claude can be held to, or the knowledge that there is none.

The API compiles a schema into a grammar. It takes a part of JSON Schema only: closed objects, no bounds of
numbers, lengths and lists, a few optional fields and alternatives. Bounds are left out, since they stand in
the prompt, and tools check them. What is open by its nature has no such form: closed, it could say nothing.

Source: the pages on structured outputs of Anthropic and of Amazon Bedrock, 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from remit.models._wire import is_array, is_object

_MOST_OPTIONAL: Final = 24
_MOST_UNIONS: Final = 16
_KEPT: Final = ("title", "description")
_OPEN: Final = frozenset({"$ref", "allOf", "patternProperties"})
_FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}
)
_PLAIN: Final = frozenset({"string", "integer", "number", "boolean", "null"})


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema as the API takes it; None where it can't be said so.

    Args:
        schema: Any JSON schema, such as of the tools of somebody else's server.
    """
    counts = _Counts()
    try:
        strict = _strict(schema, counts)
    except _OpenError:
        return None
    return strict if counts.optional <= _MOST_OPTIONAL and counts.unions <= _MOST_UNIONS else None


class _OpenError(Exception):
    """The schema, or a part of it, allows what no closed form of it would."""


@dataclass(slots=True)
class _Counts:
    optional: int = 0
    unions: int = 0


def _strict(schema: Any, counts: _Counts) -> dict[str, Any]:
    if not is_object(schema) or not _OPEN.isdisjoint(schema):
        raise _OpenError
    said = {name: schema[name] for name in _KEPT if isinstance(schema.get(name), str)}
    options = schema.get("anyOf", schema.get("oneOf"))
    if options is not None:
        return {**said, "anyOf": _union(options, counts)}
    if "const" in schema or "enum" in schema:
        return {**said, **_literal(schema)}
    kind = schema.get("type")
    if is_array(kind):
        return {**said, "anyOf": _union([{**schema, "type": one} for one in kind], counts)}
    match kind:
        case "object":
            return {**said, **_object(schema, counts)}
        case "array":
            return {**said, "type": "array", "items": _strict(schema.get("items"), counts)}
        case "string" if str(schema.get("format")) in _FORMATS:
            return {**said, "type": "string", "format": schema["format"]}
        case str() if kind in _PLAIN:
            return {**said, "type": kind}
        case _:
            raise _OpenError


def _union(options: Any, counts: _Counts) -> list[dict[str, Any]]:
    if not is_array(options) or not options:
        raise _OpenError
    counts.unions += 1
    return [_strict(option, counts) for option in options]


def _literal(schema: Mapping[str, Any]) -> dict[str, Any]:
    values: Any = [schema["const"]] if "const" in schema else schema["enum"]
    if not is_array(values) or not values or any(is_object(value) or is_array(value) for value in values):
        raise _OpenError
    return {"const": values[0]} if "const" in schema else {"enum": values}


def _object(schema: Mapping[str, Any], counts: _Counts) -> dict[str, Any]:
    fields, closed = schema.get("properties", {}), schema.get("additionalProperties")
    named = "properties" in schema or closed is False  # with neither, anything goes: closed it would be empty
    if not is_object(fields) or closed not in (None, False) or not named:
        raise _OpenError
    wanted: Any = schema.get("required", [])
    if not is_array(wanted):
        raise _OpenError
    required = [name for name in fields if name in wanted]
    counts.optional += len(fields) - len(required)
    return {
        "type": "object",
        "properties": {name: _strict(field, counts) for name, field in fields.items()},
        "required": required,
        "additionalProperties": False,
    }
