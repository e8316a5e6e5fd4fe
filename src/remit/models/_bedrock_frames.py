"""The binary framing of a Bedrock reply: length, headers, payload, and a checksum over each.

Source: the page on the event stream encoding of AWS, 2026-11.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

_PRELUDE = struct.Struct(">III")
_LONGEST_BYTES = 16 * 1024 * 1024
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Length of a header's value by its type, where that is fixed."""
_SIZED = (6, 7)
_TEXT = 7


class FrameError(ValueError):
    """What came isn't a frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message."""

    headers: dict[str, str]
    """Those that are text."""
    payload: bytes


class FrameReader:
    """Cuts a stream of bytes into frames, however the bytes come."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole now.

        Raises:
            FrameError: A length or a checksum is wrong.
        """
        self._buffer += data
        frames: list[Frame] = []
        while len(self._buffer) >= _PRELUDE.size:
            total, head, checksum = _PRELUDE.unpack_from(self._buffer)
            if zlib.crc32(self._buffer[:8]) != checksum:
                raise FrameError("a frame whose prelude doesn't match its checksum")
            if not _PRELUDE.size + head + 4 <= total <= _LONGEST_BYTES:
                raise FrameError(f"a frame of {total} bytes")
            if len(self._buffer) < total:
                break
            frames.append(_read(bytes(self._buffer[:total]), head))
            del self._buffer[:total]
        return frames

    @property
    def has_rest(self) -> bool:
        """Whether something came that isn't a frame yet."""
        return bool(self._buffer)


def _read(frame: bytes, head: int) -> Frame:
    if zlib.crc32(frame[:-4]) != struct.unpack(">I", frame[-4:])[0]:
        raise FrameError("a frame that doesn't match its checksum")
    start = _PRELUDE.size
    return Frame(_headers(frame[start : start + head]), frame[start + head : -4])


def _headers(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            end = at + 1 + data[at]
            name, kind = data[at + 1 : end].decode("utf-8", "replace"), data[end]
            at = end + 1
            if kind in _SIZED:
                size = struct.unpack_from(">H", data, at)[0]
                at += 2
            else:
                size = _FIXED[kind]
            if kind == _TEXT:
                found[name] = data[at : at + size].decode("utf-8", "replace")
            at += size
    except (IndexError, KeyError, struct.error):
        raise FrameError("a frame whose headers can't be read") from None
    return found
