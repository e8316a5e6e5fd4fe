"""Telling JSON objects and lists apart from everything else that a provider may send."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether the value is a JSON object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Whether the value is a JSON array."""
    return isinstance(value, list)
