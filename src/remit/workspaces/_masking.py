"""Takes secrets out of whatever leaves a checkout, also encoded, cut in two, or in pieces of a stream.

A secret is known as it is, percent-encoded, in base64 (at each of its three alignments, also wrapped into
lines), in hexadecimal and as a JSON string. Values shorter than six characters aren't masked by content:
they would blank ordinary words. Who wants to hide a secret from this can (reversed, or a letter at a time):
what a command must not tell must not be given to it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

from remit.primitives import Secret

__all__ = ["MASK", "Masker", "MaskingStream", "no_masker"]

MASK: Final = "[redacted]"
_MASK_BYTES: Final = MASK.encode()
_SHORTEST: Final = 6
_SHORTEST_LINE: Final = 16
_SHORTEST_PART: Final = 4
_WRAPPED: Final = rb"(?:\r?\n[ \t]*)?"
_LINE_ENDS: Final = re.compile(rb"\r?\n[ \t]*")
_CUT: Final = re.compile(
    r"\n\[\.\.\. \d+ bytes left out here; \d+ bytes in all \.\.\.\]\n"  # in a command's output
    r"|\n\[line \d+ is too long to be shown whole: its first \d+ bytes\]\n"  # in a file that is read
    r"|: \.\.\.|\.\.\.(?=\n|\Z)"  # in a line that is found, at its begin and its end
)
"""Where tools say that they left something out; what stands beside may be half a secret."""


class Masker:
    """Masks the secrets of one workspace.

    Args:
        secrets: Their values by name.
    """

    def __init__(self, secrets: Mapping[str, Secret]) -> None:
        self._forms: dict[str, tuple[bytes, ...]] = {}
        """Every way of writing each, longest first."""
        self._wrapped: dict[str, tuple[tuple[bytes, re.Pattern[bytes]], ...]] = {}
        for name, secret in secrets.items():
            plain, wrapped = _forms_of(secret.reveal())
            if plain:
                self._forms[name] = tuple(sorted(plain | wrapped, key=len, reverse=True))
                self._wrapped[name] = tuple((form, _as_wrapped(form)) for form in sorted(wrapped))

    def __bool__(self) -> bool:
        return bool(self._forms)

    def mask_bytes(self, data: bytes) -> bytes:
        """The bytes with every secret replaced."""
        # Looked for one by one: that is many times as fast as one pattern of all, for output of some size.
        for forms in self._forms.values():
            for form in forms:
                if form in data:
                    data = data.replace(form, _MASK_BYTES)
        for _, pattern in self._found_over_lines(data):
            data = pattern.sub(_MASK_BYTES, data)
        return data

    def _found_over_lines(self, data: bytes) -> list[tuple[str, re.Pattern[bytes]]]:
        """What stands in the data with line ends in it."""
        if b"\n" not in data or not self._wrapped:
            return []
        flat = _LINE_ENDS.sub(b"", data)
        return [
            (name, pattern)
            for name, forms in self._wrapped.items()
            for form, pattern in forms
            if form in flat
        ]

    def mask(self, text: str) -> str:
        """The text with every secret replaced, and what a mark of left out bytes has cut one down to."""
        if not self._forms:
            return text
        masked = self.mask_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
        pieces: list[str] = []
        shown = 0
        for cut in _CUT.finditer(masked):
            piece = masked[shown : cut.start()]
            pieces += [self.mask_end(self.mask_begin(piece) if pieces else piece), cut.group()]
            shown = cut.end()
        last = masked[shown:]
        return "".join([*pieces, self.mask_begin(last) if pieces else last])

    def mask_end(self, text: str) -> str:
        """The text without the begin of a secret at its end, where it was cut."""
        data = text.encode("utf-8", "surrogatepass")
        length = self._part(data, end=True)
        return data[: len(data) - length].decode("utf-8", "ignore") + MASK if length else text

    def mask_begin(self, text: str) -> str:
        """The text without the end of a secret at its begin."""
        data = text.encode("utf-8", "surrogatepass")
        length = self._part(data, end=False)
        return MASK + data[length:].decode("utf-8", "ignore") if length else text

    def _part(self, data: bytes, *, end: bool) -> int:
        return max(
            (_overlap(data, form, end=end) for forms in self._forms.values() for form in forms), default=0
        )

    def names_in(self, data: bytes) -> tuple[str, ...]:
        """Which secrets the bytes hold."""
        found = [name for name, forms in self._forms.items() if any(form in data for form in forms)]
        found += [name for name, pattern in self._found_over_lines(data) if pattern.search(data)]
        return tuple(dict.fromkeys(found))

    def held_back(self, data: bytes) -> int:
        """How many bytes at the end may be the begin of a secret that goes on in the next piece."""
        held = 0
        for forms in self._forms.values():
            for form in forms:
                for length in range(min(len(form) - 1, len(data)), held, -1):
                    if data.endswith(form[:length]):
                        held = length
                        break
        return held


class MaskingStream:
    """Masks a stream in pieces: what may be the begin of a secret waits for the next piece."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._pending = b""

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        """What may go out now."""
        masked = self._masker.mask_bytes(self._pending + data)
        held = 0 if final else self._masker.held_back(masked)
        self._pending = masked[len(masked) - held :] if held else b""
        return masked[: len(masked) - held] if held else masked


def no_masker() -> Masker:
    """One that knows no secret."""
    return Masker({})


def _overlap(data: bytes, form: bytes, *, end: bool) -> int:
    for length in range(min(len(form) - 1, len(data)), _SHORTEST_PART - 1, -1):
        if data.endswith(form[:length]) if end else data.startswith(form[-length:]):
            return length
    return 0


def _forms_of(value: str) -> tuple[set[bytes], set[bytes]]:
    """Every way of writing a value; and those that programs wrap into lines."""
    data = value.encode("utf-8", "surrogateescape")
    if len(data) < _SHORTEST:
        return set(), set()
    plain = {data, data.hex().encode(), data.hex().upper().encode(), *_quoted(value)}
    lines = [line for line in value.splitlines() if len(line) >= _SHORTEST_LINE]
    plain |= {line.encode("utf-8", "surrogateescape") for line in lines}
    return plain, set(_in_base64(data))


def _quoted(value: str) -> Iterable[bytes]:
    text = value.encode("utf-8", "surrogateescape")
    for form in (quote(text, safe=""), quote(text), quote_plus(text)):
        yield form.encode()
        yield re.sub("%[0-9A-F]{2}", lambda match: match.group().lower(), form).encode()
    for form in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield form.encode("utf-8", "surrogatepass")


def _in_base64(data: bytes) -> Iterable[bytes]:
    """The characters that hang on the value alone, wherever it stands in what was encoded."""
    for before in range(3):
        padded = b"\0" * before + data
        whole = len(padded) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            inner = encode(padded)[-(-before * 8 // 6) : whole]
            if len(inner) >= _SHORTEST:
                yield inner


def _as_wrapped(form: bytes) -> re.Pattern[bytes]:
    return re.compile(_WRAPPED.join(re.escape(form[index : index + 1]) for index in range(len(form))))
