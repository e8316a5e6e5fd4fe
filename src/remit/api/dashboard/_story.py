"""A run's events told as stages, rounds, attempts and tool calls. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from remit import contract
from remit.contract import (
    AttemptEnded,
    AttemptStarted,
    CheckResult,
    CheckState,
    LimitWarning,
    ReviewDecided,
    RunWorkspace,
    ToolCompleted,
    ToolStarted,
)
from remit.events import TERMINAL_TYPES, Event, payload_of

MOST_NOTES: Final = 200
"""Facts beside the stages that are kept; a run that warns more often is told by its last ones."""


@dataclass(slots=True, kw_only=True)
class Span:
    """Something with a beginning and, once it has come, an end."""

    started_at: datetime
    ended_at: datetime | None = None

    def seconds(self, now: datetime) -> float:
        """How long it took, or has taken up to now."""
        return max(0.0, ((self.ended_at or now) - self.started_at).total_seconds())


@dataclass(slots=True, kw_only=True)
class AttemptTold(Span):
    """One provider request."""

    started: AttemptStarted
    ended: AttemptEnded | None = None

    @property
    def status(self) -> str:
        """One of: started, completed, refused, cut, failed, cancelled."""
        return self.started.status if self.ended is None else self.ended.status


@dataclass(slots=True, kw_only=True)
class ToolTold(Span):
    """One tool call."""

    started: ToolStarted
    done: ToolCompleted | None = None

    @property
    def id(self) -> str:
        """The model's id of the call."""
        return self.started.tool_call_id

    @property
    def status(self) -> str:
        """`running`, or what came of it."""
        return "running" if self.done is None else self.done.status


@dataclass(slots=True, kw_only=True)
class RoundTold:
    """A request to the model, its tries, and the tool calls that it asked for."""

    number: int
    attempts: list[AttemptTold] = field(default_factory=list[AttemptTold])
    tools: list[ToolTold] = field(default_factory=list[ToolTold])


@dataclass(slots=True, kw_only=True)
class StageTold(Span):
    """One stage."""

    id: str
    rounds: list[RoundTold] = field(default_factory=list[RoundTold])
    answer: dict[str, str] | None = None
    failure: str | None = None
    """`class/code`."""
    review: ReviewDecided | None = None

    @property
    def status(self) -> str:
        """One of: running, completed, failed, cancelled."""
        if self.failure is not None:
            return "cancelled" if self.failure.startswith("cancelled/") else "failed"
        return "running" if self.answer is None else "completed"


@dataclass(frozen=True, slots=True)
class Note:
    """A fact that belongs to no round."""

    at: datetime
    text: str


