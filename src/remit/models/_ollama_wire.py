"""Ollama's own wire form, to and from that of Chat Completions.

Its server speaks Chat Completions too, but there the context window can't be set, and a prompt that is longer
than the window (4 096 tokens unless told otherwise) is cut without a word.

Source: the API reference of `/api/chat` and `/api/show`, 2026-11.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from remit.models._chat_observer import ChatObserver
from remit.models._sse import EventTooLongError, SseEvent
from remit.models._wire import is_array, is_object
from remit.primitives import StrictJsonError, load_json

_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "stop": "stop",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "max_tokens": "num_predict",
}
_LONGEST_LINE_BYTES = 64 * 1024 * 1024


def ollama_body(body: Mapping[str, Any], *, window_tokens: int) -> dict[str, Any]:
    """The body of a chat request in Ollama's form.

    Args:
        body: As it would go to Chat Completions.
        window_tokens: The context window that the model is to be run with.
    """
    options = {theirs: body[ours] for ours, theirs in _OPTIONS.items() if body.get(ours) is not None}
    names: dict[str, str] = {}
    made: dict[str, Any] = {
        "model": body["model"],
        "stream": True,
        "messages": [_message(message, names) for message in body["messages"]],
        "options": {**options, "num_ctx": window_tokens},
        # A prompt that is too long is an error, not a shorter prompt.
        "truncate": False,
        "shift": False,
    }
    if body.get("tools"):
        made["tools"] = body["tools"]
    effort = body.get("reasoning_effort")
    if effort is not None:
        made["think"] = False if effort == "none" else effort
    form = body.get("response_format")
    if is_object(form) and is_object(form.get("json_schema")):
        made["format"] = form["json_schema"]["schema"]
    return made


def _message(message: Mapping[str, Any], names: dict[str, str]) -> dict[str, Any]:
    text, images = _content(message.get("content"))
    made: dict[str, Any] = {"role": message["role"], "content": text}
    if images:
        made["images"] = images
    for field in ("reasoning", "reasoning_content"):
        if isinstance(message.get(field), str):
            made["thinking"] = message[field]
    if message.get("tool_calls"):
        made["tool_calls"] = [_call(call, names) for call in message["tool_calls"]]
    if message["role"] == "tool":
        made["tool_call_id"] = message["tool_call_id"]
        made["tool_name"] = names.get(message["tool_call_id"], "")
    return made


def _content(content: Any) -> tuple[str, list[str]]:
    if not is_array(content):
        return content or "", []
    texts = [part["text"] for part in content if part.get("type") == "text"]
    urls = [part["image_url"]["url"] for part in content if part.get("type") == "image_url"]
    return "\n".join(texts), [url.partition("base64,")[2] for url in urls]


def _call(call: Mapping[str, Any], names: dict[str, str]) -> dict[str, Any]:
    function = call["function"]
    names[call["id"]] = function["name"]
    try:
        arguments = load_json(function["arguments"])
    except StrictJsonError:
        arguments = {}
    return {"id": call["id"], "function": {"name": function["name"], "arguments": arguments}}


class OllamaObserver(ChatObserver):
    """Reads a reply that comes as one JSON object a line, and gives on what a chat stream would have held.

    Args:
        used_ids: Tool call ids that the conversation has already.
        new_id: Makes a tool call id.
    """

    def __init__(self, *, used_ids: Iterable[str], new_id: Callable[[], str]) -> None:
        super().__init__(used_ids=used_ids, new_id=new_id)
        self._rest = b""
        self._called = 0

    def feed(self, data: bytes) -> bytes:
        """Bytes of a streamed reply."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE_BYTES:
            self._fail(str(EventTooLongError("a line that doesn't end")))
        return self._pass_on([event for line in lines for event in self._events(line)])

    def feed_whole(self, body: bytes) -> bytes:
        """A body that came at once; its lines are the same."""
        shown = self.feed(body)
        return shown + self.finish()

    def finish(self) -> bytes:
        """The end of the stream."""
        rest, self._rest = self._rest, b""
        try:
            json.loads(rest)
        except (ValueError, RecursionError):
            self.reading.unfinished_record = bool(rest.strip())
            return b""
        return self._pass_on(self._events(rest))

    def _events(self, line: bytes) -> list[SseEvent]:
        text = line.decode("utf-8", errors="replace").strip()
        if not text:
            return []
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            if not self.reading.has_choice:
                self.reading.fault_is_final = True
            self._fail(f"a line that isn't JSON, but begins {text[:100]!r}")
        if not is_object(value):
            self._fail("a line that is no object")
        if value.get("error"):
            return [SseEvent(None, json.dumps({"error": value["error"]}))]
        events = [SseEvent(None, json.dumps(self._chunk(value)))]
        return [*events, SseEvent(None, "[DONE]")] if value.get("done") is True else events

    def _chunk(self, value: dict[str, Any]) -> dict[str, Any]:
        message: Any = value.get("message")
        delta: Any = message
        if is_object(message):
            delta = {"role": "assistant", "content": message.get("content")}
            if message.get("thinking"):
                delta["reasoning"] = message["thinking"]
            if message.get("tool_calls"):
                delta["tool_calls"] = self._calls(message["tool_calls"])
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
        chunk: dict[str, Any] = {
            "id": "",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "",
            "choices": [choice],
        }
        if value.get("done") is True:
            # Whoever gives no reason is an old server at its natural end.
            choice["finish_reason"] = value.get("done_reason") or "stop"
            chunk["usage"] = _usage(value)
        return chunk

    def _calls(self, calls: Any) -> Any:
        if not is_array(calls):
            return calls
        made: list[Any] = []
        for call in calls:
            if is_object(call):
                call = {**call, "index": self._called}
                self._called += 1
            made.append(call)
        return made


def _usage(value: Mapping[str, Any]) -> dict[str, Any] | None:
    counts = {"prompt_tokens": value.get("prompt_eval_count"), "completion_tokens": value.get("eval_count")}
    return None if all(count is None for count in counts.values()) else counts
