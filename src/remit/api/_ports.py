"""What the doors need of a host. Implemented in `remit.host`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from remit.admission import Binding, Caller
from remit.contract import ApiKey, AuditFact, CancelReceipt, Delivery, DryRun, RunView, WorkKind
from remit.models import PoolSettings
from remit.primitives import Clock, Ids
from remit.requests import ParsedRequest
from remit.runs import BilledAttempt, CancelBy, Feed, RunStore, SessionRow, Started, StoredRun, Tombstone
from remit.work import Metrics, ObservedStage
from remit.workspaces import WorkspaceSettings


class ServedStore(RunStore, Protocol):
    """A store of runs that also keeps keys and reads over many runs."""

    async def read_ledger(
        self, *, tenant: str, start: datetime | None = None, end: datetime | None = None
    ) -> tuple[BilledAttempt, ...]:
        """The attempts of a tenant's runs that started in `[start, end)`."""
        ...

    async def find_asked(self, ask: str, *, tenant: str, since: datetime) -> StoredRun | None:
        """The newest run that a call of a door asked for since a moment, or None."""
        ...

    async def list_sessions(
        self, *, tenant: str, after: str | None = None, limit: int = 50
    ) -> tuple[tuple[SessionRow, ...], str | None]:
        """A tenant's sessions, and the cursor of the next page."""
        ...

    async def find_session(self, session_id: str, *, tenant: str) -> SessionRow | None:
        """A session, or None."""
        ...

    async def add_key(self, key: ApiKey, *, key_hash: str) -> None:
        """Keep a caller's key under its hash."""
        ...

    async def find_key(self, key_hash: str) -> ApiKey | None:
        """The key of a hash, an expired or revoked one too, or None."""
        ...

    async def list_keys(self, *, tenant: str | None = None) -> tuple[ApiKey, ...]:
        """The keys of a tenant; None: of all."""
        ...

    async def read_spent(self, *, tenant: str, key_id: str | None = None) -> Mapping[str, int]:
        """Key -> micro-USD that its runs have cost at most, for keys of a tenant that spent any."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """What became of a cancel."""

    changed: bool
    """False: the run had ended, or was committed to its end."""
    run: RunView
    """As it stands now; it has ended, unless the wait ran out before."""
    receipt: CancelReceipt | None
    """Of the cancel that counts, as far as it has got; None where none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRow:
    """One piece of live work, the registry's and the supervisor's records joined."""

    work_id: str
    parent: str | None
    kind: WorkKind
    label: str
    cancelling: bool
    stage: ObservedStage | None
    elapsed_ms: int | None
    cancellable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node as a host knows it."""

    id: str
    alias: str | None
    state: str
    """Whether it answers (`ready`), or why not: `starting`, `lost`, `closed`."""
    pid: int | None
    """Its process, where that is on the host's machine and there is one."""
    sandbox: str | None
    """The level that it gives, or None: not known yet."""
    isolation: str | None
    workspaces: tuple[str, ...]

    @property
    def connected(self) -> bool:
        """Whether it answers."""
        return self.state == "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """How full the host is."""

    running: int
    queued: int
    max_running: int
    max_queued: int


class ServedHost(Protocol):
    """A host, from the side of its doors. Whatever names a run names the caller's tenant too."""

    @property
    def epoch(self) -> str:
        """The id of this start of the host."""
        ...

    @property
    def status(self) -> str:
        """Where it is: starting, recovering, ready, draining."""
        ...

    @property
    def residencies(self) -> Mapping[str, int]:
        """Why it can't be settled yet, by label."""
        ...

    @property
    def clock(self) -> Clock:
        """Where time comes from."""
        ...

    @property
    def ids(self) -> Ids:
        """Where ids come from."""
        ...

    @property
    def store(self) -> ServedStore:
        """Where runs and keys are kept."""
        ...

    @property
    def feed(self) -> Feed:
        """What viewers follow."""
        ...

    @property
    def metrics(self) -> Metrics:
        """What the work registry has counted."""
        ...

    @property
    def places(self) -> Places:
        """How many runs go on and wait."""
        ...

    @property
    def bindings(self) -> Mapping[str, Binding]:
        """By public name."""
        ...

    @property
    def pools(self) -> Mapping[str, PoolSettings]:
        """By name."""
        ...

    @property
    def workspaces(self) -> Mapping[str, WorkspaceSettings]:
        """Those of the local node, by ref."""
        ...

    def nodes(self) -> Sequence[NodeRow]:
        """The nodes that it knows."""
        ...

    async def start(self, parsed: ParsedRequest, *, caller: Caller, idempotency_key: str | None) -> Started:
        """Start a run, or join the one that the same request had started.

        Raises:
            RequestError: It must be changed; nothing was stored.
            AdmissionError: Not now; nothing was stored.
        """
        ...

    async def dry_run(self, parsed: ParsedRequest, *, caller: Caller) -> DryRun:
        """What a request would become; nothing is taken, stored or spent.

        Raises:
            RequestError: It must be changed, or the settings must.
        """
        ...

    def placed(self, run: RunView, *, tenant: str) -> RunView:
        """The run, with its place among its tenant's waiting ones where it waits here."""
        ...

    async def wait_ended(self, run_id: str, *, tenant: str, wait_ms: int) -> None:
        """Return once the run's terminal is durable, or the time has run out."""
        ...

    async def cancel(
        self,
        run_id: str,
        *,
        caller: Caller,
        by: CancelBy = "caller",
        reason: str | None,
        tombstone: bool,
        wait_ms: int,
    ) -> Cancelled | Tombstone:
        """Stop a run, and wait for its end as long as is said.

        Raises:
            NotFound: There is no such run, and no tombstone was asked for.
        """
        ...

    async def acknowledge(self, run_id: str, *, caller: Caller, accepted: bool) -> bool:
        """Answer a run that waits for it. False: it isn't waiting, and nothing changed."""
        ...

    async def record(self, act: AuditFact, *, tenant: str) -> None:
        """Put an act on the audit record; it is durable when this returns."""
        ...

    async def tell(self, run_id: str, *, tenant: str, text: str) -> None:
        """Have a text of the caller's read before the run's next round.

        Raises:
            NotFound: There is no such run.
            PreconditionFailed: No round is to come, or another process drives the run.
            QuotaExceeded: Too many messages wait.
        """
        ...

    async def deliver(
        self,
        run: StoredRun,
        *,
        caller: Caller,
        unreviewed: bool,
        allow_protected: bool,
        branch: str | None = None,
    ) -> Delivery:
        """Let a run that waits for approval deliver, or deliver the patch of an ended one, all or nothing.

        With a branch an ended one's goes there as a commit, else to the workspace's tree.

        Raises:
            PreconditionFailed: It can't be; the message says what would let it.
            NotFound: Its workspace isn't there any more.
        """
        ...

    async def discard(self, run: StoredRun, *, caller: Caller) -> Delivery:
        """Let the patch of a run that waits for approval, or has ended, never be applied.

        Raises:
            PreconditionFailed: It was, or there is none.
        """
        ...

    def work_page(
        self, run: RunView, *, tenant: str, after: str | None, limit: int
    ) -> tuple[tuple[WorkRow, ...], str | None]:
        """A run's live work, by work id beyond the cursor."""
        ...

    async def running_calls(self, *, tenant: str) -> Mapping[str, tuple[int, ...]]:
        """The processes of a tenant's tool calls, by work id; asks each node."""
        ...

    def all_work(self, *, tenant: str) -> tuple[WorkRow, ...]:
        """The live work of a tenant."""
        ...

    def cancel_work(self, work_id: str, *, tenant: str) -> WorkRow | None:
        """Flag one piece of work, and all below it. None: the tenant has no such work."""
        ...
