"""Reads an Anthropic Messages reply as it stands on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from remit.models._anthropic_usage import UsageTally
from remit.models._reading import ChunkShapeError, WireReading
from remit.models._typed_observer import TypedObserver, object_in, text_in
from remit.models._wire import is_object

_NO_COUNTS = {"input_tokens": 0, "output_tokens": 0}
"""What the library is shown in place of a usage that can't be read; it counts for nothing."""
_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}
"""For each kind of delta: the kind of block that it belongs to, and its field."""


@dataclass(slots=True)
class WireBlock:
    """One content block as it came."""

    kind: str
    name: str = ""
    signature: str = ""
    ended: bool = False


@dataclass(slots=True, kw_only=True)
class AnthropicReading(WireReading):
    """What was read; `done` is `message_stop`."""

    blocks: dict[int, WireBlock] = field(default_factory=dict[int, WireBlock])
    """By index, in the order of arrival."""
    refusal: str = ""
    """Why the model refused, in the provider's words."""

    @property
    def complete(self) -> bool:
        """Whether the end mark was seen, with the reason why the model stopped."""
        return self.fault is None and self.error is None and self.done and self.finish_word is not None

    def of_kind(self, *kinds: str) -> list[WireBlock]:
        """The blocks of these kinds, in order."""
        return [block for block in self.blocks.values() if block.kind in kinds]


class AnthropicObserver(TypedObserver[AnthropicReading]):
    """Takes the bytes of one reply and gives on what the SDK is to see.

    Args:
        used_ids: Tool call ids that the conversation has already.
        new_id: Makes a tool call id.
    """

    def __init__(self, *, used_ids: Iterable[str], new_id: Callable[[], str]) -> None:
        super().__init__(AnthropicReading())
        self._used = set(used_ids)
        self._new_id = new_id
        self._tally = UsageTally()

    def _read(self, kind: str, value: dict[str, Any]) -> bool | None:
        reading = self.reading
        match kind:
            case "message_start":
                return self._start(object_in(value.get("message"), "a message"))
            case "content_block_start":
                return self._start_block(value)
            case "content_block_delta":
                return self._delta(value)
            case "content_block_stop":
                self._block(value).ended = True
                return False
            case "message_delta":
                return self._message_delta(value)
            case "message_stop":
                reading.done = True
                return False
            case "error":
                reading.error = value.get("error") or value
                return False
            case _:
                return None  # pings, and what the API may add; nothing hangs on it

    def _start(self, message: dict[str, Any]) -> bool:
        if isinstance(message.get("id"), str):
            self.reading.body_id = message["id"]
        for key, default in (("id", ""), ("model", ""), ("role", "assistant"), ("type", "message")):
            if not isinstance(message.get(key), str):
                message[key] = default
        message["content"] = []
        self._usage(message, final=False)
        return True

    def _start_block(self, value: dict[str, Any]) -> bool:
        index, block = value.get("index"), object_in(value.get("content_block"), "a content block")
        if not isinstance(index, int) or index in self.reading.blocks:
            raise ChunkShapeError(f"a content block with the index {index!r}")
        kind = block.get("type")
        if kind not in ("text", "thinking", "redacted_thinking", "tool_use"):
            raise ChunkShapeError(f"a content block that no one asked for: {kind!r}")
        seen = self.reading.blocks[index] = WireBlock(kind)
        self.reading.has_text = True
        match kind:
            case "text":
                block["text"] = text_in(block.get("text"), "text")
            case "thinking":
                block["thinking"] = text_in(block.get("thinking"), "thinking")
                seen.signature = block["signature"] = text_in(block.get("signature"), "a signature")
            case "redacted_thinking":
                seen.signature = text_in(block.get("data"), "redacted thinking")
            case _:
                self._start_call(seen, block)
        return True

    def _start_call(self, seen: WireBlock, block: dict[str, Any]) -> None:
        seen.name = text_in(block.get("name"), "a tool name")
        call_id = text_in(block.get("id"), "a tool call id")
        if not call_id or call_id in self._used:
            call_id = self._new_id()
        self._used.add(call_id)
        block["id"] = call_id
        if not is_object(block.get("input")):
            block["input"] = {}

    def _block(self, value: dict[str, Any]) -> WireBlock:
        index = value.get("index")
        block = self.reading.blocks.get(index) if isinstance(index, int) else None
        if block is None or block.ended:
            raise ChunkShapeError(f"a piece of a content block that isn't open: {index!r}")
        return block

    def _delta(self, value: dict[str, Any]) -> bool | None:
        block, delta = self._block(value), object_in(value.get("delta"), "a delta")
        found = _DELTAS.get(str(delta.get("type")))
        if found is None:
            return None
        kind, key = found
        if block.kind != kind:
            raise ChunkShapeError(f"a {delta['type']} in a block of type {block.kind}")
        text = text_in(delta.get(key), key)
        if key == "signature":
            block.signature = text
        changed = delta.get(key) is None
        delta[key] = text
        return changed

    def _message_delta(self, value: dict[str, Any]) -> bool:
        delta = object_in(value.get("delta"), "a delta")
        word = delta.get("stop_reason")
        if word is not None and not isinstance(word, str):
            raise ChunkShapeError("a stop_reason that is no text")
        if word:
            self.reading.finish_word = word
        details = delta.get("stop_details")
        if is_object(details):
            self.reading.refusal = str(details.get("explanation") or details.get("category") or "")
        self._usage(value, final=word is not None)
        return True

    def _usage(self, holder: dict[str, Any], *, final: bool) -> None:
        """Read the usage object of a record, and put there what the library can read."""
        raw, needed = holder.get("usage"), ("output_tokens",) if final else _NO_COUNTS
        if is_object(raw):
            usage = self.reading.usage = self._tally.add(raw, final=final)
            if "bad_number" not in usage.flags and all(isinstance(raw.get(key), int) for key in needed):
                return
        elif raw is not None:
            self.reading.flag("bad_usage")
        holder["usage"] = dict(_NO_COUNTS)
