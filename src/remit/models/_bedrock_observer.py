"""Reads a Bedrock Converse reply as it stands on the wire, and keeps its blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from remit.contract import AttemptCoverage, AttemptUsage
from remit.models._bedrock_frames import Frame, FrameError, FrameReader
from remit.models._port import Delta
from remit.models._reading import ChunkShapeError, WireReading
from remit.models._typed_observer import object_in, text_in
from remit.models._usage_reader import UsageReader, presentable, sum_known
from remit.models._wire import is_object


@dataclass(slots=True, kw_only=True)
class ConverseBlock:
    """One content block as it came."""

    kind: Literal["text", "thought", "call"] = "text"
    text: str = ""
    signature: str = ""
    sealed: str = ""
    name: str = ""
    call_id: str = ""


@dataclass(slots=True, kw_only=True)
class ConverseReading(WireReading):
    """What was read; `done` is the record with the numbers, which comes last."""

    blocks: dict[int, ConverseBlock] = field(default_factory=dict[int, ConverseBlock])

    @property
    def complete(self) -> bool:
        """Whether it was said why the model stopped."""
        return self.fault is None and self.error is None and self.finish_word is not None

    @property
    def calls(self) -> list[ConverseBlock]:
        """The tool calls, in order."""
        return [block for block in self.blocks.values() if block.kind == "call"]


class ConverseObserver:
    """Takes the bytes of one reply; nobody reads them after it (see `WireObserver`).

    Args:
        used_ids: Tool call ids that the conversation has already.
        new_id: Makes a tool call id.
    """

    def __init__(self, *, used_ids: Iterable[str], new_id: Callable[[], str]) -> None:
        self.reading = ConverseReading()
        self._frames = FrameReader()
        self._used = set(used_ids)
        self._new_id = new_id
        self._fresh: list[Delta] = []

    def take_deltas(self) -> list[Delta]:
        """What came since this was last asked."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def feed(self, data: bytes) -> bytes:
        """Bytes of a streamed reply."""
        try:
            for frame in self._frames.feed(data):
                self._read(frame)
        except (FrameError, ChunkShapeError) as error:
            self._fail(str(error))
        return b"\n"  # so that whoever reads hears of it; nobody reads what it is

    def feed_whole(self, body: bytes) -> bytes:
        """A body that isn't a stream."""
        self.reading.fault_is_final = True
        start = " ".join(body[:200].decode("utf-8", errors="replace").split())
        self._fail(f"the reply is no event stream, but begins {start!r}")

    def finish(self) -> bytes:
        """The end of the stream."""
        self.reading.unfinished_record = self._frames.has_rest
        return b""

    def note_tail(self, data: bytes) -> None:
        """Bytes after the end."""
        if data:
            self.reading.flag("odd_tail")

    def _fail(self, why: str) -> NoReturn:
        self.reading.fault = self.reading.fault or why
        raise ChunkShapeError(why)

    def _read(self, frame: Frame) -> None:
        kind = frame.headers.get(":message-type", "event")
        try:
            value = json.loads(frame.payload or b"{}")
        except (ValueError, RecursionError):
            raise ChunkShapeError("a record that isn't JSON") from None
        record = object_in(value, "a record")
        if kind != "event":
            word = frame.headers.get(":exception-type") or frame.headers.get(":error-code") or kind
            message = record.get("message") or frame.headers.get(":error-message")
            self.reading.error = {"type": word, "message": message}
            raise ChunkShapeError("an error in place of a record")
        match frame.headers.get(":event-type"):
            case "contentBlockStart":
                self._start(record)
            case "contentBlockDelta":
                self._delta(record)
            case "messageStop":
                self.reading.finish_word = text_in(record.get("stopReason"), "a stopReason") or None
            case "metadata":
                self._usage(record.get("usage"))
                self.reading.done = self.reading.finish_word is not None
            case _:
                pass  # beginnings and ends of blocks, and what the API may add

    def _block(self, record: dict[str, Any]) -> ConverseBlock:
        index = record.get("contentBlockIndex")
        if not isinstance(index, int):
            raise ChunkShapeError(f"a content block with the index {index!r}")
        self.reading.has_text = True
        return self.reading.blocks.setdefault(index, ConverseBlock())

    def _start(self, record: dict[str, Any]) -> None:
        start = record.get("start")
        call = start.get("toolUse") if is_object(start) else None
        if call is None:
            return
        call = object_in(call, "a tool use")
        block = self._block(record)
        call_id = text_in(call.get("toolUseId"), "a tool use's id")
        block.kind, block.name = "call", text_in(call.get("name"), "a tool's name")
        block.call_id = call_id if call_id and call_id not in self._used else self._new_id()
        self._used.add(block.call_id)
        self._fresh.append(Delta(kind="tool_call", text=f"{block.name} "))

    def _delta(self, record: dict[str, Any]) -> None:
        block, delta = self._block(record), object_in(record.get("delta"), "a delta")
        if delta.get("text") is not None:
            piece = text_in(delta["text"], "text")
            block.text += piece
            self._show("text", piece)
        elif delta.get("toolUse") is not None:
            if block.kind != "call":
                raise ChunkShapeError("arguments of a call that didn't begin")
            piece = text_in(object_in(delta["toolUse"], "a tool use").get("input"), "arguments")
            block.text += piece
            self._show("tool_call", piece)
        elif delta.get("reasoningContent") is not None:
            self._thought(block, object_in(delta["reasoningContent"], "reasoning"))

    def _thought(self, block: ConverseBlock, thought: dict[str, Any]) -> None:
        block.kind = "thought"
        piece = text_in(thought.get("text"), "reasoning")
        block.text += piece
        block.signature += text_in(thought.get("signature"), "a signature")
        block.sealed += text_in(thought.get("redactedContent"), "sealed reasoning")
        self._show("reasoning", piece)

    def _show(self, kind: Literal["text", "reasoning", "tool_call"], piece: str) -> None:
        if piece:
            self._fresh.append(Delta(kind=kind, text=piece))

    def _usage(self, raw: Any) -> None:
        if not is_object(raw):
            self.reading.flag("bad_usage")
            return
        self.reading.usage = read_converse_usage(raw)


def read_converse_usage(raw: dict[str, Any]) -> AttemptUsage:
    """The six numbers: input is counted without what the cache held or took, so the three are added (R18)."""
    reader = UsageReader()
    plain, output = reader.number(raw, "inputTokens"), reader.number(raw, "outputTokens")
    read = reader.number(raw, "cacheReadInputTokens") or 0
    written = reader.number(raw, "cacheWriteInputTokens") or 0
    sent = None if plain is None else plain + read + written
    total = reader.number(raw, "totalTokens")
    whole = sum_known(sent, output)
    if total is not None and whole is not None and total != whole:
        reader.flag("total_mismatch")
    known = whole is not None and not reader.bad and (total is None or total <= whole)
    coverage: AttemptCoverage = "reported" if known else "partial"
    return AttemptUsage(
        input_tokens=sent,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=None,
        total_tokens=whole,
        coverage=coverage,
        raw=presentable(raw),
        flags=tuple(reader.flags),
    )
