"""One exchange with OpenAI Responses: its words, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from remit.models._attempt import AttemptCall, Broken
from remit.models._chat_errors import Meaning, meaning_in_stream
from remit.models._exchange import WireExchange
from remit.models._port import Finish
from remit.models._responses_observer import ResponsesObserver, ResponsesReading
from remit.models._wire import is_object

if TYPE_CHECKING:
    from remit.models._transport import Waits

_FINISH: dict[str, Finish] = {
    "completed": "stop",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
_STATUS_OF_CODE = {
    "server_error": 500,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "bio_policy": 400,
    "cyber_policy": 400,
    "invalid_image": 400,
}
"""The status that an error would have had, had it come before the stream."""


class ResponsesExchange(WireExchange):
    """The record of one attempt; fed by the transport, judged by the adapter.

    Args:
        call: What was asked.
        waits: How long the reply may take.
        mask: Takes secrets out of a text.
        used_ids: Tool call ids of the conversation.
        new_id: Makes a tool call id.
        now: For dates in headers.
    """

    def __init__(
        self,
        *,
        call: AttemptCall,
        waits: Waits,
        mask: Callable[[str], str],
        used_ids: Iterable[str],
        new_id: Callable[[], str],
        now: Callable[[], datetime],
    ) -> None:
        self._responses = ResponsesObserver(used_ids=used_ids, new_id=new_id)
        super().__init__(call=call, waits=waits, mask=mask, observer=self._responses, now=now)

    @property
    def reading(self) -> ResponsesReading:
        """What the observer read."""
        return self._responses.reading

    def finish_kind(self) -> Finish | None:
        """Why the model stopped, in our words; None where its word isn't known."""
        reading = self.reading
        kind = _FINISH.get(reading.finish_word or "")
        if kind != "stop":
            return kind
        if reading.refused:
            return "refusal"
        return "tool_calls" if reading.calls else "stop"

    def _odd_end(self) -> Broken | None:
        if not self.reading.items and self.finish_kind() == "stop":
            text = "the reply has no output"
            return self._break("failed", "empty_result", text, retryable=True, most_retries=1)
        return super()._odd_end()

    def _meaning_in_stream(self, error: Any) -> Meaning:
        status = _STATUS_OF_CODE.get(str(error.get("code"))) if is_object(error) else None
        return meaning_in_stream(error if status is None else {**error, "status": status})
