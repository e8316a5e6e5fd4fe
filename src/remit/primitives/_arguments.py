"""What a program hands over, looked at where it does: a wrong kind is said at the call, not later."""

from __future__ import annotations

from typing import Any, Final

from remit.errors import MisuseError

_MOST: Final = 2**63 - 1
"""The largest whole number that every store and every door can hold."""


def check_flag(name: str, value: object) -> None:
    """A yes or no; what merely counts as one isn't: `"no"` would be a yes.

    Raises:
        MisuseError: It is neither True nor False.
    """
    if not isinstance(value, bool):
        raise MisuseError(f"`{name}` is True or False", param=name)


def check_length(name: str, value: object) -> None:
    """A length of time, in whatever unit its name says.

    Raises:
        MisuseError: It isn't a number from 0 up.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:  # NaN is no length
        raise MisuseError(f"`{name}` is a number from 0 up", param=name)


def check_count(name: str, value: object, *, least: int = 0) -> None:
    """A whole number.

    Raises:
        MisuseError: It isn't one, or it is out of bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise MisuseError(f"`{name}` is a whole number from {least} up", param=name)


def check_text(name: str, value: object, *, most_chars: int | None = None) -> None:
    """A text that says something.

    Raises:
        MisuseError: It isn't a text, it is blank, or it is too long.
    """
    if not isinstance(value, str) or not value.strip():
        raise MisuseError(f"`{name}` is a text", param=name)
    if most_chars is not None and len(value) > most_chars:
        raise MisuseError(f"`{name}` has at most {most_chars} characters", param=name)


def check_has(name: str, value: Any, *methods: str) -> None:
    """A thing of the caller's own making that is called later, such as a clock.

    Raises:
        MisuseError: It lacks one of these methods, or it is a class and not a thing of it.
    """
    lacks = [method for method in methods if not callable(getattr(value, method, None))]
    if lacks or isinstance(value, type):
        raise MisuseError(f"`{name}` has the methods {', '.join(methods)}", param=name)
