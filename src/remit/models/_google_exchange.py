"""One exchange with the Gemini API: its words, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from remit.models._attempt import Broken
from remit.models._exchange import DispatchError, WireExchange
from remit.models._google_observer import GeminiObserver, GeminiReading
from remit.models._port import Finish

if TYPE_CHECKING:
    import httpx2


_FINISH: dict[str, Finish] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    # The provider would go on in another request: what came is no answer.
    "CONTINUATION": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "LANGUAGE": "content_filter",
}
_UNUSABLE = frozenset(
    {
        "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE",
        "MISSING_THOUGHT_SIGNATURE", "OTHER", "FINISH_REASON_UNSPECIFIED",
    }
)  # fmt: skip
"""Words that say that what came is nothing; another try may give something."""
_AFTER_THE_END_S = 2.0
"""How long the end of the body is awaited once it was said why the model stopped."""


class GeminiExchange(WireExchange[GeminiObserver]):
    """The record of one attempt; fed by the transport, judged by the adapter."""

    def _observe(self, used_ids: Iterable[str], new_id: Callable[[], str]) -> GeminiObserver:
        return GeminiObserver(used_ids=used_ids, new_id=new_id)

    @property
    def reading(self) -> GeminiReading:
        """What the observer read."""
        return self._observer.reading

    def feed(self, data: bytes) -> bytes:
        """Bytes of a streamed reply."""
        shown = super().feed(data)
        if self.reading.complete:
            # Usage may still follow, so the body is read to its end; but nothing hangs on a late one.
            self.waits = replace(self.waits, idle_s=min(self.waits.idle_s, _AFTER_THE_END_S))
        return shown

    def finish_kind(self) -> Finish | None:
        """Why the model stopped, in our words; None where its word isn't known."""
        reading = self.reading
        if reading.blocked is not None:
            return "content_filter"
        kind = _FINISH.get(reading.finish_word or "")
        return "tool_calls" if kind == "stop" and reading.calls else kind

    def broken(self, error: BaseException | None) -> Broken | None:
        """What went wrong; a login that isn't there or isn't taken is found before anything is sent."""
        if self.status is None and error is not None and type(error).__module__.startswith("google.auth"):
            text = f"no login for Google: {type(error).__name__}: {error}"
            return self._break("failed", "auth", text, retryable=False)
        return super().broken(error)

    def _check_model(self, request: httpx2.Request) -> None:
        if not request.url.path.endswith(f"/{self._call.model}:streamGenerateContent"):
            raise DispatchError(f"the request isn't for {self._call.model}")

    def _odd_end(self) -> Broken | None:
        word = self.reading.finish_word
        if self.reading.blocked is None and word in _UNUSABLE:
            return self._break("failed", "protocol", f"the provider stopped with {word}", retryable=True)
        return super()._odd_end()
