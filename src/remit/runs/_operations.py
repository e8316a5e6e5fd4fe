"""The five operations of hosted execution, as the shapes that go in and come out.

    session.create   where, and with whom            -> created, session
    turn.start       what is to be done              -> started, turn | blocked
    turn.query       how it stands                   -> turn
    turn.stop        end it, and wait until it has   -> turn
    usage.query      what it used                    -> summary, provenance

Every operation answers `{ok: true, result}` or `{ok: false, error}`; it never raises what it declares.
A turn is a run, under its own id: `turn_id` and the run's id are one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from pydantic import Field

from remit.admission import Caller
from remit.contract import (
    ContentPart,
    DeliveryRequest,
    EarlierTurn,
    LimitRequest,
    Model,
    Moment,
    OnBusy,
    Preserve,
    Profile,
    RunStatus,
    StageKind,
    StageRequest,
    TokenCounts,
    WorkspaceRequest,
)
from remit.errors import InternalError, RemitError
from remit.runs._control import CancelBy
from remit.work import Residencies, Residency

# ---- where, and with whom


class ModelTarget(Model):
    """An explicit model: nothing is chosen for the caller."""

    connection_id: str
    """The provider's key in the settings."""
    connection_slug: str
    """The name by which a model of it is written, `SLUG:MODEL`. Here the two are one."""
    model: str


class SessionSpec(Model):
    """The part of a request that says where it works and who is asked."""

    session_id: str | None = None
    continues: str | None = None
    on_busy: OnBusy | None = None
    binding: str | None = None
    profile: Profile | None = None
    folder: str | None = None
    """A workspace's root on its node, instead of its name."""
    workspace: WorkspaceRequest | None = None
    target: ModelTarget | None = None
    """Instead of `model`."""
    model: str | None = None
    stages: dict[StageKind, StageRequest] = Field(default_factory=dict[StageKind, StageRequest])


class TurnSpec(Model):
    """The part of a request that says what is to be done, and how far it may go."""

    id: str | None = None
    prompt: str | None = None
    content: tuple[ContentPart, ...] | None = None
    instructions: str | None = None
    earlier: tuple[EarlierTurn, ...] = ()
    limits: LimitRequest = Field(default_factory=LimitRequest)
    delivery: DeliveryRequest | None = None
    preserve: Preserve | None = None
    usage: Literal["required"] | None = None
    acknowledge: Literal["required"] | None = None
    webhook: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    in_place: bool = False
    unreviewed: bool = False
    allow_protected: bool = False


# ---- what goes in


class SessionCreate(Model):
    """`session.create`: checks everything that can be checked, and stores nothing."""

    session_id: str | None
    """None: whatever the request leads to."""
    turn_id: str
    session: SessionSpec
    turn: TurnSpec
    """What is going to be done in it; it is looked at, not started."""


class TurnStart(Model):
    """`turn.start`: stores the run and starts it, once per id; a repetition joins it."""

    session: Session
    turn_id: str
    turn: TurnSpec
    idempotency_key: str | None = None
    text_replaced: int = 0
    """Characters that whoever asks has replaced already, since they can't be stored."""


class TurnQuery(Model):
    """`turn.query`: reads. With `wait_ms` it waits so long for the end, and then answers all the same."""

    session_id: str
    turn_id: str
    wait_ms: int = Field(default=0, ge=0)


class TurnStop(Model):
    """`turn.stop`: asks, then waits until the end is durable; a repetition joins."""

    session_id: str
    turn_id: str
    by: CancelBy = "caller"
    reason: str | None = None
    tombstone: bool = False
    """Whether an id that nobody knows yet is to be dead for ever; else it is an error."""


class UsageRange(Model):
    """Between which moments the caller looked. It selects nothing: usage belongs to run and attempt."""

    start: Moment
    end: Moment


class UsageQuery(Model):
    """`usage.query`: reads the ledger of one run."""

    session_id: str
    turn_id: str
    range: UsageRange | None = None


Operation: TypeAlias = SessionCreate | TurnStart | TurnQuery | TurnStop | UsageQuery


# ---- what comes out


class Session(Model):
    """A session, and what was settled about it. Who has one may start a turn in it."""

    session_id: str
    spec: SessionSpec
    """As it was asked for."""
    binding: str
    profile: Profile
    workspace: str | None
    """The workspace's ref."""
    created: bool
    """False: the session had runs before."""


class SessionCreated(Model):
    """The answer to `session.create`."""

    kind: Literal["created"] = "created"
    session: Session


class TurnSnapshot(Model):
    """How a turn stands."""

    session_id: str
    turn_id: str
    run_id: str
    status: RunStatus
    step_cap: int | None
    """Tool rounds that each stage may have; None for an id that never became a run."""
    started_at: Moment | None
    """None while it is queued."""
    completed_at: Moment | None = None
    """Only with an ended one."""
    failure_class: str | None = None
    """`CLASS/CODE`, only where it failed or where its end isn't known."""


class SkillInvocation(Model):
    """What was loaded for the turn beside its request. There is nothing of that kind here: all are empty."""

    loaded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    receipts: tuple[str, ...] = ()


