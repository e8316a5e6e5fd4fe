"""One exchange with a provider: what was sent, what came, and what that amounts to."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from remit.contract import AttemptUsage
from remit.models._attempt import NOTHING_SENT, UNKNOWN_USAGE, AttemptCall, Broken, ProviderCode
from remit.models._chat_errors import (
    Meaning,
    body_text,
    error_text,
    meaning_in_stream,
    meaning_of_status,
)
from remit.models._port import Finish
from remit.models._reading import WireObserver, WireReading
from remit.models._retry import asked_pause_s
from remit.primitives import dump_json

if TYPE_CHECKING:
    import httpx2

    from remit.models._transport import Waits

_REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "cf-ray")


class DispatchError(Exception):
    """What is about to be sent isn't what the pool asked for."""


ObserverT = TypeVar("ObserverT", bound=WireObserver)


class WireExchange(ABC, Generic[ObserverT]):
    """The record of one attempt; fed by the transport, judged by the adapter. One subclass per dialect.

    Args:
        call: What was asked.
        waits: How long the reply may take.
        mask: Takes secrets out of a text.
        used_ids: Tool call ids of the conversation.
        new_id: Makes a tool call id.
        now: For dates in headers.
    """

    lines_of_json = False
    """Whether the dialect streams one JSON object a line, in place of events."""

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
        self.waits = waits
        self.status: int | None = None
        self._call = call
        self._mask = mask
        self._now = now
        self._observer = self._observe(used_ids, new_id)
        self._headers: dict[str, str] = {}
        self._error_body = b""
        self._failure: Exception | None = None
        self._sent = False
        self._connected = True
        self._byte_count = 0
        self._body: httpx2.AsyncByteStream | None = None

    @abstractmethod
    def _observe(self, used_ids: Iterable[str], new_id: Callable[[], str]) -> ObserverT:
        """What reads the dialect."""

    async def close(self) -> None:
        """Give the connection back, or close it where the reply wasn't read to its end; idempotent.

        Not left to the SDKs: one of them forgets its response when a reader leaves in the middle.
        """
        body, self._body = self._body, None
        if body is not None:
            await body.aclose()

    @property
    def reading(self) -> WireReading:
        """What the observer read."""
        return self._observer.reading

    @property
    def began(self) -> bool:
        """Whether some of the content came."""
        return self.reading.has_text

    @property
    def provider_request_id(self) -> str | None:
        """The provider's id: of its headers, else of the body."""
        for name in _REQUEST_ID_HEADERS:
            if name in self._headers:
                return self._headers[name][:200]
        return self.reading.body_id[:200] if self.reading.body_id else None

    @property
    def finish_word(self) -> str | None:
        """The provider's word for why it stopped."""
        return self.reading.finish_word[:100] if self.reading.finish_word else None

    @property
    def error_answer(self) -> str:
        """The words of an error answer, masked."""
        return self._mask(body_text(self._error_body))

    def usage_so_far(self) -> AttemptUsage:
        """What is known of the usage when nothing more is read."""
        reading = self.reading
        if not self._sent or not self._connected or (self.status is not None and self.status != 200):
            return NOTHING_SENT
        usage, flags = reading.usage, tuple(reading.flags)
        if usage is None:
            if reading.complete:
                return AttemptUsage(coverage="missing", flags=flags)
            return UNKNOWN_USAGE.model_copy(update={"flags": flags}) if flags else UNKNOWN_USAGE
        changes: dict[str, object] = {"flags": (*flags, *usage.flags)}
        if not reading.complete:
            changes["coverage"] = "interrupted"
        return usage.model_copy(update=changes)

    # What the transport tells.

    @property
    def ended(self) -> bool:
        """Whether the end mark was seen."""
        return self.reading.done

    @property
    def complete(self) -> bool:
        """Whether what came is a whole reply."""
        return self.reading.complete

    def sends(self, request: httpx2.Request) -> None:
        """Check that what goes out is what was asked for, and note it."""
        if self._sent:
            raise DispatchError("a second request, which no attempt stands for")
        self._check_model(request)
        self._sent = True

    def _check_model(self, request: httpx2.Request) -> None:
        """Raises where the request isn't for the model that was asked."""
        asked = f'"model":{dump_json(self._call.model)}'.encode()
        if asked not in request.content:
            raise DispatchError(f"the request isn't for {self._call.model}")

    def answered(self, status: int, headers: httpx2.Headers) -> None:
        """Status and headers came."""
        self.status = status
        self._headers = {name.lower(): value for name, value in headers.items()}

    def opened(self, body: httpx2.AsyncByteStream) -> None:
        """The body of a reply is about to be read."""
        self._body = body

    def refused(self, body: bytes) -> None:
        """The body of an error answer."""
        self._error_body = body

    def failed(self, error: Exception, *, connected: bool) -> None:
        """The connection broke, or took too long."""
        self._failure = error
        self._connected = connected

    def feed(self, data: bytes) -> bytes:
        """Bytes of a streamed reply."""
        self._byte_count += len(data)
        return self._observer.feed(data)

    def feed_whole(self, body: bytes) -> bytes:
        """A reply that isn't streamed."""
        self._byte_count += len(body)
        return self._observer.feed_whole(body)

    def finish(self) -> bytes:
        """The stream ended."""
        return self._observer.finish()

    def note_tail(self, data: bytes | None) -> None:
        """Bytes after the end mark, or a break there."""
        if data is None:
            self.reading.flag("odd_tail")
        else:
            self._observer.note_tail(data)

    # What it amounts to.

    def finish_kind(self) -> Finish | None:
        """Why the model stopped, in our words; None where its word isn't known."""
        raise NotImplementedError

    def broken(self, error: BaseException | None) -> Broken | None:
        """What went wrong, or None when a whole reply came and nothing else speaks against it.

        Args:
            error: What the library raised.
        """
        reading = self.reading
        if self.status is not None and self.status != 200:
            return self._refusal(self.status)
        if reading.error is not None:
            return self._in_stream()
        if reading.fault is not None:
            return self._break("failed", "protocol", reading.fault, retryable=not reading.fault_is_final)
        if reading.complete:
            return self._odd_end()
        if self._failure is not None:
            return self._lost(self._failure)
        if self.status is None:
            text = f"nothing was sent: {type(error).__name__}: {error}"
            return self._break("failed", "protocol", text, retryable=False)
        return self._break("cut", "cut", "the stream ended without its end mark", retryable=True)

    def too_long(self, seconds: float) -> Broken:
        """The attempt took longer than its own bound."""
        text = f"no whole reply within call_timeout_ms = {seconds * 1000:.0f}"
        if self._byte_count:
            return self._break("cut", "cut", text, retryable=True)
        return self._break("failed", "unavailable", text, retryable=True)

    def unusable(self, why: str) -> Broken:
        """A whole reply that can't be used."""
        return self._break("failed", "protocol", why, retryable=True, most_retries=1)

    def _odd_end(self) -> Broken | None:
        """What speaks against a reply that has its end mark."""
        if self.finish_kind() is None:
            word = self.reading.finish_word
            return self._break("failed", "protocol", f"unknown reason to stop: {word!r}", retryable=False)
        return None

    def _meaning_in_stream(self, error: Any) -> Meaning:
        """What an error object in the stream means."""
        return meaning_in_stream(error)

    def _refusal(self, status: int) -> Broken:
        body = self._error_body.decode("utf-8", errors="replace")
        pause = asked_pause_s(self._headers, body[:8_192], now=self._now())
        meaning = meaning_of_status(
            status,
            body,
            should_retry=self._headers.get("x-should-retry"),
            asked_pause=pause is not None,
        )
        return Broken(
            status="refused",
            reason=meaning.reason,
            usage=NOTHING_SENT,
            detail=f"HTTP {status}: {self.error_answer}",
            retryable=meaning.retryable,
            pause_s=pause,
            pauses_key=meaning.pauses_key,
        )

    def _in_stream(self) -> Broken:
        error = self.reading.error
        meaning = self._meaning_in_stream(error)
        pause = asked_pause_s({}, json.dumps(error, default=str)[:8_192], now=self._now())
        return Broken(
            status="cut" if self.began else "failed",
            reason=meaning.reason,
            usage=self.usage_so_far(),
            detail=self._mask(f"error in the stream: {error_text(error)}"),
            retryable=meaning.retryable,
            pause_s=pause,
            pauses_key=meaning.pauses_key,
        )

    def _lost(self, failure: Exception) -> Broken:
        text = str(failure) or type(failure).__name__
        # A certificate that doesn't hold won't hold in a second either.
        retryable = "CERTIFICATE_VERIFY_FAILED" not in text
        if self._byte_count:
            return self._break("cut", "cut", f"the stream broke off: {text}", retryable=retryable)
        return self._break("failed", "unavailable", text, retryable=retryable)

    def _break(
        self,
        status: Literal["cut", "failed"],
        reason: ProviderCode,
        detail: str,
        *,
        retryable: bool,
        most_retries: int | None = None,
    ) -> Broken:
        return Broken(
            status=status,
            reason=reason,
            usage=self.usage_so_far(),
            detail=self._mask(detail),
            retryable=retryable,
            most_retries=most_retries,
        )
