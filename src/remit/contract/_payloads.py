"""The data of each event. Closed: what isn't named here isn't stored."""

from __future__ import annotations

from pydantic import Field

from remit.contract._limits import Limits
from remit.contract._model import Model, Moment
from remit.contract._node import CheckState
from remit.contract._request import RunRequest
from remit.contract._results import CheckResult, Delivery, PatchSummary, Review
from remit.contract._run import RunView, RunWorkspace
from remit.contract._terminal import LimitHit, TerminalClass, TerminalKind
from remit.contract._usage import AttemptUsage, Usage
from remit.contract._words import DeliveryMode, How, Isolation, RunStatus, SandboxLevel, ToolStatus


class RunQueued(Model):
    """The run was admitted."""

    run: RunView
    request: RunRequest
    fingerprint: str
    text_replaced: int = 0
    """Characters of the prompt that can't be stored and became U+FFFD."""
    key_id: str | None = None
    """The key that it was asked with; None: none was needed."""
    ask: str | None = None
    """What a repetition of the call that asked for it has in common with it; None: its door knows none."""


class RunPrepared(Model):
    """The base is pinned and its facts are known (no event of its own: part of `run.started`)."""

    workspace: RunWorkspace
    brief_sha256: str
    notes: tuple[str, ...] = ()
    checks: tuple[CheckState, ...] = ()
    """The checks that were found, why, and how they stand on the base."""


class QueueTimes(Model):
    """What a run waited for while it was queued."""

    turn_ms: int
    """Until no earlier run of its session was active."""
    place_ms: int
    """Until the host had a place for it."""
    preparation_ms: int
    """Until providers and workspace were ready."""


class RunStarted(Model):
    """The run's clock began."""

    started_at: Moment
    deadline_at: Moment
    limits: Limits
    prepared: RunPrepared | None = None
    """None for a run without workspace."""
    queue: QueueTimes | None = None
    """None: not known, since the run is older than that."""


class CancelRequested(Model):
    """Somebody asked for the run to stop."""

    by: str
    reason: str | None = None
    requested_at: Moment


class RunReleased(Model):
    """A draining host gave the run back."""

    reason: str


class RunFinalizing(Model):
    """The review passed; checks and delivery follow."""

    content_hash: str | None = None
    leftovers: tuple[str, ...] = ()
    delivery: Delivery | None = None
    """`awaiting_approval`: the checks are done, and a person's word is waited for. None: not yet."""
    patch: PatchSummary | None = None
    """What the word is about."""


class RunSettling(Model):
    """The decision: how this run ends. First wins."""

    kind: TerminalKind
    class_: TerminalClass | None = Field(default=None, validation_alias="class", serialization_alias="class")
    code: str | None = None
    stage: str | None = None
    limit: LimitHit | None = None
    output: str | None = None
    """Filled when completed, so that a decision found after a crash can be finished."""
    detail: str | None = None
    """What there is to say beyond the terminal's fixed sentence: what the node said, what was wrong with an
    answer, when a host that died was last heard. Untrusted."""


class StageStarted(Model):
    """A stage began."""

    stage_id: str
    status: RunStatus
    """The run's status from here on."""
    prompts_version: int | None = None
    """Which texts the model was told; None: not known, since the run is older than that."""


class StageCompleted(Model):
    """A stage gave a valid answer."""

    stage_id: str
    answer: dict[str, str]


class StageFailed(Model):
    """A stage ended without one."""

    stage_id: str
    class_: TerminalClass = Field(validation_alias="class", serialization_alias="class")
    code: str


class AttemptStarted(Model):
    """A provider request is about to be sent; its ledger row exists from here on."""

    attempt_id: str
    stage_id: str
    round: int
    ordinal: int
    """1 for the first try of this round's request."""
    model: str
    """`NAME:MODEL` of the pool member actually chosen."""
    pool: str | None = None
    """The pool that it was chosen from; a model that was named on its own is a pool of that name."""
    status: str = "started"
    usage: None = None
    reserved_tokens: int
    """Input estimate plus the most output that can come."""
    reserved_micros: int | None = None
    """The same as money; None where the model has no price."""


class AttemptEnded(Model):
    """A provider request ended."""

    attempt_id: str
    stage_id: str
    round: int
    ordinal: int
    model: str
    status: str
    """completed | refused | cut | failed | cancelled | interrupted (its host died first)."""
    usage: AttemptUsage | None
    cost_micros: int | None = None
    price_version: str | None = None
    code: str | None = None
    """A provider code, when it wasn't completed."""
    detail: str | None = None
    """What the provider said, masked and bounded; shown in the attempt's record only."""
    finish: str | None = None
    """The provider's own word for why it stopped."""
    provider_request_id: str | None = None
    duration_ms: int | None = None
    """From its start to its end; None: not known, since its host died first."""
    waited_ms: int = 0
    """Of a rate limit's pause before this attempt."""


class ToolStarted(Model):
    """A tool call is about to be sent to the node."""

    tool_call_id: str
    stage_id: str
    name: str
    status: str = "started"
    exit_code: None = None
    duration_ms: None = None
    receipt_id: None = None
    label: str = ""
    """What it is about, shortened: a path or a command."""


class ToolCompleted(Model):
    """A tool call has its result."""

    tool_call_id: str
    stage_id: str
    name: str
    status: ToolStatus
    exit_code: int | None
    duration_ms: int | None
    """How long it ran; None: it never began, or nobody knows."""
    receipt_id: str | None
    leftovers: tuple[str, ...] = ()
    """Processes that a command left running; they were stopped before it had its result."""


class WorkRegistered(Model):
    """A piece of work that has no events of its own in this log began: a node's call, or a child run.

    A child run's work id and label are its run id; it hangs below the call that starts it.
    """

    kind: str
    label: str


class WorkFinished(Model):
    """It ended."""

    kind: str
    label: str
    how: How
    duration_ms: int | None = None
    """How long it took; None: nobody knows. What a node did is put on record in pairs, after it ended."""


class WorkCleanupFailed(Model):
    """Its clean-up failed; the cancel stands."""

    kind: str
    label: str
    message: str


class CheckoutOpened(Model):
    """The run has its checkout."""

    checkout_id: str
    root: str
    isolation: Isolation
    sandbox: SandboxLevel


class PlanReady(Model):
    """The plan is kept as an artifact of the run."""

    stage_id: str
    sha256: str


class CheckCompleted(Model):
    """One check ran on the result."""

    check: CheckResult


class ReviewDecided(Model):
    """A review said what it thinks of one content."""

    stage_id: str
    review: Review
    output: str
    patch: PatchSummary | None = None


class UsageUpdated(Model):
    """The bill, read after all work has ended."""

    usage: Usage
    cost_usd: float | None
    estimated_max_cost_usd: float | None


class LimitWarning(Model):
    """80 % of a limit is used."""

    kind: str
    value: float | int
    cap: float | int
    stage_id: str | None = None


class DeliveryIntended(Model):
    """The commit point: from here on the result is being delivered."""

    mode: DeliveryMode
    patch: PatchSummary


class DeliveryCompleted(Model):
    """What became of the delivery."""

    delivery: Delivery
    paths: tuple[str, ...] = ()


class NodeChanged(Model):
    """The link to the run's node went or came back."""

    node_id: str
    reason: str | None = None


class RunEnded(Model):
    """The terminal; the event's data is the whole run."""

    run: RunView