class TurnStarted(Model):
    """The run is stored and has begun, or had."""

    kind: Literal["started"] = "started"
    turn: TurnSnapshot
    joined: bool = False
    """The same request was started before, and this is its run."""
    skills: SkillInvocation = Field(default_factory=SkillInvocation)


class TurnBlocked(Model):
    """Not now; nothing was stored."""

    kind: Literal["blocked"] = "blocked"
    error: OperationError

    @classmethod
    def of(cls, error: RemitError) -> TurnBlocked:
        """The answer that an error leads to."""
        return cls(error=OperationError.of(error))


class UsageTotals(TokenCounts):
    """The six numbers, and the input tokens that no cache had."""

    cache_miss_tokens: int | None = None


class UsageSummary(Model):
    """What a turn used, in numbers."""

    range: UsageRange | None
    request_count: int
    cost_usd: float | None
    totals: UsageTotals
    cache_hit_count: int
    """Requests that read from a cache."""
    cache_create_count: int
    """Requests that wrote into one."""
    error_count: int
    """Requests that brought no complete reply."""


class UsageCoverage(Model):
    """How many requests there were, and how much of them is known, in the strict view."""

    attempts: int
    priced: int
    unpriced: int
    reported: int
    partial: int
    missing: int


class UsageProvenance(Model):
    """How far the numbers can be trusted."""

    coverage: UsageCoverage
    legacy_records: int = 0
    """Records of a time before prices were kept with them."""
    unreadable_records: int = 0
    pending_repairs: int = 0


class UsageSummarised(Model):
    """The answer to `usage.query`."""

    kind: Literal["summary"] = "summary"
    summary: UsageSummary
    provenance: UsageProvenance


TurnStartAnswer: TypeAlias = Annotated[TurnStarted | TurnBlocked, Field(discriminator="kind")]


class OperationError(Model):
    """Why an operation wasn't carried out."""

    code: str
    message: str
    status: int
    retryable: bool
    fields: dict[str, Any] = Field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, error: RemitError) -> OperationError:
        """The error as data."""
        return cls(
            code=error.code,
            message=error.message,
            status=error.status,
            retryable=error.retryable,
            fields=error.fields,
        )

    def to_error(self) -> RemitError:
        """The error again, of its own kind; an unknown code is an `InternalError`."""
        kind = _kinds(RemitError).get(self.code, InternalError)
        return kind(self.message, **self.fields)


def _kinds(kind: type[RemitError]) -> dict[str, type[RemitError]]:
    found = {kind.code: kind}
    for below in kind.__subclasses__():
        found |= _kinds(below)
    return found


TurnStart.model_rebuild()
TurnBlocked.model_rebuild()

ResultT_co = TypeVar("ResultT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Done(Generic[ResultT_co]):
    """The operation was carried out."""

    result: ResultT_co
    ok: Literal[True] = True

    def get(self) -> ResultT_co:
        """The result."""
        return self.result


@dataclass(frozen=True, slots=True)
class Refused:
    """The operation wasn't carried out."""

    error: OperationError
    cause: RemitError = field(repr=False, compare=False)
    """The error itself, for callers in this process."""
    ok: Literal[False] = False

    @classmethod
    def of(cls, error: RemitError) -> Refused:
        """The answer that an error leads to."""
        return cls(OperationError.of(error), error)

    def get(self) -> Any:
        """Raises the error."""
        raise self.cause


Answer: TypeAlias = Done[ResultT_co] | Refused


# ---- who asks


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContext:
    """Who asks, through which door, and from which start of the host."""

    host_epoch: str
    """The start of the host that it belongs to; another one refuses it."""
    residencies: Residencies = field(default_factory=Residencies)
    """Where what is started is counted."""
    principal: str = "runtime_host"
    connection: str = "hosted-execution"
    caller: Caller = field(default_factory=Caller)
    """Whose runs these are, and what the principal's key allows."""

    def acquire_residency(self, label: str) -> Residency:
        """Hold back whoever waits for what was started here."""
        return self.residencies.acquire(label)


class HostedOperations(Protocol):
    """The five operations, and no more. What each declares it answers as `Refused`."""

    async def create_session(
        self, request: SessionCreate, context: OperationContext
    ) -> Answer[SessionCreated]:
        """`session.create`. Declares RequestError, OwnershipError, StorageError."""
        ...

    async def start_turn(
        self, request: TurnStart, context: OperationContext
    ) -> Answer[TurnStarted | TurnBlocked]:
        """`turn.start`. Declares RequestError, OwnershipError, StorageError."""
        ...

    async def query_turn(self, request: TurnQuery, context: OperationContext) -> Answer[TurnSnapshot]:
        """`turn.query`. Declares NotFound, OwnershipError, StorageError."""
        ...

    async def stop_turn(self, request: TurnStop, context: OperationContext) -> Answer[TurnSnapshot]:
        """`turn.stop`. Declares RequestError, OwnershipError, StorageError."""
        ...

    async def query_usage(self, request: UsageQuery, context: OperationContext) -> Answer[UsageSummarised]:
        """`usage.query`. Declares NotFound, OwnershipError, StorageError."""
        ...
