"""What is wrong with a value, in the words of whoever wrote it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_OBJECT: Final = ("dict_type", "mapping_type", "model_type", "model_attributes_type")
_UNKNOWN: Final = "extra_forbidden"
_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("tuple_type", "list_type", "set_type", "frozen_set_type", "iterable_type"), "a list"),
    **dict.fromkeys(("string_type", "string_sub_type"), "text"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "decimal_type", "decimal_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(
        ("datetime_type", "datetime_parsing", "datetime_from_date_parsing", "datetime_object_invalid"),
        "a moment, such as 2026-01-31T12:00:00Z",
    ),
}
"""Type of a validation error -> what the value has to be. The library's own words are about Python."""


def say_fault(found: Mapping[str, Any], *, mapping: str = "an object") -> str:
    """One error of a validation as the end of a sentence that names the field.

    Args:
        found: As pydantic lists it: `type` and `msg`.
        mapping: What a table of names and values is called where the value was written.
    """
    if found["type"] == _UNKNOWN:
        return "there is no such field"
    kind = mapping if found["type"] in _OBJECT else _KINDS.get(found["type"])
    if kind is not None:
        return f"must be {kind}"
    message: str = found["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
