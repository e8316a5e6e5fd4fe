"""The border that text crosses on its way in: one rule, NUL and lone surrogates become U+FFFD (R44)."""

from __future__ import annotations

import json
import re
from typing import Any

from remit.primitives import clean_json, clean_text, dump_json

_SURROGATE = re.compile("[\ud800-\udfff]")
_NUL = "\\u0000"
# NUL is always written as an escape in JSON; a backslash that happens to stand before "u0000" is looked at
# in vain.


def dump_clean(value: Any) -> tuple[str, Any, int]:
    """JSON text that can be stored, the value that it stands for, and how many characters were replaced.

    The value is the one given, unless something had to be replaced.

    Raises:
        ValueError: A number in it isn't finite.
    """
    text = dump_json(value)
    if _NUL not in text and (text.isascii() or _SURROGATE.search(text) is None):
        return text, value, 0
    cleaned, replaced = clean_json(value)
    return dump_json(cleaned), cleaned, replaced


def clean_name(name: str | None) -> str | None:
    """A name by the same rule: work ids may come from a model's tool call ids."""
    return name if name is None or (name.isascii() and "\0" not in name) else clean_text(name)[0]


def load_own(text: str) -> Any:
    """JSON that this store wrote. It was strict when it was written, so reading it back needn't be."""
    return json.loads(text)
