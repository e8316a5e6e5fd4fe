"""What a chat client is shown of a run's events: pure."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import pytest

from remit.api.dialects import pieces_of, progress_line, tell
from remit.api.dialects._faults import fault_of, status_of
from remit.api.dialects._foreground import ask_id
from remit.api.dialects._starting import as_session_id
from remit.api.dialects._telling import Over, Piece, Progress
from remit.contract import CODES, Terminal
from remit.errors import (
    InvalidRequest,
    MethodNotAllowed,
    QueueFull,
    QuotaExceeded,
    SessionBusy,
    Unauthenticated,
)
from remit.events import Event
from remit.primitives import is_run_id


def event(type_: str, **data: Any) -> Event:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    return Event(type=type_, seq=1, run_id="r", session_id="r", at=now, data=data)


def delta(text: str, offset: int, attempt: str = "a1") -> Event:
    return event("message.delta", text=text, attempt_id=attempt, offset_chars=offset)


async def told_of(*events: Event, progress: bool = True, live: bool = True) -> list[Any]:
    async def play() -> AsyncGenerator[Event]:
        for one in events:
            yield one

    return [one async for one in tell(play(), progress=progress, live=live)]


async def test_live_text_is_joined_and_cleaned() -> None:
    """Pieces in their places; what can't be stored is replaced, as in the answer itself."""
    told = await told_of(delta("ab", 0), delta("c\x00", 2), event("run.completed"), delta("late", 4))
    assert told == [Piece("ab"), Piece("c\ufffd"), Over()]


@pytest.mark.parametrize("second", [delta("d", 5), delta("d", 0, "a2"), delta("d", 2, "a2")])
async def test_live_text_stops_where_it_isnt_whole(second: Event) -> None:
    """A piece that fell off a slow viewer's line, or a further attempt: nothing is shown after it."""
    assert await told_of(delta("ab", 0), second, delta("c", 2)) == [Piece("ab"), Over()]


async def test_progress_in_lines() -> None:
    """Only what a client wants to know; control characters of a tool's label never get out (R49)."""
    events = (
        event("run.queued"),
        event("stage.started", stage_id="work-2"),
        event("tool.started", name="run_shell", label="echo \x1b[31m\n" + "x" * 300),
        event("check.completed", check={"id": "unit", "exit": 1, "gate": "worse"}),
        event("review.decided", review={"decision": "revise"}),
        event("limit.warning", kind="max_cost_usd"),
    )
    told = await told_of(*events, live=False)
    lines = [one.text for one in told if isinstance(one, Progress)]
    assert lines[0] == "Working again.\n"
    assert lines[1].startswith("run_shell echo  [31m xxx")
    assert len(lines[1]) == 201
    assert lines[2:] == [
        "Check unit: exit 1 (worse).\n",
        "The review says revise.\n",
        "80 % of max_cost_usd is used.\n",
    ]
    assert await told_of(*events, progress=False, live=False) == [Over()]
    assert progress_line(event("stage.started", stage_id="plan")) == "Planning."


def test_texts_are_always_cut_alike() -> None:
    """R66: the same text gives the same pieces, and together they are the text."""
    text = "a" * 4_000
    assert list(pieces_of(text)) == list(pieces_of(text))
    assert "".join(pieces_of(text)) == text
    assert list(pieces_of("")) == []


def test_every_end_has_its_status() -> None:
    """The table of statuses, for every class and code that there is."""
    found = {
        (class_, code): status_of(Terminal.of(class_, code))
        for class_, codes in CODES.items()
        for code in codes
    }
    special = {
        ("provider", "rate_limited"): 429,
        ("provider", "context_length"): 400,
        ("provider", "content_filter"): 400,
        ("workspace", "delivery_refused"): 409,
        ("workspace", "delivery_conflict"): 409,
    }
    usual = {
        "provider": 502, "budget": 504, "timeout": 504, "workspace": 503, "invalid_output": 502,
        "rejected": 422, "cancelled": 499, "internal": 500, "usage": 500, "lost": 500,
    }  # fmt: skip
    for (class_, code), status in found.items():
        assert status == special.get((class_, code), usual[class_]), (class_, code)


def test_errors_as_faults() -> None:
    """R73: a wrong field is 400; what may be tried again says when, and only that is retryable."""
    wrong = fault_of(InvalidRequest("no", param="x\x00"))
    assert (wrong.status, wrong.param, wrong.headers()["x-should-retry"]) == (400, "x\ufffd", "false")
    full = fault_of(QueueFull("full", retry_after_ms=1_500))
    assert (full.status, full.headers()["Retry-After"], full.headers()["x-should-retry"]) == (
        503,
        "2",
        "true",
    )
    assert fault_of(QuotaExceeded("much")).headers()["Retry-After"] == "5"
    assert "Retry-After" not in fault_of(SessionBusy("busy")).headers()
    assert fault_of(MethodNotAllowed("no", allow="GET")).headers()["Allow"] == "GET"
    assert "Bearer" in fault_of(Unauthenticated("no")).headers()["WWW-Authenticate"]


def test_what_makes_two_calls_the_same() -> None:
    """R80: no two sets of parts share an id, however they are cut."""
    ids = {
        ask_id(b"a", b"bc"),
        ask_id(b"ab", b"c"),
        ask_id(b"abc"),
        ask_id(b"", b"abc"),
        ask_id(b"a", b"b", b"c"),
    }
    assert len(ids) == 5
    assert ask_id(b"a", b"bc") == ask_id(b"a", b"bc")


def test_session_names_become_ids() -> None:
    """A name that can be an id is one; any other gets one of its own, always the same."""
    assert as_session_id("thread-1") == "thread-1"
    odd = [as_session_id(name) for name in ("a/b", "a b", "", "x" * 300, "\ud800", "\u00e9")]
    assert all(is_run_id(one) for one in odd)
    assert len(set(odd)) == len(odd)
    assert as_session_id("a/b") == odd[0]
