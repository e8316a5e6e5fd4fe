"""What an OpenAI-like error means: whose fault, and whether asking again may help."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from remit.models._attempt import ProviderCode
from remit.models._wire import is_array, is_object

_CONTEXT_WORDS = (
    "context_length_exceeded", "maximum context length", "context window", "context length",
    "context size", "context limit", "prompt is too long", "input is too long", "input token count",
    "too many input tokens",
)  # fmt: skip
_FILTER_WORDS = (
    "content_filter",
    "content_policy",
    "responsibleaipolicy",
    "content management policy",
    "moderation",
)
_QUOTA_WORDS = (
    "insufficient_quota",
    "billing_hard_limit",
    "insufficient_balance",
    "insufficient balance",
    "credit balance",
    "perdayper",  # the name of a quota of the day, of Gemini
)
_AUTH_WORDS = ("invalid_api_key", "api_key_invalid", "authentication", "permission", "unauthorized")
_RATE_WORDS = ("rate_limit", "rate limit", "too_many_requests", "too many requests", "resource_exhausted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What to make of an error."""

    reason: ProviderCode
    retryable: bool
    pauses_key: bool = False
    """Everybody with this key is told to wait."""


_ONCE = {
    "context_length": Meaning(reason="context_length", retryable=False),
    "content_filter": Meaning(reason="content_filter", retryable=False),
    "auth": Meaning(reason="auth", retryable=False),
    "quota": Meaning(reason="rate_limited", retryable=False),
    "protocol": Meaning(reason="protocol", retryable=False),
    "missing": Meaning(reason="unavailable", retryable=False),
}
_RATE_LIMITED = Meaning(reason="rate_limited", retryable=True, pauses_key=True)
_UNAVAILABLE = Meaning(reason="unavailable", retryable=True)
_RETRYABLE_STATUS = frozenset({408, 409, 425})


def meaning_of_status(status: int, body: str, *, should_retry: str | None, asked_pause: bool) -> Meaning:
    """What an error answer means.

    Args:
        status: The HTTP status.
        body: Its text.
        should_retry: The header `x-should-retry`, which wins where it says no.
        asked_pause: Whether it says when to come back.
    """
    meaning = _of_status(status, body.lower())
    if asked_pause and meaning is _UNAVAILABLE:
        meaning = Meaning(reason="unavailable", retryable=True, pauses_key=True)
    if should_retry == "false" and meaning.retryable:
        return Meaning(reason=meaning.reason, retryable=False)
    return meaning


def _of_status(status: int, text: str) -> Meaning:
    if status == 429:
        return _ONCE["quota"] if _has(text, _QUOTA_WORDS) else _RATE_LIMITED
    if status >= 500 or status in _RETRYABLE_STATUS:
        return _UNAVAILABLE
    if status == 401:
        return _ONCE["auth"]
    if status == 402:
        return _ONCE["quota"]
    if status == 403:
        return _ONCE["content_filter"] if _has(text, _FILTER_WORDS) else _ONCE["auth"]
    if status == 404:
        return _ONCE["missing"]
    if status == 413 or _has(text, _CONTEXT_WORDS):
        return _ONCE["context_length"]
    if _has(text, _QUOTA_WORDS):
        return _ONCE["quota"]
    if "api_key_invalid" in text or "api key not valid" in text:
        return _ONCE["auth"]
    return _ONCE["content_filter"] if _has(text, _FILTER_WORDS) else _ONCE["protocol"]


def meaning_in_stream(error: Any) -> Meaning:
    """What an error object inside a stream means; it may carry the status that it would have had."""
    text = error_text(error).lower()
    status = _status_in(error)
    if status is not None:
        return _of_status(status, text)
    if _has(text, _CONTEXT_WORDS):
        return _ONCE["context_length"]
    if _has(text, _FILTER_WORDS):
        return _ONCE["content_filter"]
    if _has(text, _QUOTA_WORDS):
        return _ONCE["quota"]
    if _has(text, _RATE_WORDS):
        return _RATE_LIMITED
    return _ONCE["auth"] if _has(text, _AUTH_WORDS) else _UNAVAILABLE


def error_text(error: Any) -> str:
    """An error object as text, for the attempt's record."""
    if isinstance(error, str):
        return error
    if is_object(error):
        words = [error.get(key) for key in ("message", "type", "code", "param")]
        known = [str(word) for word in words if isinstance(word, (str, int)) and word != ""]
        if known:
            return " | ".join(known)
    return json.dumps(error, default=str)[:2_000]


def body_text(body: bytes) -> str:
    """The text of an error answer: its error object's words where it has one, else the body itself."""
    text = body.decode("utf-8", errors="replace").strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if is_array(value) and value:
        value = value[0]
    if is_object(value) and value.get("error"):
        return error_text(value["error"])
    return error_text(value) if is_object(value) else text


def _status_in(error: Any) -> int | None:
    if not is_object(error):
        return None
    for key in ("status_code", "status", "code"):
        value = error.get(key)
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return None


def _has(text: str, words: tuple[str, ...]) -> bool:
    return any(word in text for word in words)
