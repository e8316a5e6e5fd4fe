"""Runs to store: submissions, facts, and the whole log of a reviewed run as the supervisor writes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from remit.contract import (
    AttemptEnded,
    AttemptStarted,
    AttemptUsage,
    CheckCompleted,
    CheckoutOpened,
    CheckResult,
    Delivery,
    DeliveryCompleted,
    DeliveryIntended,
    Limits,
    Model,
    PatchSummary,
    PlanReady,
    Review,
    ReviewDecided,
    RunEnded,
    RunFinalizing,
    RunPrepared,
    RunRequest,
    RunSettling,
    RunStarted,
    RunStatus,
    RunView,
    RunWorkspace,
    StageCompleted,
    StageStarted,
    Terminal,
    ToolCompleted,
    ToolStarted,
    Usage,
    UsageUpdated,
    WorkFinished,
    WorkRegistered,
)
from remit.events import Artifact, NewEvent, TranscriptEntry
from remit.primitives import clean_text
from remit.runs import Submission

SAMPLE_MOMENT: Final = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SAMPLE_PATCH: Final = PatchSummary(sha256="5e" * 32, files=2, insertions=14, deletions=3, reviewed=True)
_MODEL: Final = "scripted:demo"


def sample_view(run_id: str, *, session_id: str | None = None, **changes: Any) -> RunView:
    """A run that has just been asked for."""
    return RunView(
        id=run_id,
        session_id=session_id or run_id,
        root_run_id=run_id,
        binding=changes.pop("binding", "reviewed"),
        profile="reviewed",
        created_at=changes.pop("created_at", SAMPLE_MOMENT),
        workspace=RunWorkspace(ref="app"),
        limits=Limits(),
        **changes,
    )


def sample_submission(run_id: str, *, epoch: str, **changes: Any) -> Submission:
    """A run that is to be admitted.

    Args:
        run_id: Its id.
        epoch: The host that admits it.
        changes: Other values for the submission's fields, and for `session_id`, `binding`, `prompt`,
            `metadata`, `created_at` and `parent_run_id`.
    """
    prompt = changes.pop("prompt", "Make the failing test pass.")
    names = ("session_id", "binding", "metadata", "created_at", "parent_run_id")
    view = sample_view(run_id, **{name: changes.pop(name) for name in names if name in changes})
    return Submission(
        run=view,
        request=RunRequest(prompt=prompt, metadata=view.metadata),
        fingerprint=changes.pop("fingerprint", f"fingerprint of {clean_text(prompt)[0]}"),
        epoch=epoch,
        **changes,
    )


def fact(type_: str, payload: Model, work_id: str | None = None) -> NewEvent:
    """A new fact."""
    return NewEvent(type=type_, payload=payload, work_id=work_id)


def stage_started(stage_id: str, status: RunStatus) -> NewEvent:
    """A fact that changes the run's row."""
    return fact("stage.started", StageStarted(stage_id=stage_id, status=status), stage_id)


def work_registered(label: str) -> NewEvent:
    """A fact that doesn't."""
    return fact("work.registered", WorkRegistered(kind="node_call", label=label), label)


def work_finished(label: str) -> NewEvent:
    """A fact that only ends something."""
    return fact("work.finished", WorkFinished(kind="node_call", label=label, how="closed"), label)


def attempt_started(attempt_id: str, *, stage_id: str = "plan", round_: int = 1) -> NewEvent:
    """A line of the ledger."""
    payload = AttemptStarted(
        attempt_id=attempt_id,
        stage_id=stage_id,
        round=round_,
        ordinal=1,
        model=_MODEL,
        reserved_tokens=2_000,
    )
    return fact("attempt.started", payload, attempt_id)


def attempt_completed(attempt_id: str, *, stage_id: str = "plan", round_: int = 1) -> NewEvent:
    """The end of that line."""
    raw = {"prompt_tokens": 1_200, "completion_tokens": 80, "prompt_tokens_details": {"cached_tokens": 900}}
    usage = AttemptUsage(
        input_tokens=1_200,
        output_tokens=80,
        cache_read_tokens=900,
        cache_write_tokens=0,
        reasoning_tokens=0,
        total_tokens=1_280,
        coverage="reported",
        raw=raw,
    )
    payload = AttemptEnded(
        attempt_id=attempt_id,
        stage_id=stage_id,
        round=round_,
        ordinal=1,
        model=_MODEL,
        status="completed",
        usage=usage,
        cost_micros=0,
        price_version="free",
        duration_ms=12,
    )
    return fact("attempt.completed", payload, attempt_id)


def settling(kind: Literal["completed", "failed", "cancelled"] = "completed") -> NewEvent:
    """The decision."""
    terminal = sample_terminal(kind)
    payload = RunSettling(
        kind=kind, class_=terminal.class_, code=terminal.code, output="done" if kind == "completed" else None
    )
    return fact("run.settling", payload)


def delivery_intent() -> NewEvent:
    """The commit point."""
    return fact("delivery.intent", DeliveryIntended(mode="patch", patch=SAMPLE_PATCH))


def terminal(view: RunView, kind: Literal["completed", "failed", "cancelled"] = "completed") -> NewEvent:
    """The end of a run that stood like this."""
    changes = {"status": RunStatus(kind), "terminal": sample_terminal(kind), "ended_at": SAMPLE_MOMENT}
    return fact(f"run.{kind}", RunEnded(run=view.model_copy(update=changes)))


def sample_terminal(kind: Literal["completed", "failed", "cancelled"]) -> Terminal:
    """A terminal of that kind."""
    match kind:
        case "completed":
            return Terminal.completed()
        case "failed":
            return Terminal.of("workspace", "storage_full")
        case "cancelled":
            return Terminal.of("cancelled", "caller")


