"""Reads a Gemini reply as it stands on the wire, and keeps its parts as they came.

Parts are the reply: a signature belongs to the very part that it came on, so pieces of text are joined only
where neither has one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from remit.models._google_usage import COUNTS, read_gemini_usage
from remit.models._reading import ChunkShapeError, WireReading
from remit.models._sse import SseEvent
from remit.models._typed_observer import TypedObserver, object_in, text_in
from remit.models._wire import finite, is_array, is_object

_LARGEST_SHOWN = 2**53
SHOWN_WORDS = frozenset(
    {"STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"}
)
"""Reasons to stop that every version of the SDK knows; for any other it is shown `OTHER`."""


@dataclass(slots=True, kw_only=True)
class WirePart:
    """One part of a reply as it came."""

    kind: Literal["text", "thought", "call"]
    text: str = ""
    """Of a call: its arguments as JSON text."""
    signature: str = ""
    name: str = ""
    call_id: str = ""
    raw_id: str | None = None
    """The id that the provider gave; it wants it back with the result."""


@dataclass(slots=True, kw_only=True)
class GeminiReading(WireReading):
    """What was read; there is no end mark beyond the reason why the model stopped."""

    parts: list[WirePart] = field(default_factory=list[WirePart])
    blocked: str | None = None
    """The provider's word for why it didn't take the prompt."""

    @property
    def complete(self) -> bool:
        """Whether it was said why the model stopped, or that it wasn't asked at all."""
        return self.fault is None and self.error is None and self.finish_word is not None

    @property
    def calls(self) -> list[WirePart]:
        """The tool calls, in order."""
        return [part for part in self.parts if part.kind == "call"]


class GeminiObserver(TypedObserver[GeminiReading]):
    """Takes the bytes of one reply and gives on what the SDK is to see.

    Args:
        used_ids: Tool call ids that the conversation has already.
        new_id: Makes a tool call id.
    """

    def __init__(self, *, used_ids: Iterable[str], new_id: Callable[[], str]) -> None:
        super().__init__(GeminiReading())
        self._used = set(used_ids)
        self._new_id = new_id

    def feed_whole(self, body: bytes) -> bytes:
        """A reply that isn't streamed: one object, or a list of what would have been records."""
        try:
            value = json.loads(body.decode("utf-8", errors="replace").lstrip("\ufeff"))
        except (ValueError, RecursionError):
            return super().feed_whole(body)
        self._reading.flag("not_streamed")
        records = value if is_array(value) else [value]
        return self._pass_on([SseEvent(None, json.dumps(record)) for record in records])

    def _kind_of(self, value: dict[str, Any], event_name: str | None) -> str | None:
        return "chunk"

    def _framed(self, kind: str, text: str) -> str:
        return f"data: {text}\n\n"  # the SDK takes any other line for a piece of JSON

    def _read(self, kind: str, value: dict[str, Any]) -> bool | None:
        reading = self._reading
        if value.get("error"):
            reading.error = value["error"]
            raise ChunkShapeError("an error in place of a record")
        if reading.body_id is None and isinstance(value.get("responseId"), str):
            reading.body_id = value["responseId"]
        candidate = self._candidate(value.get("candidates"))
        self._feedback(value.get("promptFeedback"))
        usage = self._usage(value.get("usageMetadata"))
        value.clear()
        value["candidates"] = [candidate]
        if usage:
            value["usageMetadata"] = usage
        return True

    def _candidate(self, candidates: Any) -> dict[str, Any]:
        if candidates is None or candidates == []:
            return {}
        if not is_array(candidates):
            raise ChunkShapeError("candidates that are no list")
        candidate = object_in(candidates[0], "a candidate")
        shown: dict[str, Any] = {"content": {"role": "model", "parts": self._parts(candidate.get("content"))}}
        word = text_in(candidate.get("finishReason"), "a finishReason")
        if word:
            self._reading.finish_word = word
            shown["finishReason"] = word if word in SHOWN_WORDS else "OTHER"
        return shown

    def _parts(self, content: Any) -> list[dict[str, Any]]:
        if content is None:
            return []
        parts = object_in(content, "content").get("parts")
        if parts is None:
            return []
        if not is_array(parts):
            raise ChunkShapeError("parts that are no list")
        return [shown for part in parts if (shown := self._part(object_in(part, "a part"))) is not None]

    def _part(self, part: dict[str, Any]) -> dict[str, Any] | None:
        signature = text_in(part.get("thoughtSignature"), "a signature")
        call = part.get("functionCall")
        if call is not None:
            return self._call(object_in(call, "a function call"), signature)
        known = {"text", "thought", "thoughtSignature", "partMetadata"}
        odd = next((key for key, value in part.items() if key not in known and value is not None), None)
        if odd is not None:
            raise ChunkShapeError(f"a part that no one asked for: {odd[:50]!r}")
        text = text_in(part.get("text"), "text")
        if not text and not signature:
            return None
        self._reading.has_text = True
        kind: Literal["text", "thought"] = "thought" if part.get("thought") is True else "text"
        last = self._reading.parts[-1] if self._reading.parts else None
        if last is not None and last.kind == kind and not last.signature and not signature:
            last.text += text
        else:
            self._reading.parts.append(WirePart(kind=kind, text=text, signature=signature))
        return {"text": text, **({"thought": True} if kind == "thought" else {})} if text else None

    def _call(self, call: dict[str, Any], signature: str) -> dict[str, Any]:
        self._reading.has_text = True
        raw_id = text_in(call.get("id"), "a function call's id")
        call_id = raw_id if raw_id and raw_id not in self._used else self._new_id()
        self._used.add(call_id)
        arguments = call.get("args")
        name = text_in(call.get("name"), "a function's name")
        seen = WirePart(
            kind="call",
            # As it came, numbers that JSON doesn't have too: whoever parses it refuses them.
            text="{}" if arguments is None else json.dumps(arguments, ensure_ascii=False),
            signature=signature,
            name=name,
            call_id=call_id,
            raw_id=raw_id or None,
        )
        self._reading.parts.append(seen)
        shown: Any = finite(arguments) if is_object(arguments) else {}
        return {"functionCall": {"id": call_id, "name": name, "args": shown}}

    def _feedback(self, feedback: Any) -> None:
        reason = feedback.get("blockReason") if is_object(feedback) else None
        if reason:
            self._reading.blocked = str(reason)[:100]
            self._reading.finish_word = self._reading.finish_word or self._reading.blocked

    def _usage(self, raw: Any) -> dict[str, int] | None:
        """Read a usage object; what the library is to see of it."""
        if raw is None:
            return None
        if not is_object(raw):
            self._reading.flag("bad_usage")
            return None
        before = self._reading.usage
        usage = read_gemini_usage(raw, final=self._reading.finish_word is not None)
        if before is not None and (usage.total_tokens or 0) < (before.total_tokens or 0):
            self._reading.flag("usage_shrank")
        self._reading.usage = usage
        if "bad_number" in usage.flags:
            return None
        counts = {name: raw[name] for name in COUNTS if raw.get(name) is not None}
        return {name: int(count) for name, count in counts.items() if count < _LARGEST_SHOWN}
