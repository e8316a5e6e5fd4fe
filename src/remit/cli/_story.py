"""A run as a person follows it: a pure fold over its events, for tree, plain lines and `show`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from remit.contract import (
    AttemptEnded,
    AttemptStarted,
    CheckoutOpened,
    DeliveryCompleted,
    LimitWarning,
    Model,
    ReviewDecided,
    RunFinalizing,
    RunPrepared,
    RunQueued,
    RunSettling,
    RunStarted,
    RunView,
    StageCompleted,
    StageFailed,
    StageStarted,
    ToolCompleted,
    ToolStarted,
    WorkKind,
    WorkRegistered,
)
from remit.events import EPHEMERAL_TYPES, Event, payload_of
from remit.runs import fold_event

StageState = Literal["running", "done", "failed"]
_HEARD_CHARS = 400


@dataclass(slots=True, kw_only=True)
class CallStory:
    """One tool call."""

    started: ToolStarted
    """Its label, a path or a command, was written by the model: untrusted."""
    round: int
    started_at: datetime
    completed: ToolCompleted | None = None
    child_id: str | None = None
    """The run that it started."""

    @property
    def went_well(self) -> bool:
        """Whether it did what it should: a command that exits non-zero didn't."""
        done = self.completed
        return done is not None and done.status == "success" and done.exit_code in (None, 0)


@dataclass(slots=True, kw_only=True)
class AttemptStory:
    """One request to a model."""

    started: AttemptStarted
    started_at: datetime
    ended: AttemptEnded | None = None


@dataclass(slots=True, kw_only=True)
class StageStory:
    """One stage."""

    stage_id: str
    started_at: datetime
    state: StageState = "running"
    ended_at: datetime | None = None
    answer: dict[str, str] = field(default_factory=dict[str, str])
    failure: StageFailed | None = None
    review: ReviewDecided | None = None
    calls: list[CallStory] = field(default_factory=list[CallStory])
    attempts: list[AttemptStory] = field(default_factory=list[AttemptStory])
    heard: str = ""
    """The end of what the model is saying now; untrusted."""

    def add(self, payload: Model, at: datetime) -> None:
        """One more fact of this stage."""
        match payload:
            case StageCompleted():
                self.state, self.ended_at, self.answer = "done", at, payload.answer
            case StageFailed():
                self.state, self.ended_at, self.failure = "failed", at, payload
            case AttemptStarted():
                self.heard = ""
                self.attempts.append(AttemptStory(started=payload, started_at=at))
            case AttemptEnded():
                for attempt in self.attempts:
                    if attempt.started.attempt_id == payload.attempt_id:
                        attempt.ended = payload
            case ToolStarted():
                self.calls.append(CallStory(started=payload, round=self.rounds, started_at=at))
            case ToolCompleted():
                for call in self.calls:
                    if call.started.tool_call_id == payload.tool_call_id and call.completed is None:
                        call.completed = payload
            case ReviewDecided():
                self.review = payload
            case _:
                pass

    @property
    def kind(self) -> str:
        """plan, work or review."""
        return self.stage_id.partition("-")[0]

    @property
    def rounds(self) -> int:
        """How many rounds it has had."""
        return max((attempt.started.round for attempt in self.attempts), default=0)

    @property
    def asking(self) -> AttemptStory | None:
        """The request in flight."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.ended is None else None

    @property
    def trouble(self) -> AttemptEnded | None:
        """The last request's end, where it went wrong and none has followed."""
        ended = self.attempts[-1].ended if self.attempts else None
        return None if ended is None or ended.status in ("completed", "cancelled") else ended


@dataclass(slots=True)
class Story:
    """All of a run that is worth telling, as of the last event."""

    view: RunView | None = None
    prompt: str = ""
    text_replaced: int = 0
    prepared: RunPrepared | None = None
    stages: list[StageStory] = field(default_factory=list[StageStory])
    warnings: list[LimitWarning] = field(default_factory=list[LimitWarning])
    leftovers: tuple[str, ...] = ()
    root: str | None = None
    """Where the checkout appeared: the workspace's own folder."""
    delivered: DeliveryCompleted | None = None
    detail: str | None = None
    """What the node said of the run's end, where the workspace was to blame."""
    total_tokens: int = 0
    cost_micros: int = 0
    is_priced: bool = True
    """False once an attempt ended without a price."""

    def add(self, event: Event) -> None:
        """One more event."""
        if event.type in EPHEMERAL_TYPES:
            self._hear(event)
            return
        self.view = fold_event(self.view, event)
        payload = payload_of(event)
        self._add_to_run(payload)
        if isinstance(payload, WorkRegistered) and payload.kind == WorkKind.RUN:
            self._name_child(event)
        stage = self.find_stage(getattr(payload, "stage_id", ""))
        if isinstance(payload, StageStarted):
            self.stages.append(StageStory(stage_id=payload.stage_id, started_at=event.at))
        elif stage is not None:
            stage.add(payload, event.at)

    def find_stage(self, stage_id: str | None) -> StageStory | None:
        """The stage of that id."""
        return next((stage for stage in self.stages if stage.stage_id == stage_id), None)

    @property
    def running_stage(self) -> StageStory | None:
        """The stage that goes on now."""
        last = self.stages[-1] if self.stages else None
        return last if last is not None and last.state == "running" else None

    def _name_child(self, event: Event) -> None:
        """A call of this run has started a run of its own."""
        for stage in self.stages:
            for call in stage.calls:
                if event.parent_work_id == f"{event.run_id}.{stage.stage_id}.{call.started.tool_call_id}":
                    call.child_id = event.work_id

    def _hear(self, event: Event) -> None:
        stage = self.find_stage(str(event.data.get("stage_id")))
        if stage is not None and event.type == "message.delta":
            stage.heard = (stage.heard + str(event.data.get("text", "")))[-_HEARD_CHARS:]

    def _add_to_run(self, payload: Model) -> None:
        match payload:
            case RunQueued():
                self.prompt = payload.request.text()
                self.text_replaced = payload.text_replaced
            case RunStarted():
                self.prepared = payload.prepared
            case RunFinalizing():
                self.leftovers = payload.leftovers
            case RunSettling():
                self.detail = payload.detail
            case CheckoutOpened():
                self.root = payload.root
            case LimitWarning():
                self.warnings.append(payload)
            case DeliveryCompleted():
                self.delivered = payload
            case AttemptEnded():
                self._add_to_bill(payload)
            case _:
                pass

    def _add_to_bill(self, ended: AttemptEnded) -> None:
        if ended.usage is not None:
            self.total_tokens += ended.usage.total_tokens or 0
        if ended.cost_micros is not None:
            self.cost_micros += ended.cost_micros
        elif ended.status != "refused":
            self.is_priced = False