def message(stage_id: str, position: int, text: str) -> TranscriptEntry:
    """A message of a conversation."""
    role = "user" if position % 2 == 0 else "assistant"
    return TranscriptEntry(stage_id=stage_id, position=position, role=role, body={"text": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One call of `append`, or of `finish` where it ends the run."""

    events: tuple[NewEvent, ...]
    transcript: tuple[TranscriptEntry, ...] = ()
    artifacts: tuple[Artifact, ...] = ()


def reviewed_run(view: RunView) -> Iterator[Write]:
    """What a supervisor stores of a reviewed run with a tool call and a check; the last one is its end."""
    yield Write(events=(_started(),))
    yield from _stage(
        "plan", RunStatus.PLANNING, answer={"plan": "1. Look. 2. Fix.", "verification": "pytest"}
    )
    yield Write(
        events=(fact("plan.ready", PlanReady(stage_id="plan", sha256="ab" * 32)),),
        artifacts=(Artifact(name="plan", text="1. Look. 2. Fix."),),
    )
    yield Write(events=(work_registered("open"),))
    opened = CheckoutOpened(checkout_id="co_1", root="/srv/app", isolation="overlay", sandbox="bubblewrap")
    yield Write(events=(fact("checkout.opened", opened), work_finished("open")))
    answer = {"completion": "Fixed it.", "verification": "12 passed"}
    yield from _stage("work-1", RunStatus.WORKING, answer=answer, tool=True)
    yield from _stage(
        "review-1", RunStatus.REVIEWING, answer={"decision": "pass", "output": "Fixed.", "summary": ""}
    )
    yield from _ending(view)


def _started() -> NewEvent:
    where = RunWorkspace(
        ref="app", node_id="local", base="git:9f3c", isolation="overlay", sandbox="bubblewrap"
    )
    payload = RunStarted(
        started_at=SAMPLE_MOMENT,
        deadline_at=SAMPLE_MOMENT + timedelta(hours=1),
        limits=Limits(),
        prepared=RunPrepared(workspace=where, brief_sha256="cd" * 32),
    )
    return fact("run.started", payload)


def _stage(
    stage_id: str, status: RunStatus, *, answer: dict[str, str], tool: bool = False
) -> Iterator[Write]:
    first, second = f"{stage_id}-1", f"{stage_id}-2"
    yield Write(
        events=(stage_started(stage_id, status), attempt_started(first, stage_id=stage_id)),
        transcript=(message(stage_id, 0, "The request and the brief. " * 40),),
    )
    yield Write(
        events=(attempt_completed(first, stage_id=stage_id),),
        transcript=(message(stage_id, 1, "I look at the files first."),),
    )
    if tool:
        yield from _tool_round(stage_id, second)
    yield Write(events=(fact("stage.completed", StageCompleted(stage_id=stage_id, answer=answer), stage_id),))


def _tool_round(stage_id: str, attempt_id: str) -> Iterator[Write]:
    call: dict[str, Any] = {"tool_call_id": "call_1", "stage_id": stage_id, "name": "run_shell"}
    yield Write(events=(fact("tool.started", ToolStarted(**call, label="pytest -q"), "call_1"),))
    done = ToolCompleted(**call, status="success", exit_code=0, duration_ms=420, receipt_id="rc_1")
    yield Write(
        events=(fact("tool.completed", done, "call_1"),),
        transcript=(message(stage_id, 2, "12 passed in 0.40 s. " * 60),),
    )
    yield Write(events=(attempt_started(attempt_id, stage_id=stage_id, round_=2),))
    yield Write(
        events=(attempt_completed(attempt_id, stage_id=stage_id, round_=2),),
        transcript=(message(stage_id, 3, "All pass now."),),
    )


def _ending(view: RunView) -> Iterator[Write]:
    review = Review(decision="pass", summary="", content_hash="ef" * 32)
    decided = ReviewDecided(stage_id="review-1", review=review, output="Fixed.", patch=SAMPLE_PATCH)
    yield Write(
        events=(fact("review.decided", decided),),
        artifacts=(Artifact(name="patch", text="--- a/x\n+++ b/x\n" * 20, media_type="text/x-diff"),),
    )
    yield Write(
        events=(fact("run.finalizing", RunFinalizing(content_hash="ef" * 32)), work_registered("check"))
    )
    check = CheckResult(id="test", base_exit=1, exit=0, ms=400, gate="pass")
    yield Write(events=(fact("check.completed", CheckCompleted(check=check)), work_finished("check")))
    yield Write(events=(delivery_intent(), work_registered("deliver")))
    delivery = Delivery(mode="patch", status="delivered")
    delivered = fact("delivery.completed", DeliveryCompleted(delivery=delivery, paths=("x",)))
    yield Write(events=(delivered, work_finished("deliver")))
    yield Write(events=(settling(), work_registered("cleanup")))
    yield Write(events=(work_finished("cleanup"),))
    usage = Usage(input_tokens=4_800, output_tokens=320, total_tokens=5_120)
    updated = UsageUpdated(usage=usage, cost_usd=0.0, estimated_max_cost_usd=0.0)
    ended = view.model_copy(
        update={
            "output": "Fixed.",
            "review": review,
            "checks": (check,),
            "patch": SAMPLE_PATCH,
            "delivery": delivery,
        }
        | {"usage": usage, "cost_usd": 0.0, "estimated_max_cost_usd": 0.0}
    )
    yield Write(events=(fact("usage.updated", updated), terminal(ended)))
