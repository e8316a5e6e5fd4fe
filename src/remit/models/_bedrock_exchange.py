"""One exchange with Bedrock: its words, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from remit.models._bedrock_observer import ConverseObserver, ConverseReading
from remit.models._chat_errors import Meaning, meaning_in_stream
from remit.models._exchange import DispatchError, WireExchange
from remit.models._port import Delta, Finish
from remit.models._wire import is_object

if TYPE_CHECKING:
    import httpx2


_FINISH: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}
_STATUS_OF_TYPE = {
    "validationException": 400,
    "accessDeniedException": 403,
    "resourceNotFoundException": 404,
    "modelTimeoutException": 408,
    "throttlingException": 429,
    "internalServerException": 500,
    "modelStreamErrorException": 500,
    "serviceUnavailableException": 503,
}
"""The status that an error would have had, had it come before the stream."""


class ConverseExchange(WireExchange[ConverseObserver]):
    """The record of one attempt; fed by the transport, judged by the adapter."""

    def _observe(self, used_ids: Iterable[str], new_id: Callable[[], str]) -> ConverseObserver:
        return ConverseObserver(used_ids=used_ids, new_id=new_id)

    @property
    def reading(self) -> ConverseReading:
        """What the observer read."""
        return self._observer.reading

    def take_deltas(self) -> list[Delta]:
        """What came since this was last asked, for viewers."""
        return self._observer.take_deltas()

    def finish_kind(self) -> Finish | None:
        """Why the model stopped, in our words; None where its word isn't known."""
        kind = _FINISH.get(self.reading.finish_word or "")
        if kind == "stop" and self.reading.calls:
            return "tool_calls"
        return "stop" if kind == "tool_calls" and not self.reading.calls else kind

    def _check_model(self, request: httpx2.Request) -> None:
        asked = f"/model/{quote(self._call.model, safe='')}/converse-stream"
        if not request.url.raw_path.decode().endswith(asked):
            raise DispatchError(f"the request isn't for {self._call.model}")

    def _meaning_in_stream(self, error: Any) -> Meaning:
        status = _STATUS_OF_TYPE.get(str(error.get("type"))) if is_object(error) else None
        return meaning_in_stream(error if status is None else {**error, "status": status})
