"""What a run needs from a store.

The event log is the truth; all else is a projection written in the same transaction. A store has
four atomic operations (submit, claim, append, finish) and a wake-up. `append` and `finish` are
shielded: a cancelled waiter learns what was stored before the cancel is raised.

A run's id is unique within its tenant, so every operation that names a run takes the tenant too.

Every adapter passes `remit.testing.StoreSuite`.

Errors that any operation may raise: `StorageFull`, `StorageBusy`, `StorageError`. `append` and `finish` also
`StaleGeneration` (somebody else owns the run, or nobody does, or there is none; nothing was stored), and
`AlreadyDecided` once the run has its terminal.
Not errors: reading an unknown id (None, or nothing), submitting the same request twice (`created=False`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from remit.contract import AttemptEnded, AttemptStarted, AuditEntry, AuditFact, RunRequest, RunView
from remit.events import Artifact, Event, NewEvent, TranscriptEntry
from remit.runs._control import CancelBy
from remit.runs._naming import name_outside
from remit.runs._tombstones import Tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A run that is to be admitted."""

    run: RunView
    request: RunRequest
    fingerprint: str
    """Hash of the validated body before defaults, without id, webhook and wait."""
    epoch: str
    """The host epoch that admits it, and to which it belongs."""
    claimed: bool = False
    """Whether that host takes it up at once: it is stored as by `submit` and `claim`, in one step."""
    tenant: str = "local"
    idempotency_key: str | None = None
    text_replaced: int = 0
    key_id: str | None = None
    """The key that it was asked with."""
    ask: str | None = None
    """What a repetition of the call has in common with it, where its door knows repetitions."""
    audit: tuple[AuditFact, ...] = ()
    """What of it goes on the audit record, if it is admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as it is stored."""

    view: RunView
    request: RunRequest
    fingerprint: str
    tenant: str
    epoch: str
    generation: int
    """0 before the first claim; each claim adds 1."""
    last_seq: int
    key_id: str | None = None
    """The key that it was asked with; a child's is its parent's."""

    @property
    def outside_id(self) -> str:
        """What it is called on nodes and at providers."""
        return name_outside(self.tenant, self.view.id)

    @property
    def outside_continues(self) -> str | None:
        """What the run that it continues is called there; None: it continues none."""
        earlier = self.view.continues
        return name_outside(self.tenant, earlier) if earlier is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The answer to `submit`."""

    run: StoredRun
    created: bool
    """False: the same key or id with the same fingerprint was there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """A line of the ledger: one physical provider request."""

    run_id: str
    started: AttemptStarted
    started_at: datetime
    ended: AttemptEnded | None
    """None: it is in flight, or its owner died."""
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledAttempt:
    """A line of the ledger with all that it can be counted under."""

    attempt: AttemptRow
    session_id: str
    binding: str
    key_id: str | None
    """The key that its run was asked with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A thread of runs, as its runs tell."""

    id: str
    runs: int
    active_runs: int
    """Those without a terminal."""
    created_at: datetime
    last_run_at: datetime
    last_run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """A fact about a run after its terminal: a webhook try, a correction, a checkout removed."""

    at: datetime
    type: str
    data: dict[str, Any]