class Story:
    """What a run's events tell, as far as they have been read. Fed in order, each event once."""

    def __init__(self) -> None:
        self.seq = 0
        """Of the last event that was read."""
        self.prompt = ""
        self.stages: list[StageTold] = []
        self.notes: list[Note] = []
        self.checks: list[CheckResult] = []
        self.base_checks: tuple[CheckState, ...] = ()
        self.workspace: RunWorkspace | None = None
        self.prepared_notes: tuple[str, ...] = ()
        self.first_at: datetime | None = None
        self.last_at: datetime | None = None
        self.ended = False
        self._by_stage: dict[str, StageTold] = {}
        self._attempts: dict[str, AttemptTold] = {}
        self._tools: dict[tuple[str, str], ToolTold] = {}

    def feed(self, event: Event) -> None:
        """Read one more event; one that was read before changes nothing."""
        if event.seq is None or event.seq <= self.seq:
            return
        self.seq = event.seq
        self.first_at = self.first_at or event.at
        self.last_at = event.at
        if event.type in TERMINAL_TYPES:
            self._end(event.at)
        else:
            self._tell(event)

    def _end(self, at: datetime) -> None:
        self.ended = True
        for span in (*self.stages, *self._attempts.values(), *self._tools.values()):
            span.ended_at = span.ended_at or at

    def _tell(self, event: Event) -> None:
        data, at = payload_of(event), event.at
        match data:
            case contract.RunQueued():
                self.prompt = data.request.prompt or ""
            case contract.RunStarted():
                self._prepare(data)
            case contract.StageStarted():
                stage = StageTold(id=data.stage_id, started_at=at)
                self._by_stage[stage.id] = stage
                self.stages.append(stage)
            case contract.StageCompleted():
                stage = self._stage(data.stage_id, at)
                stage.answer, stage.ended_at = data.answer, at
            case contract.StageFailed():
                stage = self._stage(data.stage_id, at)
                stage.failure, stage.ended_at = f"{data.class_}/{data.code}", at
            case AttemptStarted():
                self._begin_attempt(data, at)
            case AttemptEnded():
                self._end_attempt(data, at)
            case ToolStarted():
                self._begin_tool(data, at)
            case ToolCompleted():
                self._end_tool(data, at)
            case ReviewDecided():
                self._stage(data.stage_id, at).review = data
            case contract.CheckCompleted():
                self.checks = [one for one in self.checks if one.id != data.check.id] + [data.check]
            case _:
                self._note(at, describe(event.type, data))

    def _prepare(self, data: contract.RunStarted) -> None:
        if data.prepared is not None:
            self.workspace = data.prepared.workspace
            self.prepared_notes = data.prepared.notes
            self.base_checks = data.prepared.checks

    def _stage(self, stage_id: str, at: datetime) -> StageTold:
        if stage_id not in self._by_stage:
            self._by_stage[stage_id] = StageTold(id=stage_id, started_at=at)
            self.stages.append(self._by_stage[stage_id])
        return self._by_stage[stage_id]

    def _round(self, stage_id: str, at: datetime, number: int | None = None) -> RoundTold:
        rounds = self._stage(stage_id, at).rounds
        if not rounds or (number is not None and rounds[-1].number != number):
            rounds.append(RoundTold(number=number or 1))
        return rounds[-1]

    def _begin_attempt(self, data: AttemptStarted, at: datetime) -> None:
        told = AttemptTold(started=data, started_at=at)
        self._attempts[data.attempt_id] = told
        self._round(data.stage_id, at, data.round).attempts.append(told)

    def _end_attempt(self, data: AttemptEnded, at: datetime) -> None:
        told = self._attempts.pop(data.attempt_id, None)
        if told is not None:
            told.ended, told.ended_at = data, at

    def _begin_tool(self, data: ToolStarted, at: datetime) -> None:
        told = ToolTold(started=data, started_at=at)
        self._tools[data.stage_id, data.tool_call_id] = told
        self._round(data.stage_id, at).tools.append(told)

    def _end_tool(self, data: ToolCompleted, at: datetime) -> None:
        told = self._tools.pop((data.stage_id, data.tool_call_id), None)
        if told is not None:
            told.done, told.ended_at = data, at

    def _note(self, at: datetime, text: str | None) -> None:
        if text is not None:
            self.notes.append(Note(at, text))
            del self.notes[:-MOST_NOTES]


def describe(type_: str, data: contract.Model) -> str | None:
    """A fact beside the stages in words; None: it is told elsewhere on the page."""
    match data:
        case contract.CancelRequested():
            return f"Cancel requested by {data.by}" + (f": {data.reason}" if data.reason else "")
        case contract.CheckoutOpened():
            return f"Checkout opened at {data.root} ({data.isolation}, {data.sandbox})"
        case contract.RunFinalizing():
            left = f"; left running and ended: {', '.join(data.leftovers)}" if data.leftovers else ""
            return f"Finalizing{left}"
        case contract.RunSettling():
            why = f" {data.class_}/{data.code}" if data.class_ else ""
            return f"Decided: {data.kind}{why}" + (f" ({data.detail})" if data.detail else "")
        case contract.RunReleased():
            return f"Released: {data.reason}"
        case LimitWarning():
            return f"Limit {data.kind}: {data.value:g} of {data.cap:g} used"
        case contract.DeliveryIntended():
            return f"Delivery intended: {data.mode}"
        case contract.DeliveryCompleted():
            return f"Delivery {data.delivery.status} ({data.delivery.mode})"
        case contract.WorkRegistered() | contract.WorkFinished() | contract.WorkCleanupFailed():
            return f"{type_.partition('.')[2].replace('_', ' ').capitalize()}: {data.kind} {data.label}"
        case contract.NodeChanged():
            return f"{type_.replace('.', ' ').capitalize()}: {data.node_id}"
        case _:
            return None
