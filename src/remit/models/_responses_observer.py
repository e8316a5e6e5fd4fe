"""Reads an OpenAI Responses reply as it stands on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from remit.contract import AttemptUsage
from remit.models._chat_usage import read_chat_usage
from remit.models._reading import ChunkShapeError, WireReading
from remit.models._typed_observer import TypedObserver, object_in, text_in
from remit.models._usage_reader import presentable
from remit.models._wire import is_array, is_object

_STATUS_EVENTS = ("response.created", "response.in_progress", "response.queued")
_PIECES = frozenset(
    {
        "response.output_text.delta", "response.refusal.delta", "response.function_call_arguments.delta",
        "response.reasoning_summary_text.delta", "response.reasoning_text.delta",
    }
)  # fmt: skip
_PASSED_ON = frozenset(
    {
        "response.content_part.added", "response.content_part.done", "response.output_text.done",
        "response.refusal.done", "response.function_call_arguments.done", "response.reasoning_text.done",
        "response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
        "response.reasoning_summary_text.done",
    }
)  # fmt: skip
_ITEM_KINDS = ("message", "reasoning", "function_call")
_ECHOES = ("input", "instructions", "metadata", "prompt", "reasoning", "text")
"""Fields of a response that repeat what was asked."""


@dataclass(slots=True, kw_only=True)
class ResponsesReading(WireReading):
    """What was read; `done` is `response.completed`, `response.incomplete` or `response.failed`."""

    items: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    """Whole output items by their index."""

    @property
    def complete(self) -> bool:
        """Whether the end mark was seen, with the reason why the model stopped."""
        return self.fault is None and self.error is None and self.done and self.finish_word is not None

    @property
    def output(self) -> list[dict[str, Any]]:
        """The whole items, in order."""
        return [self.items[index] for index in sorted(self.items)]

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The function calls among them."""
        return [item for item in self.output if item["type"] == "function_call"]

    @property
    def refused(self) -> bool:
        """Whether the model refused."""
        messages = [item for item in self.output if item["type"] == "message"]
        return any(part["type"] == "refusal" for item in messages for part in item["content"])


class ResponsesObserver(TypedObserver[ResponsesReading]):
    """Takes the bytes of one reply and gives on what the SDK is to see.

    Args:
        used_ids: Tool call ids that the conversation has already.
        new_id: Makes a tool call id.
    """

    def __init__(self, *, used_ids: Iterable[str], new_id: Callable[[], str]) -> None:
        super().__init__(ResponsesReading())
        self._used = set(used_ids)
        self._new_id = new_id
        self._call_ids: dict[int, str] = {}

    def _read(self, kind: str, value: dict[str, Any]) -> bool | None:
        changed = not isinstance(value.get("sequence_number"), int)
        if changed:
            value["sequence_number"] = 0
        if kind in _STATUS_EVENTS:
            response = object_in(value.get("response"), "a response")
            self._status(response)
            _lighten(response)
            return True
        if kind in _PIECES:
            self.reading.has_text = True
            delta = value.get("delta")
            value["delta"] = text_in(delta, "a delta")
            return changed or delta is None
        if kind in _PASSED_ON:
            return changed
        match kind:
            case "response.output_item.added" | "response.output_item.done":
                self.reading.has_text = True
                return self._item(value, whole=kind.endswith("done"))
            case "response.completed" | "response.incomplete" | "response.failed":
                return self._end(kind, object_in(value.get("response"), "a response"))
            case "error":
                nested = value.get("error")
                self.reading.error = nested if is_object(nested) else _error_of(value)
                return changed
            case _:
                return None  # what the API may add; nothing hangs on it

    def _status(self, response: dict[str, Any]) -> bool:
        if isinstance(response.get("id"), str):
            self.reading.body_id = response["id"]
        self._usage(response)
        _complete(response)
        return True

    def _item(self, value: dict[str, Any], *, whole: bool) -> bool:
        index, item = value.get("output_index"), object_in(value.get("item"), "an item")
        if not isinstance(index, int) or index in self.reading.items:
            raise ChunkShapeError(f"an output item with the index {index!r}")
        _check_item(item)
        if item["type"] == "function_call":
            item["call_id"] = self._call_id(index, item)
        if whole:
            self.reading.items[index] = item
        return True

    def _call_id(self, index: int, item: dict[str, Any]) -> str:
        """The id under which a call goes on; another one where its own is missing or taken."""
        if index not in self._call_ids:
            given = text_in(item.get("call_id"), "a call id")
            self._call_ids[index] = self._new_id() if not given or given in self._used else given
            self._used.add(self._call_ids[index])
        return self._call_ids[index]

    def _end(self, kind: str, response: dict[str, Any]) -> bool:
        reading = self.reading
        self._status(response)
        reading.done = True
        if kind == "response.failed":
            reading.error = response.get("error") or {"message": "the response failed"}
            _lighten(response)
            return True
        output = response.get("output")
        for index, item in enumerate(output if is_array(output) else []):
            if index not in reading.items:  # not everybody sends an item when it is whole
                self._item({"output_index": index, "item": item}, whole=True)
        _lighten(response)
        details = response.get("incomplete_details")
        reason = details.get("reason") if is_object(details) else None
        reading.finish_word = str(reason) if reason else kind.removeprefix("response.")
        return True

    def _usage(self, response: dict[str, Any]) -> None:
        raw = response.get("usage")
        if raw is None:
            return
        if not is_object(raw):
            self.reading.flag("bad_usage")
            response["usage"] = None
            return
        usage = self.reading.usage = read_responses_usage(raw)
        if usage.coverage != "reported":
            response["usage"] = None  # the library takes whole ones only


