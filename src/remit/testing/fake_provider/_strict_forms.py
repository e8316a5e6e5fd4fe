"""What Anthropic, and Bedrock for its models, refuse of a schema that a reply is to be held to.

Source: the page on structured outputs, and errors in public reports, as of 2026-11; sentences are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remit.testing.fake_provider._shapes import is_array, is_object

_OF_KIND: dict[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems"}),
    "string": frozenset({"format", "pattern"}),
    "integer": frozenset(),
    "number": frozenset(),
    "boolean": frozenset(),
    "null": frozenset(),
}
_ANYWHERE = frozenset({"type", "title", "description", "default", "enum", "const", "anyOf", "$defs"})
_MOST_OPTIONAL, _MOST_UNIONS = 24, 16


def form_fault(form: Any) -> str | None:
    """What is wrong with `{"type": "json_schema", "schema": ...}`, or None."""
    if not is_object(form) or form.get("type") != "json_schema":
        return "type: Input should be 'json_schema'"
    if set(form) != {"type", "schema"} or not is_object(form["schema"]):
        return "schema: Input should be a valid dictionary"
    return schema_fault(form["schema"])


def schema_fault(schema: Any) -> str | None:
    """What is wrong with a schema, or None."""
    optional = unions = 0
    for part in _parts(schema):
        if isinstance(part, str):
            return f"schema: {part}"
        unions += "anyOf" in part or is_array(part.get("type"))
        optional += len(set(part.get("properties", {})) - set(part.get("required", ())))
    if optional > _MOST_OPTIONAL:
        return f"schema: too many optional parameters ({optional}), which would make grammar compilation slow"
    if unions > _MOST_UNIONS:
        return f"schema: too many parameters with union types ({unions})"
    return None


def _parts(schema: Any) -> Iterator[dict[str, Any] | str]:
    """Every schema in it, outermost first; a sentence where one is wrong."""
    if not is_object(schema):
        yield "every part has to be an object"
        return
    kind = schema.get("type")
    kinds: list[Any] = kind if is_array(kind) else [kind] if kind is not None else []
    if any(one not in _OF_KIND for one in kinds) or not (kinds or {"anyOf", "enum", "const"} & set(schema)):
        yield f"schema type {kind!r} is not supported"
        return
    allowed = _ANYWHERE.union(*(_OF_KIND[one] for one in kinds))
    for name in set(schema) - allowed:
        yield f"for {kind!r} type, property {name!r} is not supported"
        return
    if "object" in kinds and schema.get("additionalProperties") is not False:
        yield "for 'object' type, 'additionalProperties' must be explicitly set to false"
        return
    if schema.get("minItems", 0) not in (0, 1):
        yield "for 'array' type, 'minItems' values other than 0 or 1 are not supported"
        return
    yield schema
    below: list[Any] = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for part in [*below, *([schema["items"]] if "items" in schema else ())]:
        yield from _parts(part)
