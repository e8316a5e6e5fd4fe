"""What a provider asks for, in all its forms, and our own pace."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from remit.models._retry import asked_pause_s, backoff_s, parse_pause_s

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0 "}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=90), usegmt=True)}, 90.0),
        ({"retry-after": format_datetime(NOW - timedelta(seconds=90), usegmt=True)}, 0.0),
        ({"retry-after": "2026-11-30T12:01:00Z"}, 60.0),
        ({"retry-after": "6m0s"}, 360.0),
        ({"retry-after": "120ms"}, 0.12),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-remaining-requests": "0"}, 1.0),
        (
            {
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-requests": "12",
                "x-ratelimit-reset-tokens": "6m0s",
                "x-ratelimit-remaining-tokens": "0",
            },
            360.0,
        ),
        ({"x-ratelimit-reset-requests": "9s", "x-ratelimit-reset-tokens": "1h2m3.5s"}, 9.0),
        ({"x-ratelimit-reset": str(int(NOW.timestamp()) + 30)}, 30.0),
        ({"x-ratelimit-reset": str(int(NOW.timestamp() * 1000) + 30_000)}, 30.0),
        ({"ratelimit-reset": "12"}, 12.0),
        (
            {
                "anthropic-ratelimit-requests-reset": "2026-11-30T12:00:20Z",
                "anthropic-ratelimit-requests-remaining": "0",
            },
            20.0,
        ),
        ({}, None),
        ({"retry-after": "whenever"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "5 apples"}, None),
        ({"retry-after": "2026-11-30T12:01:00"}, None),
    ],
)
def test_every_form_of_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    """R52: seconds, dates, milliseconds, resets of used-up limits; an unparsable one means own back-off."""
    assert asked_pause_s(headers, "", now=NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ('{"error": {"details": [{"@type": "RetryInfo", "retryDelay": "34s"}]}}', 34.0),
        ("Rate limit reached. Please try again in 1.2s. Visit the page", 1.2),
        ("Please try again in 6m0s.", 360.0),
        ("Please try again in 120ms.", 0.12),
        ("Please try again in a while.", None),
    ],
)
def test_a_pause_asked_for_in_the_body(body: str, seconds: float | None) -> None:
    """R52: some say it in the body only."""
    assert asked_pause_s({}, body, now=NOW) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["s", "1x", "1s2", "0x10", "1_000", "--1", "m5", "١s"])
def test_odd_spans_are_no_spans(text: str) -> None:
    """R52: nothing is guessed."""
    assert parse_pause_s(text, now=NOW) is None


def test_back_off_doubles_up_to_its_bound() -> None:
    """R52: 1 s x 2^n up to 32 s, shortened by at most a quarter."""
    assert [backoff_s(n, lambda: 0.0) for n in range(1, 8)] == [1, 2, 4, 8, 16, 32, 32]
    assert [backoff_s(n, lambda: 1.0) for n in (1, 6)] == [0.75, 24]
    assert backoff_s(100_000, lambda: 0.0) == 32, "a member may fail for thousands of runs at once"