def read_responses_usage(raw: dict[str, Any]) -> AttemptUsage:
    """The usage of a reply: Chat's counts under other names."""
    chat = {
        "prompt_tokens": raw.get("input_tokens"),
        "completion_tokens": raw.get("output_tokens"),
        "total_tokens": raw.get("total_tokens"),
        "prompt_tokens_details": raw.get("input_tokens_details"),
        "completion_tokens_details": raw.get("output_tokens_details"),
    }
    return read_chat_usage(chat).model_copy(update={"raw": presentable(raw)})


def _complete(response: dict[str, Any]) -> None:
    """Put there what the library goes by without looking."""
    for key, default in (("id", ""), ("model", ""), ("object", "response"), ("status", "in_progress")):
        if not isinstance(response.get(key), str):
            response[key] = default
    if not isinstance(response.get("output"), list):
        response["output"] = []
    if not isinstance(response.get("created_at"), (int, float)):
        response["created_at"] = 0


def _lighten(response: dict[str, Any]) -> None:
    """Leave out what the response repeats of the request, and its items, which have records of their own.

    The SDK tries each entry of such a list as one of some dozen types, at a millisecond or two for each that
    is none of them: 15 KB of nonsense would hold up the whole host for seconds.
    """
    response["output"] = response["tools"] = []
    response["tool_choice"], response["parallel_tool_calls"] = "auto", True
    for name in _ECHOES:
        response.pop(name, None)


def _check_item(item: dict[str, Any]) -> None:
    """Bring an item into the form that the rest goes by.

    Raises:
        ChunkShapeError: It is none that was asked for, or not of its kind's form.
    """
    match item.get("type"):
        case "function_call":
            item["name"] = text_in(item.get("name"), "a tool name")
            item["arguments"] = text_in(item.get("arguments"), "arguments")
        case "message":
            content = item.get("content")
            item["content"] = [_checked_part(part) for part in content] if is_array(content) else []
        case "reasoning":
            if item.get("encrypted_content") is not None:
                text_in(item["encrypted_content"], "encrypted content")
            for key in ("summary", "content"):
                if key == "summary" or item.get(key) is not None:
                    item[key] = item[key] if is_array(item.get(key)) else []
        case kind:
            raise ChunkShapeError(f"an output item that no one asked for: {kind!r}")


def _checked_part(part: Any) -> dict[str, Any]:
    part = object_in(part, "a content part")
    key = {"output_text": "text", "refusal": "refusal"}.get(str(part.get("type")))
    if key is None:
        raise ChunkShapeError(f"a content part that no one asked for: {part.get('type')!r}")
    part[key] = text_in(part.get(key), key)
    return part


def _error_of(event: dict[str, Any]) -> dict[str, Any]:
    return {key: event.get(key) for key in ("code", "message", "param") if event.get(key) is not None} or {
        "message": "an error without words"
    }
