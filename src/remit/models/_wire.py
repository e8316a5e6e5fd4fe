"""Telling JSON objects and lists apart from everything else that a provider may send."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether the value is a JSON object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Whether the value is a JSON array."""
    return isinstance(value, list)


def finite(value: Any) -> Any:
    """The value without numbers that JSON doesn't have."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if is_object(value):
        return {key: finite(item) for key, item in value.items()}
    if is_array(value):
        return [finite(item) for item in value]
    return value
