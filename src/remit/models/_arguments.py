"""Past arguments of tool calls, as they may be sent again."""

from __future__ import annotations

from functools import lru_cache

from remit.primitives import StrictJsonError, dump_json, load_json

_PREVIEW_CHARS = 2_000


def wire_arguments(text: str) -> str:
    """A past call's argument text as it may be sent: itself when it is a JSON object, byte for byte.

    Blank text becomes `{}`. Anything else was refused when it came; servers that parse the history would
    refuse the whole conversation for it, so it goes out as an object that shows its beginning.
    """
    if not text.strip():
        return "{}"
    return text if _is_json_object(text) else _wrapped(text)


@lru_cache(maxsize=512)
def _is_json_object(text: str) -> bool:
    try:
        return isinstance(load_json(text), dict)
    except StrictJsonError:
        return False


def _wrapped(text: str) -> str:
    return dump_json({"invalid_arguments": text[:_PREVIEW_CHARS], "characters": len(text)})
