"""Secrets that don't print, and a mask for what does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

_MASK = "[redacted]"
_SHORTEST = 6


class Secret:
    """A value that shows as `[redacted]` wherever it is printed, formatted or logged.

    It refuses to be pickled: a secret goes nowhere that its owner didn't name.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself, for the one place that sends it."""
        return self._value

    def __repr__(self) -> str:
        return _MASK

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return _MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(("Secret", self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret can't be pickled")


class Redactor:
    """Masks known secret values in text on its way out.

    Values shorter than six characters aren't masked by content: they would blank ordinary words.
    """

    def __init__(self, secrets: Iterable[Secret | str] = ()) -> None:
        self._values: set[str] = set()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: Secret | str) -> None:
        """From now on mask this value too."""
        value = secret.reveal() if isinstance(secret, Secret) else secret
        if len(value) >= _SHORTEST:
            self._values.add(value)

    def mask(self, text: str) -> str:
        """The text with every known value replaced, longest first."""
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, _MASK)
        return text