class RunStore(Protocol):
    """Where runs are kept."""

    async def submit(self, submission: Submission) -> Submitted:
        """Store the run and its `run.queued`, in one transaction.

        Raises:
            IdempotencyConflict: The id or key exists in this tenant with another fingerprint, and isn't dead.
        """
        ...

    async def bury(
        self, run_id: str, *, by: CancelBy, reason: str | None = None, tenant: str = "local"
    ) -> Tombstone | None:
        """Make an id dead for ever; the first tombstone of an id stays.

        From then on a `submit` with this id, of whatever request, gives a run that ended cancelled: where
        there is none yet it is stored with its whole log, in one transaction. None: a run has the id, and
        nothing was stored.

        Raises:
            InvalidRequest: It isn't an id.
        """
        ...

    async def find_tombstone(self, run_id: str, *, tenant: str = "local") -> Tombstone | None:
        """The tombstone of an id, or None. It stays when a run was submitted for it."""
        ...

    async def claim(
        self, epoch: str, *, run_id: str | None = None, tenant: str = "local"
    ) -> StoredRun | None:
        """Take up an unfinished run for a host epoch: the oldest queued one, or the one named.

        The generation rises by 1, so that the earlier owner's writes are refused. A run whose epoch is alive
        and isn't `epoch` is never given; nor, without a name, one that this epoch has claimed already and not
        released. None: there is nothing to take. `tenant` is that of `run_id`; the oldest queued one may be
        anybody's.
        """
        ...

    async def append(
        self,
        run_id: str,
        generation: int,
        events: Sequence[NewEvent],
        *,
        transcript: Sequence[TranscriptEntry] = (),
        artifacts: Sequence[Artifact] = (),
        tenant: str = "local",
    ) -> tuple[Event, ...]:
        """Store facts, all or none; returns them with their numbers once they are durable.

        A decision (`run.settling`) or a delivery intent is stored once: a second one raises `AlreadyDecided`.
        After `run.released` nobody owns the run until it is claimed again. An artifact replaces the one of
        its name. Text that can't be kept (NUL, lone surrogates) is U+FFFD in what is returned, too.

        Raises:
            MisuseError: `run.queued` or a terminal is among the events.
            InternalError: The facts break a rule of the log: a payload of another shape, an attempt's end
                without its start, a position of the transcript that is taken.
        """
        ...

    async def finish(
        self,
        run_id: str,
        generation: int,
        events: Sequence[NewEvent],
        *,
        artifacts: Sequence[Artifact] = (),
        tenant: str = "local",
    ) -> tuple[Event, ...]:
        """Store the last facts: the last of `events` is the terminal. Once; then `AlreadyDecided`.

        On a full disk this, and an `append` of facts that only end things, may use the store's reserve.

        Raises:
            MisuseError: The last event isn't a terminal, or an earlier one is.
        """
        ...

    async def find_run(self, run_id: str, *, tenant: str = "local") -> StoredRun | None:
        """A run, or None."""
        ...

    async def find_by_key(self, idempotency_key: str, *, tenant: str = "local") -> StoredRun | None:
        """The run that an idempotency key stands for, or None."""
        ...

    async def list_runs(
        self,
        *,
        tenant: str = "local",
        statuses: Sequence[str] = (),
        session_id: str | None = None,
        binding: str | None = None,
        created_after: datetime | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> tuple[tuple[StoredRun, ...], str | None]:
        """Runs, newest first, and the cursor of the next page (None: this was the last).

        Raises:
            InvalidRequest: `after` isn't a cursor of this tenant.
        """
        ...

    async def read_events(
        self, run_id: str, *, after: int = 0, limit: int = 500, tenant: str = "local"
    ) -> tuple[Event, ...]:
        """Stored events with `seq > after`, in order."""
        ...

    async def wait_for_events(self, run_id: str, *, after: int, tenant: str = "local") -> None:
        """Return once there are events with `seq > after`, at once if there are.

        A wake is a hint: re-read. After the terminal nothing comes any more, and this waits for ever.
        """
        ...

    async def read_attempts(self, run_id: str, *, tenant: str = "local") -> tuple[AttemptRow, ...]:
        """The run's ledger, in order of start."""
        ...

    async def read_transcript(
        self, run_id: str, *, stage_id: str | None = None, tenant: str = "local"
    ) -> tuple[TranscriptEntry, ...]:
        """The conversations of a run, by stage in order of their first entry, then by position."""
        ...

    async def read_artifact(self, run_id: str, name: str, *, tenant: str = "local") -> Artifact | None:
        """A named text of the run."""
        ...

    async def list_artifacts(self, run_id: str, *, tenant: str = "local") -> tuple[str, ...]:
        """The names of a run's artifacts, sorted."""
        ...

    async def children_of(self, run_id: str, *, tenant: str = "local") -> tuple[StoredRun, ...]:
        """The runs that a run started as its children, in order of admission; not those below them."""
        ...

    async def unfinished_of_dead_epochs(self) -> tuple[StoredRun, ...]:
        """Runs without a terminal whose host epoch is dead: its lock is free."""
        ...

    async def log(self, run_id: str, type_: str, data: dict[str, Any], *, tenant: str = "local") -> None:
        """Add to the run's host log; only for what happens after its terminal.

        Raises:
            NotFound: There is no such run.
            PreconditionFailed: It hasn't ended.
        """
        ...

    async def record(self, act: AuditFact, *, tenant: str = "local") -> None:
        """Put an act on the audit record; it is durable when this returns.

        What is stored by another operation is recorded by that one: `submit` does it with its acts, `append`
        and `finish` with a delivery that has ended, `log` with what was done to a patch by hand.
        """
        ...

    async def trim_audit(self, *, before: datetime) -> int:
        """Take what is older off the audit record of all tenants; returns how many acts that were.

        How many, and up to when, is itself an act on the record. The last `host.configured` stays.

        Raises:
            MisuseError: The moment is less than thirty days back.
        """
        ...

    async def read_audit(
        self, *, tenant: str | None = "local", before: int | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        """The audit record of a tenant (None: of all), the newest entry first, from below an id on."""
        ...

    async def read_history(self, run_id: str, *, tenant: str = "local") -> tuple[HistoryEntry, ...]:
        """The run's host log, in order."""
        ...
