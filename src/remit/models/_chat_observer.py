"""Reads a Chat Completions reply as it stands on the wire.

The bill and the verdict (whole or cut) hang on what is seen here, not on what a library makes of it.
On the way through, the reply is put into a form that any SSE client reads the same: one event a line,
separators escaped, tool calls numbered, broken usage left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, NoReturn

from remit.models._chat_calls import CallSlots
from remit.models._chat_usage import read_chat_usage
from remit.models._gateway import add_details
from remit.models._reading import ChunkShapeError, WireReading
from remit.models._sse import EventTooLongError, SseEvent, SseReader
from remit.models._wire import finite, is_array, is_object
from remit.primitives import clean_text, dump_json, escape_separators

_DONE = "[DONE]"


@dataclass(slots=True, kw_only=True)
class ChatReading(WireReading):
    """What was read; `done` is `[DONE]`."""

    has_choice: bool = False
    refusal: str = ""
    extra_content: Any = None
    """Opaque fields beside the text."""
    reasoning_details: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """A gateway's own form of reasoning: text, summaries, seals, each with its signature."""

    @property
    def complete(self) -> bool:
        """Whether the dialect's end was seen: the end mark, or the reason why the model stopped."""
        return self.fault is None and self.error is None and (self.done or self.finish_word is not None)


