"""One rule for text that storage, JSON and event frames can all hold."""

from __future__ import annotations

import re
from typing import Any, cast

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# What `str.splitlines` and careless clients take for a line end, though JSON and SSE don't.
_SEPARATORS = re.compile("[\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")

# Marks that turn text around, or that nobody sees: what is read would not be what is there. What joins
# letters or emoji, and blanks of other scripts, are none.
_HIDDEN = re.compile(
    "[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


def clean_text(text: str) -> tuple[str, int]:
    """The text with NUL and lone surrogates replaced by U+FFFD, and how many there were."""
    return _UNSTORABLE.subn("\ufffd", text)


def show_hidden(text: str) -> str:
    """Text for people, with U+FFFD where something is that they wouldn't see, or that moves letters."""
    return text if text.isascii() else _HIDDEN.sub("\ufffd", text)


def clean_json(value: Any) -> tuple[Any, int]:
    """JSON values with `clean_text` done to every string in them, keys too, and how many there were."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return _clean_dict(cast("dict[str, Any]", value))
    if isinstance(value, list | tuple):
        pairs = [clean_json(item) for item in cast("list[Any]", value)]
        return [item for item, _ in pairs], sum(count for _, count in pairs)
    return value, 0


def _clean_dict(value: dict[str, Any]) -> tuple[dict[str, Any], int]:
    cleaned: dict[str, Any] = {}
    replaced = 0
    for key, item in value.items():
        clean_key, in_key = clean_text(key)
        cleaned[clean_key], in_item = clean_json(item)
        replaced += in_key + in_item
    return cleaned, replaced


def escape_separators(json_text: str) -> str:
    r"""JSON text with its bare Unicode line separators written as `\uXXXX` (the same JSON)."""
    return _SEPARATORS.sub(lambda match: f"\\u{ord(match.group()):04x}", json_text)
