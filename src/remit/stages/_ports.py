"""What a stage needs from the run around it, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from remit.contract import EarlierTurn, Limits, StageKind, ToolResponse, ToolSpec
from remit.events import Artifact, Ephemeral, NewEvent, TranscriptEntry


class Journal(Protocol):
    """The run's log, as a stage writes it."""

    async def append(
        self,
        *events: NewEvent,
        transcript: Sequence[TranscriptEntry] = (),
        artifacts: Sequence[Artifact] = (),
    ) -> None:
        """Store facts; returns once they are durable."""
        ...

    def hold(self, *events: NewEvent, transcript: Sequence[TranscriptEntry] = ()) -> None:
        """Facts that are stored with the next ones: nothing outside hangs on them yet."""
        ...

    def emit(self, ephemeral: Ephemeral) -> None:
        """Show something to viewers; never waits, may be dropped."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A tool call that a stage wants done."""

    stage_id: str
    tool_call_id: str
    name: str
    arguments: str
    """Exactly as the model wrote it."""


class Tools(Protocol):
    """The run's hands: opens the checkout when first used, registers the work, asks the node.

    A tool-level failure is a `ToolResponse` with that status. Raises `NodeError` when the node is lost or
    can't open the checkout (the run ends with that).
    """

    async def call(self, use: ToolUse, *, max_shown_bytes: int) -> ToolResponse:
        """Do one tool call. Cancellation: the call is stopped on the node first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRecord:
    """A command that a stage ran, for the reviewer."""

    stage_id: str
    command: str
    exit_code: int | None
    status: str
    tail: str
    """The end of its output, bounded; untrusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInput:
    """Everything that one stage starts from."""

    run_id: str
    session_id: str
    stage_id: str
    """`plan`, `work-1`, `review-1`, …"""
    kind: StageKind
    work_id: str
    """The stage's own item in the work registry; attempts hang below it."""
    request_text: str
    messages: tuple[str, ...] = ()
    """What the caller added while the run went on, as far as earlier stages have read it."""
    instructions: str | None
    """The caller's and the binding's standing instructions."""
    brief: str
    """First in the prompt, byte-stable; empty without a workspace."""
    tools: tuple[ToolSpec, ...]
    options: Mapping[str, Any]
    limits: Limits
    require_evidence: bool = True
    session_context: str | None = None
    """Earlier runs of the session, rendered and bounded."""
    earlier: tuple[EarlierTurn, ...] = ()
    """The conversation before the request, where its caller keeps it."""
    images: tuple[str, ...] = ()
    """Data URLs: the request's own pictures."""
    plan: str | None = None
    verification: str | None = None
    """How the plan says the work is to be verified."""
    completion: str | None = None
    """The work stage's completion text, for review."""
    patch: str | None = None
    """The patch so far, for review; bounded by the stage's prompt."""
    commands: tuple[CommandRecord, ...] = ()
    feedback: str | None = None
    """Why the work came back: the review's summary, or the checks that broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageAnswer:
    """A valid answer."""

    fields: Mapping[str, str]
    """plan: plan, verification. work: completion, verification. review: decision, output, summary."""
    rounds: int
    commands: tuple[CommandRecord, ...] = ()
    changed: tuple[str, ...] = ()
    """Paths that file tools of this stage changed (repairs, when it is a review)."""
    used_tools: bool = False


class StageFailure(Exception):
    """The stage has no answer, for a reason that is the stage's own (`invalid_output`, evidence, …).

    Provider, limit and node errors go through as they are; the supervisor classifies them.
    """

    def __init__(self, class_: str, code: str, *, detail: str = "") -> None:
        super().__init__(f"{class_}/{code}: {detail}")
        self.class_ = class_
        self.code = code
        self.detail = detail


@dataclass(slots=True)
class Partial:
    """What a stage had so far, readable while it runs and after it failed."""

    text: str = ""
    """The last text of the model, as of its last request that ended, in whatever way."""
    commands: list[CommandRecord] = field(default_factory=list[CommandRecord])
