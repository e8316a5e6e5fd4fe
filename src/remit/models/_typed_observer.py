"""Reads streams whose records name their own type: Anthropic Messages, OpenAI Responses.

As in `_chat_observer`, the bill and the verdict hang on what is seen here, and what goes on to an SDK is
one plain record per event.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, Generic, NoReturn, TypeVar

from remit.models._reading import ChunkShapeError, WireReading
from remit.models._sse import EventTooLongError, SseEvent, SseReader
from remit.models._wire import finite, is_object
from remit.primitives import clean_text, dump_json, escape_separators

_DONE = "[DONE]"
ReadingT = TypeVar("ReadingT", bound=WireReading)


class TypedObserver(ABC, Generic[ReadingT]):
    """Takes the bytes of one reply and gives on what an SDK is to see; see `WireObserver`."""

    def __init__(self, reading: ReadingT) -> None:
        self._reading = reading
        self._reader = SseReader()

    @property
    def reading(self) -> ReadingT:
        """What was read so far."""
        return self._reading

    def feed(self, data: bytes) -> bytes:
        """Bytes of a streamed reply; see `WireObserver`."""
        try:
            events = self._reader.feed(data)
        except EventTooLongError as error:
            self._fail(str(error))
        shown = self._pass_on(events)
        if self._reading.done and self._reader.has_rest:
            self._reading.flag("odd_tail")
        return shown

    def feed_whole(self, body: bytes) -> bytes:
        """A body that isn't a stream: an error object at best."""
        start = " ".join(body[:200].decode("utf-8", errors="replace").split())
        self._reading.fault_is_final = True
        try:
            value = json.loads(body.decode("utf-8", errors="replace").lstrip("\ufeff"))
        except (ValueError, RecursionError):
            self._fail(f"the reply is neither an event stream nor JSON, but begins {start!r}")
        if not is_object(value) or not value.get("error"):
            self._fail(f"the reply isn't streamed, but begins {start!r}")
        self._reading.error = value["error"]
        raise ChunkShapeError("an error in place of a stream")

    def finish(self) -> bytes:
        """The end of the stream."""
        return self._pass_on(self._reader.finish())

    def note_tail(self, data: bytes) -> None:
        """Bytes after the end mark."""
        if data.strip() and data.strip() != _DONE.encode():
            self._reading.flag("odd_tail")

    @abstractmethod
    def _read(self, kind: str, value: dict[str, Any]) -> bool | None:
        """Read one record.

        Returns:
            Whether the record was changed and has to be written anew; None: an SDK isn't to see it.

        Raises:
            ChunkShapeError: It isn't what the dialect allows.
        """

    def _fail(self, why: str) -> NoReturn:
        self._reading.fault = why
        raise ChunkShapeError(why)

    def _pass_on(self, events: list[SseEvent]) -> bytes:
        out: list[str] = []
        for event in events:
            if self._reading.done:
                self.note_tail(event.data.encode(errors="replace"))
            else:
                out += self._pass_record(event)
        return "".join(out).encode("utf-8", errors="replace")

    def _pass_record(self, event: SseEvent) -> list[str]:
        text = escape_separators(event.data)
        try:
            value = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            if not event.whole:
                self._reading.unfinished_record = True
                return []
            self._fail("a record that isn't JSON")
        if not event.whole:
            self._reading.flag("odd_tail")
        if not is_object(value):
            self._fail("a record that is no object")
        kind = self._kind_of(value, event.name)
        if kind is None:
            self._fail("a record without a type")
        try:
            changed = self._read(kind, value)
        except ChunkShapeError as error:
            self._fail(str(error))
        if changed is None:
            return []
        if changed or _is_odd(text):
            text = escape_separators(clean_text(dump_json(finite(value)))[0])
        return [self._framed(kind, text)]

    def _kind_of(self, value: dict[str, Any], event_name: str | None) -> str | None:
        """The type of a record; None where it has none."""
        kind = value.get("type") or event_name
        return kind if isinstance(kind, str) else None

    def _framed(self, kind: str, text: str) -> str:
        """A record as an event that the SDK understands."""
        return f"event: {_plain_name(kind)}\ndata: {text}\n\n"


def _plain_name(kind: str) -> str:
    return kind if kind.isascii() and kind.isprintable() else "unknown"


def _is_odd(text: str) -> bool:
    """Whether a record may not go on as it stands: control characters, odd numbers, surrogates."""
    return not text.isprintable() or any(mark in text for mark in ("\\ud", "\\uD", "NaN", "Infinity"))


def text_in(value: Any, what: str) -> str:
    """The text at this place; the empty one for null.

    Raises:
        ChunkShapeError: It is something else.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ChunkShapeError(f"{what} that is no text")
    return value


def object_in(value: Any, what: str) -> dict[str, Any]:
    """The object at this place.

    Raises:
        ChunkShapeError: It is something else.
    """
    if not is_object(value):
        raise ChunkShapeError(f"{what} that is no object")
    return value
