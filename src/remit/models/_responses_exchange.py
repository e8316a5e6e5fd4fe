"""One exchange with OpenAI Responses: its words, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from remit.models._attempt import Broken
from remit.models._chat_errors import Meaning, meaning_in_stream
from remit.models._exchange import WireExchange
from remit.models._port import Finish
from remit.models._responses_observer import ResponsesObserver, ResponsesReading
from remit.models._wire import is_object

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


class ResponsesExchange(WireExchange[ResponsesObserver]):
    """The record of one attempt; fed by the transport, judged by the adapter."""

    def _observe(self, used_ids: Iterable[str], new_id: Callable[[], str]) -> ResponsesObserver:
        return ResponsesObserver(used_ids=used_ids, new_id=new_id)

    @property
    def reading(self) -> ResponsesReading:
        """What the observer read."""
        return self._observer.reading

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
