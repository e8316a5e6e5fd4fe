"""The shapes of the native API beside those of the contract. OpenAPI is made from them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, StrictBool

from remit.contract import (
    ApiKey,
    AttemptUsage,
    CancelReceipt,
    Coverage,
    Delivery,
    DeliveryMode,
    LimitRequest,
    Model,
    Moment,
    Profile,
    RunStatus,
    RunView,
    StageKind,
    Terminal,
    TokenCounts,
    Usage,
    WorkKind,
)
from remit.events import Event
from remit.runs import MAX_MESSAGE_CHARS
from remit.work import ObservedStage


class Problem(Model):
    """An error (RFC 9457). The same keys always."""

    type: str
    title: str
    status: int
    code: str
    """Stable word for programs."""
    detail: str
    param: str | None
    """The field that is to blame; None where none is."""
    retryable: bool
    """Whether the same request may succeed later without being changed."""
    request_id: str


class Page(Model):
    """What every list has."""

    next_cursor: str | None = None
    """`cursor` (or `after`) of the next page; None: this was the last."""


class RunPage(Page):
    """Runs, newest first."""

    data: tuple[RunView, ...]


class EventPage(Page):
    """Stored events, in order."""

    data: tuple[Event, ...]


class RunEnd(Model):
    """How a run stands, in short."""

    id: str
    status: RunStatus
    terminal: Terminal | None


class CancelBody(Model):
    """Why, and whether an id that nobody knows yet is to be dead for ever."""

    reason: str | None = Field(default=None, max_length=1_000)
    tombstone: StrictBool = False


class CancelAnswer(Model):
    """What a cancel did."""

    changed: bool
    """False: the run had ended, or was committed to its end; nothing changed."""
    run: RunEnd
    receipt: CancelReceipt | None
    """None where no cancel counts."""


class AcknowledgeBody(Model):
    """The caller's answer to a run that waits for it."""

    accepted: StrictBool


class InputBody(Model):
    """What the caller adds while the run goes on."""

    text: str = Field(min_length=1, max_length=MAX_MESSAGE_CHARS)


class DeliverBody(Model):
    """What is allowed by hand, where the run's binding lets its callers."""

    unreviewed: StrictBool = False
    """Whether a patch that no review has passed may be applied."""
    allow_protected: StrictBool = False
    """Whether protected paths may be touched."""
    branch: str | None = None
    """A new branch that gets it as a commit; None: the workspace's tree does."""


class Delivered(Model):
    """What became of a patch by hand."""

    run: RunEnd
    delivery: Delivery


class Changed(Model):
    """Whether something was changed, and how the run stands."""

    changed: bool
    run: RunEnd


class WorkEntry(Model):
    """One piece of live work."""

    work_id: str
    parent: str | None
    """None: it is a root, or its parent has ended."""
    kind: WorkKind
    label: str
    status: Literal["running", "cancelling"]
    stage: ObservedStage | None
    """Where it was seen last: on its way (`dispatch`), sent and waiting for its answer (`receipt_wait`),
    being stopped or put away (`cleanup`), being put on record (`retirement`). None: nowhere in particular,
    as a stage of a run, or a run whose end isn't decided."""
    elapsed_ms: int | None
    """Since it was seen there; None with no stage."""
    cancellable: bool


class WorkPage(Page):
    """Live work, by work id. Two pages aren't one snapshot."""

    data: tuple[WorkEntry, ...]


class WorkNode(WorkEntry):
    """One piece of live work with what it has started."""

    children: tuple[WorkNode, ...] = ()


class WorkTree(Page):
    """Live work, nested."""

    data: tuple[WorkNode, ...]


class WorkCancelled(Model):
    """What was asked to stop; `changed` is false where it was asked before."""

    changed: bool
    work: WorkEntry


class HistoryLine(Model):
    """A fact about a run after its terminal."""

    at: Moment
    type: str
    data: dict[str, Any]


class HistoryPage(Page):
    """The host log of a run, in order."""

    data: tuple[HistoryLine, ...]


class TranscriptLine(Model):
    """One message of a stage's conversation."""

    stage_id: str
    position: int
    role: Literal["system", "user", "assistant", "tool"]
    body: dict[str, Any]


class TranscriptPage(Page):
    """Conversations, by stage, then by position."""

    data: tuple[TranscriptLine, ...]


