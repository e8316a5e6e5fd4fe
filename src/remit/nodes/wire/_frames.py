"""Records of any length over a stream of bytes, cut into frames so that a large one holds up no other.

    frame   = length (4 bytes) · number (8 bytes) · last (1 byte, 0 or 1) · payload (`length` bytes)
    record  = the payloads of one number's frames, up to the one that is the last

Frames of different records may alternate; a record's own keep their order. The number is the question's, in
both directions, so that of a record too large to be taken it is still known whose it was. Pure: bytes in,
records out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from remit.errors import NodeError

__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_RECORD_BYTES",
    "BrokenFrames",
    "FrameDecoder",
    "Oversized",
    "Record",
    "frames_of",
]

MAX_FRAME_BYTES: Final = 256 * 1024
"""Of one frame's payload: what a small record may have to wait for."""
MAX_RECORD_BYTES: Final = 64 * 1024 * 1024
"""Of one record. A larger one is refused by itself; the link lives on."""
_MAX_OPEN: Final = 4_096
"""Records that may be under way at once."""
_HEAD: Final = struct.Struct("!IQB")


class BrokenFrames(NodeError):
    """What came can't be frames: nothing after it can be read."""


@dataclass(frozen=True, slots=True)
class Record:
    """One whole record."""

    number: int
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Oversized:
    """A record that was larger than is taken. Its bytes are gone."""

    number: int
    size_bytes: int


@dataclass(slots=True)
class _Open:
    """A record of which not all frames are there."""

    payload: bytearray = field(default_factory=bytearray)
    size_bytes: int = 0


def frames_of(number: int, payload: bytes) -> Iterator[bytes]:
    """A record as frames; an empty one is one frame."""
    view = memoryview(payload)
    for start in range(0, max(1, len(view)), MAX_FRAME_BYTES):
        part = view[start : start + MAX_FRAME_BYTES]
        is_last = start + MAX_FRAME_BYTES >= len(view)
        yield b"".join((_HEAD.pack(len(part), number, is_last), part))


class FrameDecoder:
    """Puts records together from bytes as they come.

    Args:
        max_record_bytes: Of one record; of a larger one nothing is kept.
    """

    def __init__(self, *, max_record_bytes: int = MAX_RECORD_BYTES) -> None:
        self._max_record_bytes = max_record_bytes
        self._buffer = bytearray()
        self._open: dict[int, _Open] = {}

    @property
    def is_clean(self) -> bool:
        """Whether an end here cuts nothing off."""
        return not self._buffer and not self._open

    def feed(self, data: bytes) -> list[Record | Oversized]:
        """What has become whole with these bytes, in the order of last frames.

        Raises:
            BrokenFrames: They can't be frames; the decoder is of no use any more.
        """
        self._buffer += data
        found: list[Record | Oversized] = []
        at = 0
        while len(self._buffer) - at >= _HEAD.size:
            length, number, last = _HEAD.unpack_from(self._buffer, at)
            if length > MAX_FRAME_BYTES or last > 1:
                raise BrokenFrames("the other side of the link doesn't speak in frames", reason="lost")
            end = at + _HEAD.size + length
            if len(self._buffer) < end:
                break
            with memoryview(self._buffer) as view:
                whole = self._take(number, view[at + _HEAD.size : end], is_last=bool(last))
            if whole is not None:
                found.append(whole)
            at = end
        del self._buffer[:at]
        return found

    def _take(self, number: int, part: memoryview, *, is_last: bool) -> Record | Oversized | None:
        record = self._open.get(number)
        if record is None:
            if is_last and len(part) <= self._max_record_bytes:
                return Record(number, bytes(part))
            if len(self._open) >= _MAX_OPEN:
                raise BrokenFrames("too many records are under way at once", reason="lost")
            record = self._open[number] = _Open()
        record.size_bytes += len(part)
        if record.size_bytes <= self._max_record_bytes:
            record.payload += part
        else:
            record.payload.clear()
        if not is_last:
            return None
        del self._open[number]
        if record.size_bytes > self._max_record_bytes:
            return Oversized(number, record.size_bytes)
        return Record(number, bytes(record.payload))
