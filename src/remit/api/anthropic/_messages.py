"""Messages: one answer, whole or as events; and what a request would cost in tokens, before anybody asks."""

from __future__ import annotations

from typing import Any, Final

from remit.api.anthropic._errors import error_of
from remit.api.anthropic._request import read_conversation, read_message_request
from remit.api.dialects import (
    DoorAnswer,
    DoorCall,
    DoorOperation,
    Fault,
    answer_stream,
    answer_whole,
    binding_of,
    event_frame,
    list_of,
    start_run,
    text_at,
)
from remit.contract import RunView
from remit.models import estimate_text_tokens
from remit.primitives import dump_json

_IMAGE_TOKENS: Final = 2_000
_MESSAGE_TOKENS: Final = 8
_PING: Final = event_frame("ping", {"type": "ping"})
_ANY: Final = frozenset({"run", "read"})


async def _create(call: DoorCall) -> DoorAnswer:
    request = read_message_request(call.fields)
    if request.stream:
        call.doors.streams.check_room()
    attended = await start_run(call, request.wish)
    if not request.stream:
        return answer_whole(call, attended, whole_message)
    teller = MessagesTeller(attended.run, shows_thinking=request.shows_thinking)
    return answer_stream(call, attended, teller, live=True)


async def _count(call: DoorCall) -> DoorAnswer:
    """An estimate, made here: no run, no provider, no cost."""
    body = call.fields
    binding_of(call, text_at(body.get("model"), "model"))
    conversation = read_conversation(body)
    texts = [*conversation.texts(), *map(dump_json, list_of(body, "tools"))]
    tokens = sum(estimate_text_tokens(text) + _MESSAGE_TOKENS for text in texts)
    return call.answer({"input_tokens": tokens + conversation.image_count * _IMAGE_TOKENS})


def whole_message(run: RunView) -> dict[str, Any]:
    """A completed run as Messages answers with it."""
    content = [{"type": "text", "text": run.output or ""}]
    return {**_head(run, content), "stop_reason": "end_turn", "usage": message_usage(run)}


def _head(run: RunView, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"msg_{run.id}",
        "type": "message",
        "role": "assistant",
        "model": run.binding,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
    }


def message_usage(run: RunView) -> dict[str, Any]:
    """A run's bill. This dialect can't say that a number isn't known: it is 0 then, and null natively."""
    usage = run.usage
    if usage is None:
        return _counts(0, 0, 0, 0)
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return _counts((usage.input_tokens or 0) - read - written, usage.output_tokens or 0, read, written)


def _counts(fresh: int, output: int, read: int, written: int) -> dict[str, Any]:
    return {
        "input_tokens": max(0, fresh),
        "output_tokens": output,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    }


class MessagesTeller:
    """Writes the events: what goes on as a thinking block, where thinking was asked for, then the text.

    Args:
        run: The run.
        shows_thinking: Whether what goes on is shown.
    """

    def __init__(self, run: RunView, *, shows_thinking: bool) -> None:
        self._run = run
        self._shows_thinking = shows_thinking
        self._open: str | None = None
        """The kind of the block that is open."""
        self._next = 0
        self._has_text = False

    def begin(self) -> bytes:
        """The message begins; what it costs isn't known yet."""
        message = {**_head(self._run, []), "usage": _counts(0, 0, 0, 0)}
        return event_frame("message_start", {"type": "message_start", "message": message}) + _PING

    def keep_alive(self) -> bytes:
        """A ping."""
        return _PING

    def progress(self, text: str) -> bytes:
        """What goes on. Nothing once the answer has begun."""
        if not self._shows_thinking or self._has_text:
            return b""
        frames = b""
        if self._open is None:
            frames = self._begin({"type": "thinking", "thinking": "", "signature": ""})
        return frames + self._delta({"type": "thinking_delta", "thinking": text})

    def text(self, text: str) -> bytes:
        """A piece of the answer."""
        frames = b""
        if self._open != "text":
            frames = self._end() + self._begin({"type": "text", "text": ""})
            self._has_text = True
        return frames + self._delta({"type": "text_delta", "text": text})

    def complete(self, run: RunView) -> bytes:
        """The end, and the bill."""
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        body = {"type": "message_delta", "delta": delta, "usage": message_usage(run)}
        return (
            self._end()
            + event_frame("message_delta", body)
            + event_frame("message_stop", {"type": "message_stop"})
        )

    def fail(self, fault: Fault, run: RunView | None) -> bytes:
        """There is no answer: nothing is closed as if there were."""
        return event_frame("error", {"type": "error", "error": error_of(fault)})

    def _begin(self, block: dict[str, Any]) -> bytes:
        self._open = block["type"]
        body = {"type": "content_block_start", "index": self._next, "content_block": block}
        return event_frame("content_block_start", body)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        body = {"type": "content_block_delta", "index": self._next, "delta": delta}
        return event_frame("content_block_delta", body)

    def _end(self) -> bytes:
        if self._open is None:
            return b""
        frames = b""
        if self._open == "thinking":
            # A client hands the block back with the next turn, and some refuse one without a signature.
            frames = self._delta({"type": "signature_delta", "signature": f"run:{self._run.id}"})
        body = {"type": "content_block_stop", "index": self._next}
        self._open, self._next = None, self._next + 1
        return frames + event_frame("content_block_stop", body)


OPERATIONS: Final = (
    DoorOperation(id="anthropic_messages", method="POST", path="/v1/messages", handle=_create),
    DoorOperation(
        id="anthropic_count_tokens",
        method="POST",
        path="/v1/messages/count_tokens",
        handle=_count,
        scopes=_ANY,
    ),
)