class ArtifactName(Model):
    """A named text of a run."""

    name: str


class ArtifactPage(Page):
    """The names of a run's artifacts."""

    data: tuple[ArtifactName, ...]


class AttemptLine(Model):
    """One physical provider request, with the provider's own usage object."""

    attempt_id: str
    stage_id: str
    round: int
    ordinal: int
    model: str
    status: str
    started_at: Moment
    ended_at: Moment | None
    usage: AttemptUsage | None
    cost_usd: float | None
    price_version: str | None
    code: str | None
    detail: str | None
    provider_request_id: str | None
    duration_ms: int | None


class RunUsage(Page):
    """The ledger of a run, and its bill as of now."""

    data: tuple[AttemptLine, ...]
    usage: Usage
    cost_usd: float | None
    estimated_max_cost_usd: float | None


class UsageLine(TokenCounts):
    """What was used under one heading."""

    group: str | None
    """None: what has no such heading, such as runs that needed no key."""
    runs: int
    cost_usd: float | None
    """A number only where every attempt is complete and priced."""
    estimated_max_cost_usd: float | None
    complete: bool
    coverage: Coverage


class UsageReport(Page):
    """Usage of the caller's tenant, counted by run and attempt."""

    group_by: str
    data: tuple[UsageLine, ...]
    total: UsageLine


class SessionView(Model):
    """A thread of runs."""

    id: str
    runs: int
    active_runs: int
    created_at: Moment
    last_run_at: Moment
    last_run_id: str


class SessionPage(Page):
    """Sessions, the one with the newest run first."""

    data: tuple[SessionView, ...]


class StageView(Model):
    """Who a stage asks."""

    pool: str | None
    model: str | None


class BindingView(Model):
    """A binding, as its callers may see it."""

    name: str
    profile: Profile
    workspace: str | None
    delivery: DeliveryMode
    stages: dict[StageKind, StageView]
    limits: LimitRequest
    require_evidence: bool
    allow_models: tuple[str, ...]
    allow_override: tuple[str, ...]


class BindingPage(Page):
    """The bindings that the key may use, by name."""

    data: tuple[BindingView, ...]


class MemberView(Model):
    """A model of a pool."""

    model: str
    order: int
    weight: float
    max_concurrency: int | None


class PoolView(Model):
    """Models that can serve a stage."""

    name: str
    members: tuple[MemberView, ...]


class PoolPage(Page):
    """Pools, by name."""

    data: tuple[PoolView, ...]


class WorkspaceView(Model):
    """A workspace, as callers may see it: not where it lies."""

    ref: str
    node_id: str
    operations: tuple[str, ...]
    shell: bool
    network: bool
    isolation: str
    sandbox: str
    checks: tuple[str, ...] | None
    """None: found from the project's files."""
    gate: str


class WorkspacePage(Page):
    """Workspaces, by ref."""

    data: tuple[WorkspaceView, ...]


class NodeView(Model):
    """A node as the host knows it."""

    id: str
    alias: str | None
    connected: bool
    state: Literal["starting", "ready", "lost", "closed"]
    """`lost`: its process has ended, and another one is being started."""
    pid: int | None
    """Its process on the host's machine, for keys with the scope `admin`."""
    sandbox: str | None
    isolation: str | None
    workspaces: tuple[str, ...]
    calls: tuple[CallProcesses, ...] | None = None
    """The tenant's tool calls that have processes now; None: it wasn't asked for."""


class CallProcesses(Model):
    """A tool call's processes."""

    work_id: str
    pids: tuple[int, ...]
    """On the node's machine."""


class NodePage(Page):
    """Nodes."""

    data: tuple[NodeView, ...]


class KeyView(ApiKey):
    """A key, with what its runs have cost."""

    spent_usd: float
    """USD; what isn't known, or is in flight, counts at its worst."""


class KeyPage(Page):
    """The tenant's keys, without their secrets, in the order in which they were made."""

    data: tuple[KeyView, ...]


class HostView(Model):
    """The host itself."""

    epoch: str
    status: Literal["starting", "recovering", "ready", "draining"]
    version: str
    residencies: dict[str, int]
    """Why it can't be settled yet: how many there are of each label. For `admin` only; else empty."""
    running: int
    queued: int
    max_running: int
    max_queued: int


class Health(Model):
    """A sign of life."""

    status: str
