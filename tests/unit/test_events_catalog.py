"""Events: which there are, and how they are written and read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from remit.contract import CancelRequested, Limits, PlanReady, RunEnded, RunView, WorkFinished, WorkRegistered
from remit.errors import InternalError
from remit.events import (
    EPHEMERAL_TYPES,
    PAYLOADS,
    TERMINAL_TYPES,
    NewEvent,
    closing_among,
    decode_event,
    encode_event,
    number_event,
    payload_of,
    terminal_type,
)

NOW = datetime(2026, 11, 30, tzinfo=UTC)
TYPES = [
    "run.queued",
    "run.started",
    "run.cancel_requested",
    "run.released",
    "run.finalizing",
    "run.settling",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "run.indeterminate",
    "stage.started",
    "stage.completed",
    "stage.failed",
    "attempt.started",
    "attempt.completed",
    "attempt.failed",
    "tool.started",
    "tool.completed",
    "work.registered",
    "work.finished",
    "work.cleanup_failed",
    "checkout.opened",
    "plan.ready",
    "check.completed",
    "review.decided",
    "usage.updated",
    "limit.warning",
    "delivery.intent",
    "delivery.completed",
    "node.lost",
    "node.back",
]


def numbered(new: NewEvent) -> str:
    return encode_event(number_event(new, seq=1, run_id="run_1", session_id="run_1", at=NOW))


def test_the_types_are_those_of_the_contract() -> None:
    """Interfaces, section 5: these and no others."""
    assert sorted(PAYLOADS) == sorted(TYPES)
    assert {"message.delta", "reasoning.delta", "tool.output"} == EPHEMERAL_TYPES


def test_an_event_goes_round() -> None:
    """One line of JSON with the keys of the stream, and back into its own shape."""
    asked = CancelRequested(by="caller", reason="x\u2028y", requested_at=NOW)
    line = numbered(NewEvent(type="run.cancel_requested", payload=asked, work_id="run_1"))
    assert len(line.splitlines()) == 1
    event = decode_event(line)
    assert list(event.to_json()) == [
        "type",
        "seq",
        "run_id",
        "session_id",
        "at",
        "work_id",
        "parent_work_id",
        "data",
    ]
    assert payload_of(event) == asked


def test_a_terminal_holds_the_whole_run() -> None:
    """R16: the terminal event's data is the run as the API shows it."""
    run = RunView(
        id="run_1",
        session_id="run_1",
        root_run_id="run_1",
        binding="b",
        profile="direct",
        created_at=NOW,
        limits=Limits(),
    )
    event = decode_event(numbered(NewEvent(type=terminal_type("failed"), payload=RunEnded(run=run))))
    assert event.type in TERMINAL_TYPES
    assert event.data == run.to_json()
    assert payload_of(event) == RunEnded(run=run)


def test_data_of_another_shape_is_refused() -> None:
    """What may be recorded is closed."""
    with pytest.raises(InternalError):
        numbered(NewEvent(type="run.settling", payload=PlanReady(stage_id="plan", sha256="0")))
    with pytest.raises(InternalError):
        numbered(NewEvent(type="run.sung", payload=PlanReady(stage_id="plan", sha256="0")))


def test_events_of_the_future_are_refused() -> None:
    """An older Remit doesn't guess what a newer one wrote."""
    line = numbered(NewEvent(type="plan.ready", payload=PlanReady(stage_id="plan", sha256="0")))
    with pytest.raises(InternalError):
        decode_event(line, version=99)


def test_what_ends_something_has_its_beginning_with_it() -> None:
    """R60: work that was begun and ended together is kept whole; what goes on, and what is new, isn't."""

    def work(what: str, label: str) -> NewEvent:
        made = WorkRegistered(kind="tool", label=label)
        ended = WorkFinished(kind="tool", label=label, how="closed")
        payload = made if what == "registered" else ended
        return NewEvent(type=f"work.{what}", payload=payload, work_id=label)

    plan = NewEvent(type="plan.ready", payload=PlanReady(stage_id="plan", sha256="0" * 64))
    events = [work("registered", "a"), plan, work("registered", "b"), work("finished", "a")]
    assert closing_among(events) == [events[0], events[3]]
    assert closing_among([plan]) == []
