"""Reads the arguments of an operation; what comes over the link is checked again here."""

from __future__ import annotations

from collections.abc import Mapping

from remit.workspaces.keeper._refusals import OperationRefused

Arguments = Mapping[str, object]


def text_argument(arguments: Arguments, key: str, default: str | None = None) -> str:
    """A text; raises OperationRefused where it is missing without a default, or isn't one."""
    value = arguments.get(key)
    if value is None:
        value = default
    if not isinstance(value, str):
        raise OperationRefused("invalid_arguments", f"`{key}` must be text")
    return value


def number_argument(arguments: Arguments, key: str, default: int, *, minimum: int = 0) -> int:
    """A whole number of at least `minimum`."""
    value = arguments.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise OperationRefused("invalid_arguments", f"`{key}` must be a whole number of at least {minimum}")
    return value


def flag_argument(arguments: Arguments, key: str) -> bool:
    """True or false; missing is false."""
    value = arguments.get(key)
    if value is not None and not isinstance(value, bool):
        raise OperationRefused("invalid_arguments", f"`{key}` must be true or false")
    return bool(value)
