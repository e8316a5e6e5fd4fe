"""Server-sent events out of bytes, the way the standard says and no other.

Lines end at CR, LF or CRLF and nowhere else (R70: U+2028, U+0085 and their like are text), characters
may be split over reads, bytes that aren't UTF-8 become U+FFFD.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass


class EventTooLongError(ValueError):
    """One event is longer than the stated bound."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event."""

    name: str | None
    data: str
    whole: bool = True
    """False: the stream ended before the blank line that closes it."""


class SseReader:
    """Cuts a stream of bytes into events, however the bytes come."""

    def __init__(self, *, max_event_chars: int = 64 * 1024 * 1024) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._max_event_chars = max_event_chars
        self._line: list[str] = []
        self._line_chars = 0
        self._data: list[str] = []
        self._data_chars = 0
        self._name: str | None = None
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that are whole now.

        Raises:
            EventTooLongError: One is longer than the bound.
        """
        return self._take(self._decoder.decode(data))

    def finish(self) -> list[SseEvent]:
        """What is left at the end of the stream: perhaps one event that nobody closed."""
        events = self._take(self._decoder.decode(b"", final=True))
        if self._line:
            self._end_line("", events)
        if self._data:
            events.append(self._close(whole=False))
        return events

    @property
    def has_rest(self) -> bool:
        """Whether something came that isn't an event yet."""
        return bool(self._line or self._data)

    def _take(self, text: str) -> list[SseEvent]:
        events: list[SseEvent] = []
        if not text:
            return events
        if self._at_start:
            text, self._at_start = text.removeprefix("\ufeff"), False
        if self._after_cr and text.startswith("\n"):
            text = text[1:]
        if text:
            self._after_cr = text.endswith("\r")
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        *ended, rest = text.split("\n")
        for line in ended:
            self._end_line(line, events)
        if rest:
            self._line.append(rest)
            self._line_chars += len(rest)
            self._check()
        return events

    def _end_line(self, end: str, events: list[SseEvent]) -> None:
        if self._line:
            self._line.append(end)
            end = "".join(self._line)
            self._line.clear()
            self._line_chars = 0
        if not end:
            if self._data:
                events.append(self._close(whole=True))
            self._name = None
            return
        if end.startswith(":"):
            return
        name, _, value = end.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._data_chars += len(value)
            self._check()
        elif name == "event":
            self._name = value

    def _close(self, *, whole: bool) -> SseEvent:
        event = SseEvent(self._name, "\n".join(self._data), whole)
        self._data.clear()
        self._data_chars = 0
        self._name = None
        return event

    def _check(self) -> None:
        if self._line_chars + self._data_chars > self._max_event_chars:
            raise EventTooLongError(f"an event of more than {self._max_event_chars} characters")
