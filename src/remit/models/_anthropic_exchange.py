"""One exchange with the Anthropic Messages API: its words, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from remit.models._anthropic_observer import AnthropicObserver, AnthropicReading
from remit.models._chat_errors import Meaning, meaning_in_stream
from remit.models._exchange import WireExchange
from remit.models._port import Finish
from remit.models._wire import is_object

_FINISH: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    # The provider paused in the middle of its own tool loop: what came is no answer, and is to be continued.
    "pause_turn": "length",
    "refusal": "refusal",
}
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that an error would have had, had it come before the stream."""


class AnthropicExchange(WireExchange[AnthropicObserver]):
    """The record of one attempt; fed by the transport, judged by the adapter."""

    def _observe(self, used_ids: Iterable[str], new_id: Callable[[], str]) -> AnthropicObserver:
        return AnthropicObserver(used_ids=used_ids, new_id=new_id)

    @property
    def reading(self) -> AnthropicReading:
        """What the observer read."""
        return self._observer.reading

    def finish_kind(self) -> Finish | None:
        """Why the model stopped, in our words; None where its word isn't known."""
        kind = _FINISH.get(self.reading.finish_word or "")
        calls = self.reading.of_kind("tool_use")
        if kind == "stop" and calls:
            return "tool_calls"
        return "stop" if kind == "tool_calls" and not calls else kind

    def _meaning_in_stream(self, error: Any) -> Meaning:
        status = _STATUS_OF_TYPE.get(str(error.get("type"))) if is_object(error) else None
        return meaning_in_stream(error if status is None else {**error, "status": status})
