"""Bounded keeping of what a command puts out: head and tail, as raw bytes and as readable text.

However much comes and however it is cut into pieces, memory stays below a small multiple of the bound, time
is linear in the bytes, and the result depends only on the bytes and their order.
"""

import copy
from dataclasses import dataclass
from typing import Final

from remit.workspaces.keeper._terminal import EscapeFilter, LineScreen

_BLOCK_BYTES: Final = 65_536
_MARKER_ROOM_BYTES: Final = 256


class HeadTail:
    """Keeps the first and the last bytes of a stream, together at most `max_bytes`."""

    __slots__ = ("_head", "_head_bytes", "_tail", "_tail_bytes", "total_bytes")

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 1:
            raise ValueError("max_bytes must be at least 1")
        self._head_bytes = max_bytes // 2
        self._tail_bytes = max_bytes - self._head_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Takes the next bytes."""
        self.total_bytes += len(data)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= self._tail_bytes:
            self._tail[:] = data[-self._tail_bytes :]
            return
        self._tail += data
        # Trimming only at twice the size keeps single-byte feeding linear.
        if len(self._tail) > 2 * self._tail_bytes:
            del self._tail[: -self._tail_bytes]

    @property
    def truncated(self) -> bool:
        """Whether bytes in the middle were dropped."""
        return self.total_bytes > self._head_bytes + self._tail_bytes

    def parts(self) -> tuple[bytes, bytes]:
        """Head and tail; they touch unless `truncated`."""
        return bytes(self._head), bytes(self._tail[-self._tail_bytes :])

    def raw(self) -> bytes:
        """Head and tail joined, without a mark between them."""
        return b"".join(self.parts())


class BoundedOutput:
    """The output of one command: raw head and tail, and the text that a reader may see.

    The text is decoded with replacement, holds no escape sequences, and shows each redrawn line in its last
    state. It is bounded after this clean-up, so that a long progress bar doesn't push out what was said
    around it.
    """

    __slots__ = ("_filters", "_pending", "_raw", "_screen", "_source", "_text")

    def __init__(self, max_bytes: int) -> None:
        self._raw = HeadTail(max_bytes)
        self._text = HeadTail(max_bytes)
        self._screen = LineScreen(self._commit)
        self._filters: dict[int, EscapeFilter] = {}
        self._pending = bytearray()
        self._source = 0

    def feed(self, data: bytes | bytearray | memoryview, *, source: int = 0) -> None:
        """Takes the next bytes in arrival order.

        Args:
            data: any number of bytes; characters and sequences may be cut anywhere.
            source: which stream they came from; a character cut by an interleaved write of another stream is
                still put together.
        """
        self._raw.feed(data)
        if source != self._source:
            self._process()
            self._source = source
        view = memoryview(data)
        while len(view):
            # Blocks of one size make small feeds cheap.
            taken = _BLOCK_BYTES - len(self._pending)
            self._pending += view[:taken]
            view = view[taken:]
            if len(self._pending) == _BLOCK_BYTES:
                self._process()

    @property
    def total_bytes(self) -> int:
        """How many bytes came in all."""
        return self._raw.total_bytes

    @property
    def raw_truncated(self) -> bool:
        """Whether `raw()` lacks bytes in the middle."""
        return self._raw.truncated

    @property
    def truncated(self) -> bool:
        """Whether `text()` lacks something in the middle."""
        return self._finished()._text.truncated

    def raw(self) -> bytes:
        """The first and last bytes, unchanged."""
        return self._raw.raw()

    def text(self) -> str:
        """What a reader may see, with one mark where something was left out. More may be fed afterwards."""
        kept = self._finished()._text
        head, tail = kept.parts()
        if not kept.truncated:
            return (head + tail).decode("utf-8", "replace")
        return _join(head, tail, text_bytes=kept.total_bytes, total_bytes=self.total_bytes)

    def _process(self) -> None:
        data = bytes(self._pending)
        self._pending.clear()
        if data:
            self._screen.feed(self._filters.setdefault(self._source, EscapeFilter()).feed(data))

    def _commit(self, text: str) -> None:
        self._text.feed(text.encode("utf-8", "replace"))

    def _finished(self) -> "BoundedOutput":
        """A copy in which everything held back is part of the text."""
        final = copy.deepcopy(self)
        final._process()
        for held in final._filters.values():
            final._screen.feed(held.feed(b"", final=True))
        final._commit(final._screen.pending())
        return final


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedText:
    """A text within a bound."""

    text: str
    truncated: bool
    head_bytes: int
    """How much of the text's begin is shown: where to read on."""


def clip_text(text: str, *, max_bytes: int, total_bytes: int | None = None) -> ClippedText:
    """Bounds a text to `max_bytes` of UTF-8, head and tail, with one mark where something was left out.

    Args:
        text: what to bound. A mark that it already has in its middle falls into the part left out.
        max_bytes: upper bound of the result, the mark included (one below 512 bounds the text alone).
        total_bytes: the true size to name; None for that of `text`.
    """
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= max_bytes:
        return ClippedText(text=text, truncated=False, head_bytes=len(encoded))
    keep = max_bytes - _MARKER_ROOM_BYTES if max_bytes > 2 * _MARKER_ROOM_BYTES else max_bytes // 2
    half = max(1, keep // 2)
    total = len(encoded) if total_bytes is None else total_bytes
    joined = _join(encoded[:half], encoded[-half:], text_bytes=len(encoded), total_bytes=total)
    head_bytes = len(encoded[:half].decode("utf-8", "ignore").encode())
    return ClippedText(text=joined, truncated=True, head_bytes=head_bytes)


def _join(head: bytes, tail: bytes, *, text_bytes: int, total_bytes: int) -> str:
    # Both halves come from valid UTF-8, so only a character cut at the border is dropped.
    start, end = head.decode("utf-8", "ignore"), tail.decode("utf-8", "ignore")
    left_out = text_bytes - len(start.encode()) - len(end.encode())
    return f"{start}\n[... {left_out} bytes left out here; {total_bytes} bytes in all ...]\n{end}"
