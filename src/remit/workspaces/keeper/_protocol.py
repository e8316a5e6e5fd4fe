"""Frames between a node and a keeper: a bounded length, the request's number, JSON.

The number stands in the header, outside the JSON, so that a frame that is too large still names the one call
that must fail.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The largest body; a larger one is an error of that call alone."""

HEADER: Final = struct.Struct(">IQ")
"""Body length in bytes, request number."""


class FrameTooLarge(ValueError):
    """The message doesn't fit into a frame."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"the message has {size_bytes} bytes; at most {MAX_FRAME_BYTES} fit")
        self.size_bytes = size_bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """One message that came in; `body` is None when it was larger than the bound and was dropped."""

    number: int
    body: dict[str, Any] | None


def encode(number: int, body: dict[str, Any]) -> bytes:
    """One frame as bytes.

    Raises:
        FrameTooLarge: the body exceeds `MAX_FRAME_BYTES`.
    """
    # File names may hold bytes that aren't UTF-8, as lone surrogates: "surrogatepass" carries them.
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    if len(data) > MAX_FRAME_BYTES:
        raise FrameTooLarge(len(data))
    return HEADER.pack(len(data), number) + data


class Decoder:
    """Puts frames together from bytes cut anywhere; skips the body of one that is too large."""

    __slots__ = ("_buffer", "_skip_bytes")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skip_bytes = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Takes the next bytes and yields the frames that are now whole."""
        self._buffer += data
        while True:
            if self._skip_bytes:
                skipped = min(self._skip_bytes, len(self._buffer))
                del self._buffer[:skipped]
                self._skip_bytes -= skipped
            if self._skip_bytes or len(self._buffer) < HEADER.size:
                return
            length, number = HEADER.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                del self._buffer[: HEADER.size]
                self._skip_bytes = length
                yield Frame(number, None)
                continue
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[HEADER.size : end])
            del self._buffer[:end]
            yield Frame(number, json.loads(body.decode("utf-8", "surrogatepass")))
