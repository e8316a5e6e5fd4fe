"""One rule for text that storage, JSON and event frames can all hold."""

from __future__ import annotations

import re

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# What `str.splitlines` and careless clients take for a line end, though JSON and SSE don't.
_SEPARATORS = re.compile("[\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")


def clean_text(text: str) -> tuple[str, int]:
    """The text with NUL and lone surrogates replaced by U+FFFD, and how many there were."""
    return _UNSTORABLE.subn("\ufffd", text)


def escape_separators(json_text: str) -> str:
    r"""JSON text with its bare Unicode line separators written as `\uXXXX` (the same JSON)."""
    return _SEPARATORS.sub(lambda match: f"\\u{ord(match.group()):04x}", json_text)