class ChatObserver:
    """Takes the bytes of one reply and gives on what an SDK is to see.

    Args:
        used_ids: Tool call ids that the conversation has already.
        new_id: Makes a tool call id.
    """

    def __init__(self, *, used_ids: Iterable[str], new_id: Callable[[], str]) -> None:
        self.reading = ChatReading()
        self.calls = CallSlots(used_ids=used_ids, new_id=new_id)
        self._reader = SseReader()

    def feed(self, data: bytes) -> bytes:
        """Bytes of a streamed reply.

        Raises:
            ChunkShapeError: The reply can't be understood; `reading.fault` says why.
        """
        try:
            events = self._reader.feed(data)
        except EventTooLongError as error:
            self._fail(str(error))
        shown = self._pass_on(events)
        if self.reading.done and self._reader.has_rest:
            self.reading.flag("odd_tail")
        return shown

    def feed_whole(self, body: bytes) -> bytes:
        """The body of a reply that isn't streamed, given on as a stream."""
        try:
            value = json.loads(body.decode("utf-8", errors="replace").lstrip("\ufeff"))
        except (ValueError, RecursionError):
            start = " ".join(body[:200].decode("utf-8", errors="replace").split())
            self.reading.fault_is_final = True
            self._fail(f"the reply is neither an event stream nor JSON, but begins {start!r}")
        self.reading.flag("not_streamed")
        if is_array(value) and value:
            value = value[0]
        if not is_object(value):
            self._fail("the reply is no JSON object")
        if not value.get("error"):
            value = _as_chunk(value)
        events = [SseEvent(None, json.dumps(value)), SseEvent(None, _DONE)]
        return self._pass_on(events)

    def finish(self) -> bytes:
        """The end of the stream."""
        return self._pass_on(self._reader.finish())

    def note_tail(self, data: bytes) -> None:
        """Bytes after the end mark."""
        if data.strip():
            self.reading.flag("odd_tail")

    def _fail(self, why: str) -> NoReturn:
        self.reading.fault = why
        raise ChunkShapeError(why)

    def _pass_on(self, events: list[SseEvent]) -> bytes:
        out: list[str] = []
        for event in events:
            if self.reading.done:
                self.note_tail(event.data.encode())
            elif event.data.strip().startswith(_DONE):
                self.reading.done = True
                out.append(_DONE)
            else:
                out += self._pass_record(event)
        return "".join(f"data: {record}\n\n" for record in out).encode("utf-8", errors="replace")

    def _pass_record(self, event: SseEvent) -> list[str]:
        text = escape_separators(event.data)
        try:
            value = json.loads(text)
        except RecursionError:
            self._fail("a record that nests too deeply")
        except ValueError:
            return self._pass_odd_record(event, text)
        if not event.whole:
            self.reading.flag("odd_tail")
        return [self._read(value, text, event.name)]

    def _pass_odd_record(self, event: SseEvent, text: str) -> list[str]:
        """A record that isn't JSON as it stands: several in one event, raw control characters, or cut."""
        if not event.whole:
            self.reading.unfinished_record = True
            return []
        try:
            lines = [line for line in text.split("\n") if line.strip()]
            values = [json.loads(line, strict=False) for line in lines]
        except (ValueError, RecursionError):
            self._fail("a record that isn't JSON")
        self.reading.flag("odd_framing")
        return [self._read(value, None, event.name) for value in values]

    def _read(self, value: Any, text: str | None, event_name: str | None) -> str:
        """Read one record; what to give on is its text, or the record anew where it had to be changed."""
        if not is_object(value):
            self._fail("a record that is no object")
        if event_name == "error" and not value.get("error"):
            value, text = {"error": value}, None
        try:
            changed = self._read_chunk(value)
        except ChunkShapeError as error:
            self._fail(str(error))
        if text is None or changed or "\\ud" in text or "\\uD" in text or "\n" in text:
            text = clean_text(dump_json(finite(value)))[0]
        return text

    def _read_chunk(self, chunk: dict[str, Any]) -> bool:
        reading = self.reading
        if chunk.get("error"):
            reading.error = chunk["error"]
            return False
        if reading.body_id is None and isinstance(chunk.get("id"), str):
            reading.body_id = chunk["id"]
        changed = self._read_usage(chunk)
        choices = chunk.get("choices")
        if choices is None:
            return changed
        if not is_array(choices):
            raise ChunkShapeError("choices that are no list")
        for choice in choices[:1]:
            changed |= self._read_choice(choice)
        return changed

    def _read_usage(self, chunk: dict[str, Any]) -> bool:
        raw = chunk.get("usage")
        if raw is None:
            return False
        if not is_object(raw):
            self.reading.flag("bad_usage")
            chunk["usage"] = None
            return True
        usage = read_chat_usage(raw)
        before = self.reading.usage
        if before is not None and (usage.total_tokens or 0) < (before.total_tokens or 0):
            self.reading.flag("usage_shrank")
        self.reading.usage = usage
        shown = None if "bad_number" in usage.flags else _plain_usage(raw)
        if shown == raw:
            return False
        chunk["usage"] = shown
        return True

    def _read_choice(self, choice: Any) -> bool:
        if not is_object(choice):
            raise ChunkShapeError("a choice that is no object")
        self.reading.has_choice = True
        word = choice.get("finish_reason")
        if word is not None and not isinstance(word, str):
            raise ChunkShapeError("a finish_reason that is no text")
        if word:
            self.reading.finish_word = word
        delta = choice.get("delta")
        changed = False
        if delta is None and is_object(choice.get("message")):
            delta = choice["delta"] = choice["message"]
            changed = True
        if delta is None:
            return changed
        if not is_object(delta):
            raise ChunkShapeError("a delta that is no object")
        return self._read_delta(delta) or changed

    def _read_delta(self, delta: dict[str, Any]) -> bool:
        content, refusal = delta.get("content"), delta.get("refusal")
        if content is not None and not isinstance(content, str) and not is_array(content):
            raise ChunkShapeError("content that is no text")
        self.reading.has_text |= bool(content)
        if isinstance(refusal, str):
            self.reading.refusal += refusal
        changed = False
        for name in ("reasoning", "reasoning_content"):
            if not isinstance(delta.get(name), (str, NoneType)):
                delta[name], changed = None, True
        if delta.get("extra_content"):
            self.reading.extra_content = delta["extra_content"]
        if delta.get("reasoning_details") is not None:
            add_details(self.reading.reasoning_details, delta["reasoning_details"])
        pieces = delta.get("tool_calls")
        if pieces is None:
            return changed
        if not is_array(pieces):
            raise ChunkShapeError("tool_calls that are no list")
        sorted_pieces = self.calls.sort(pieces)
        if sorted_pieces == pieces:
            return changed
        delta["tool_calls"] = sorted_pieces
        return True


def _plain_usage(raw: dict[str, Any]) -> dict[str, Any]:
    """A usage object with nothing in it that its reader wouldn't expect: counts, and objects of counts."""
    counts = raw.items()
    plain: dict[str, Any] = {key: value for key, value in counts if isinstance(value, (int, float, NoneType))}
    for key, value in raw.items():
        if is_object(value):
            plain[key] = {name: count for name, count in value.items() if isinstance(count, (int, NoneType))}
    return {key: plain[key] for key in raw if key in plain}


def _as_chunk(completion: dict[str, Any]) -> dict[str, Any]:
    """A whole completion as one chunk: message becomes delta."""
    chunk = {**completion, "object": "chat.completion.chunk"}
    choices = completion.get("choices")
    if is_array(choices):
        chunk["choices"] = [_as_delta(choice) for choice in choices]
    return chunk


def _as_delta(choice: Any) -> Any:
    if not is_object(choice):
        return choice
    delta = choice.get("message")
    return {key: value for key, value in choice.items() if key != "message"} | {"delta": delta}
