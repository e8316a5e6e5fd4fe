"""Chat Completions: one answer, whole or as chunks."""

from __future__ import annotations

from typing import Any, Final

from remit.api.dialects import (
    COMMENT,
    DoorAnswer,
    DoorCall,
    DoorOperation,
    Fault,
    answer_stream,
    answer_whole,
    data_frame,
    start_run,
)
from remit.api.openai._chat_request import read_chat_request
from remit.api.openai._errors import error_of
from remit.api.openai._usage import chat_usage
from remit.contract import RunView

_DONE: Final = b"data: [DONE]\n\n"


async def _chat(call: DoorCall) -> DoorAnswer:
    request = read_chat_request(call.fields)
    if request.stream:
        call.doors.streams.check_room()
    attended = await start_run(call, request.wish)
    if not request.stream:
        return answer_whole(call, attended, chat_completion)
    teller = ChatTeller(attended.run, include_usage=request.include_usage)
    return answer_stream(call, attended, teller, live=True)


def chat_completion(run: RunView) -> dict[str, Any]:
    """A completed run as Chat Completions answers with it."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": run.output or "",
        "refusal": None,
        "annotations": [],
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {**_head(run, "chat.completion"), "choices": [choice], "usage": chat_usage(run)}


def _head(run: RunView, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{run.id}",
        "object": kind,
        "created": int(run.created_at.timestamp()),
        "model": run.binding,
        "service_tier": "default",
        "system_fingerprint": None,
    }


class ChatTeller:
    """Writes chunks: the role once, progress as `reasoning_content`, the bill only where it was asked for.

    Args:
        run: The run.
        include_usage: Whether a last chunk tells the bill.
    """

    def __init__(self, run: RunView, *, include_usage: bool) -> None:
        self._run = run
        self._include_usage = include_usage

    def begin(self) -> bytes:
        """The role."""
        return self._chunk({"role": "assistant", "content": ""})

    def keep_alive(self) -> bytes:
        """A comment."""
        return COMMENT

    def progress(self, text: str) -> bytes:
        """What goes on."""
        return self._chunk({"reasoning_content": text})

    def text(self, text: str) -> bytes:
        """A piece of the answer."""
        return self._chunk({"content": text})

    def complete(self, run: RunView) -> bytes:
        """The end, and the bill where it was asked for."""
        frames = self._chunk({}, finish="stop")
        if self._include_usage:
            body = _head(run, "chat.completion.chunk")
            frames += data_frame({**body, "choices": [], "usage": chat_usage(run)})
        return frames + _DONE

    def fail(self, fault: Fault, run: RunView | None) -> bytes:
        """An error, and no reason to stop: what came before isn't an answer."""
        return data_frame({"error": error_of(fault)}) + _DONE

    def _chunk(self, delta: dict[str, Any], *, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        body: dict[str, Any] = {**_head(self._run, "chat.completion.chunk"), "choices": [choice]}
        if self._include_usage:
            body["usage"] = None
        return data_frame(body)


OPERATIONS: Final = (
    DoorOperation(id="openai_chat", method="POST", path="/v1/chat/completions", handle=_chat),
)
