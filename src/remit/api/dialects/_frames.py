"""Server-sent events as the compatible doors write them: one line of data, whatever is in it (R70)."""

from __future__ import annotations

from typing import Any, Final

from remit.primitives import dump_json

COMMENT: Final = b": keep-alive\n\n"
"""A sign of life that every parser passes over."""


def data_frame(body: Any) -> bytes:
    """A frame without a name."""
    return f"data: {dump_json(body)}\n\n".encode()


def event_frame(name: str, body: Any) -> bytes:
    """A frame with one."""
    return f"event: {name}\ndata: {dump_json(body)}\n\n".encode()
