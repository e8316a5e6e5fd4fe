"""Reading of bodies that are only partly ours to judge: what isn't known is passed over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from remit.errors import InvalidRequest

Fields: TypeAlias = Mapping[str, Any]


def object_at(value: object, param: str) -> Fields:
    """The value, if it is an object.

    Raises:
        InvalidRequest: It isn't; as of the other readers.
    """
    if not isinstance(value, dict):
        raise InvalidRequest(f"`{param}` must be an object", param=param)
    return cast("Fields", value)


def list_at(value: object, param: str) -> list[Any]:
    """The value, if it is a list."""
    if not isinstance(value, list):
        raise InvalidRequest(f"`{param}` must be a list", param=param)
    return cast("list[Any]", value)


def text_at(value: object, param: str) -> str:
    """The value, if it is text."""
    if not isinstance(value, str):
        raise InvalidRequest(f"`{param}` must be text", param=param)
    return value


def flag_of(body: Fields, name: str, *, default: bool = False) -> bool:
    """A field that is true or false; null is as if it weren't there."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidRequest(f"`{name}` must be true or false", param=name)
    return value


def text_of(body: Fields, name: str) -> str | None:
    """A field that is text, or nothing."""
    value = body.get(name)
    return None if value is None else text_at(value, name)


def object_of(body: Fields, name: str) -> Fields:
    """A field that is an object; empty where there is none."""
    value = body.get(name)
    return {} if value is None else object_at(value, name)


def list_of(body: Fields, name: str) -> list[Any]:
    """A field that is a list; empty where there is none."""
    value = body.get(name)
    return [] if value is None else list_at(value, name)


def refuse_fields(body: Fields, meanings: Mapping[str, str]) -> None:
    """Refuse fields that would change what is answered, and that no run honours.

    Args:
        body: The request.
        meanings: Field -> what to do instead.
    """
    for name, instead in meanings.items():
        if body.get(name) not in (None, False, [], {}):
            raise InvalidRequest(f"`{name}` isn't honoured here: {instead}", param=name)
