"""A run as Responses' events, numbered from 0 in one order (R74).

    created · in_progress
    reasoning item: item added · part added · text deltas · text done · part done · item done
    message item:   item added · part added · text deltas · text done · part done · item done
    completed

Without progress there is no reasoning item. A run that has no answer closes what is open and fails.
"""

from __future__ import annotations

from typing import Any

from remit.api.dialects import COMMENT, Fault, event_frame
from remit.api.openai._responses_object import (
    message_item,
    reasoning_item,
    response_object,
    text_part,
)
from remit.contract import RunView


class ResponsesTeller:
    """Writes the events.

    Args:
        run: The run.
        numbered_alike: Whether the events are to be the same, number for number, whoever reads them again;
            then signs of life are comments. Else they are events: some clients' idle timers hear no comment.
        after: The number of the last event that the client has; those up to it aren't sent again.
    """

    def __init__(self, run: RunView, *, numbered_alike: bool, after: int | None = None) -> None:
        self._run = run
        self._numbered_alike = numbered_alike
        self._after = -1 if after is None else after
        self._next = 0
        self._items: list[dict[str, Any]] = []
        self._progress: str | None = None
        self._text: str | None = None

    def begin(self) -> bytes:
        """It is there, and goes on."""
        response = response_object(self._run, status="in_progress", output=[])
        return self._event("response.created", response=response) + self._in_progress()

    def _in_progress(self) -> bytes:
        response = response_object(self._run, status="in_progress", output=self._items)
        return self._event("response.in_progress", response=response)

    def keep_alive(self) -> bytes:
        """A sign of life."""
        return COMMENT if self._numbered_alike else self._in_progress()

    # ---- items

    def progress(self, text: str) -> bytes:
        """What goes on: a summary of reasoning. Nothing once the answer has begun."""
        if self._text is not None:
            return b""
        frames = b""
        place = {"item_id": f"rs_{self._run.id}", "output_index": 0, "summary_index": 0}
        if self._progress is None:
            self._progress = ""
            item = reasoning_item(self._run, None)
            frames += self._event("response.output_item.added", output_index=0, item=item)
            part = {"type": "summary_text", "text": ""}
            frames += self._event("response.reasoning_summary_part.added", **place, part=part)
        self._progress += text
        return frames + self._event("response.reasoning_summary_text.delta", **place, delta=text)

    def _end_progress(self) -> bytes:
        text = self._progress
        if text is None or self._items:
            return b""
        place = {"item_id": f"rs_{self._run.id}", "output_index": 0, "summary_index": 0}
        part, item = {"type": "summary_text", "text": text}, reasoning_item(self._run, text)
        self._items.append(item)
        return (
            self._event("response.reasoning_summary_text.done", **place, text=text)
            + self._event("response.reasoning_summary_part.done", **place, part=part)
            + self._event("response.output_item.done", output_index=0, item=item)
        )

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self._run.id}", "output_index": len(self._items), "content_index": 0}

    def text(self, text: str) -> bytes:
        """A piece of the answer."""
        frames = b""
        if self._text is None:
            frames = self._begin_text()
        self._text = (self._text or "") + text
        return frames + self._event("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def _begin_text(self) -> bytes:
        frames = self._end_progress()
        item = message_item(self._run, None, status="in_progress")
        return (
            frames
            + self._event("response.output_item.added", output_index=len(self._items), item=item)
            + self._event("response.content_part.added", **self._place, part=text_part(""))
        )

    def _end_text(self, *, status: str) -> bytes:
        text = self._text
        if text is None:
            return b""
        item = message_item(self._run, text, status=status)
        frames = (
            self._event("response.output_text.done", **self._place, text=text, logprobs=[])
            + self._event("response.content_part.done", **self._place, part=text_part(text))
            + self._event("response.output_item.done", output_index=len(self._items), item=item)
        )
        self._items.append(item)
        return frames

    # ---- the end

    def complete(self, run: RunView) -> bytes:
        """The answer is whole."""
        frames = b"" if self._text is not None else self._begin_text()
        self._text = self._text or ""
        frames += self._end_text(status="completed")
        response = response_object(run, output=self._items)
        return frames + self._event("response.completed", response=response)

    def fail(self, fault: Fault, run: RunView | None) -> bytes:
        """There is no answer."""
        frames = self._end_progress() + self._end_text(status="incomplete")
        run = run or self._run
        response = response_object(run, status="failed", output=self._items)
        response["status"] = "cancelled" if run.status.value == "cancelled" else "failed"
        response["error"] = {"code": fault.code, "message": fault.message}
        return frames + self._event("response.failed", response=response)

    def _event(self, type_: str, **fields: Any) -> bytes:
        number, self._next = self._next, self._next + 1
        if number <= self._after:
            return b""
        return event_frame(type_, {"type": type_, "sequence_number": number, **fields})
