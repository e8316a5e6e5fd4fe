"""JSON without the doors that Python's own parser leaves open.

Untrusted JSON is refused when it repeats a key, holds NaN or Infinity (also as an overflowing
number), nests deeper than `max_depth`, or has integers of more digits than can be handled; it then
costs a `StrictJsonError` with a short reason, never a traceback.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn, TypeAlias

from remit.primitives._text import escape_separators

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

_MAX_DIGITS = 4300
# Made once: `json.dumps` would make one for every call. What is written comes out of models, and holds itself
# nowhere: looking for that costs a seventh of the time, and it would end as a RecursionError all the same.
_PLAIN = json.JSONEncoder(check_circular=False, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_SORTED = json.JSONEncoder(
    check_circular=False, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
)


class StrictJsonError(ValueError):
    """The text isn't JSON that we take; the message says why, in words for a person or a model."""


def load_json(text: str | bytes, *, max_depth: int = 64) -> Any:
    """Parse one JSON value, strictly.

    Args:
        text: UTF-8 bytes, or text. A byte order mark is tolerated, since some senders put one.
        max_depth: How deep lists and objects may nest.

    Raises:
        StrictJsonError: Not one JSON value, or one that we refuse (see above).
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise StrictJsonError(f"not UTF-8 at byte {error.start}") from None
    text = text.removeprefix("\ufeff")
    _check_depth(text, max_depth)
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except StrictJsonError:
        raise
    except json.JSONDecodeError as error:
        raise StrictJsonError(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise StrictJsonError("nested too deeply") from None


def dump_json(value: Any, *, sort_keys: bool = False) -> str:
    """One line of JSON: compact, UTF-8 as it is, separators of R70 escaped, no NaN.

    Raises:
        ValueError: The value holds a number that isn't finite.
    """
    text = (_SORTED if sort_keys else _PLAIN).encode(value)
    return text if text.isascii() else escape_separators(text)  # those of ASCII are escaped in any JSON


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise StrictJsonError(f"the key {key[:80]!r} stands twice")
            seen.add(key)
    return value


def _refuse_constant(word: str) -> NoReturn:
    raise StrictJsonError(f"{word} isn't JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise StrictJsonError(f"the number {digits[:40]} is out of range")
    return value


def _bounded(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise StrictJsonError(f"a number of {len(digits)} digits")
    return int(digits)


def _check_depth(text: str, max_depth: int) -> None:
    """Count brackets outside strings before the parser recurses into them."""
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    inside = False
    escaped = False
    for character in text:
        if inside:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                inside = False
        elif character == '"':
            inside = True
        elif character in "[{":
            depth += 1
            if depth > max_depth:
                raise StrictJsonError(f"nested deeper than {max_depth}")
        elif character in "]}":
            depth -= 1
