"""The store of one process: a writer, some readers, and those who wait for events."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Coroutine, Generator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from remit.contract import ApiKey, AuditEntry, AuditFact, KeySpending
from remit.errors import MisuseError
from remit.events import Artifact, Event, NewEvent, TranscriptEntry
from remit.primitives import Clock, SystemIds, clean_text
from remit.runs import (
    AttemptRow,
    BilledAttempt,
    CancelBy,
    HistoryEntry,
    SessionRow,
    StoredRun,
    Submission,
    Submitted,
    Tombstone,
)
from remit.storage import _queries
from remit.storage._audit import Record, TrimAudit, read_audit
from remit.storage._burying import Bury, find_tombstone
from remit.storage._claiming import unfinished_of_dead
from remit.storage._commits import Answer, Commits, Reply, Request
from remit.storage._epochs import Epochs
from remit.storage._folder import DataFolder
from remit.storage._held import RunRef
from remit.storage._hooks import CommitHook
from remit.storage._keys import AddKey, RevokeKey, find_key, list_keys
from remit.storage._listings import find_asked, find_session, list_sessions, read_ledger, read_spent
from remit.storage._opening import StoreSettings, open_database
from remit.storage._operations import Append, Claim, Log, Submit
from remit.storage._readers import Readers, settled
from remit.storage._rebuild import Rebuild, find_drift
from remit.storage._transaction import Operation
from remit.storage._wakeups import Wakeups
from remit.storage._writer import Writer

T = TypeVar("T")
StoreT = TypeVar("StoreT", bound="SqliteStore")


class Opening(Generic[StoreT]):
    """A store that is being opened: to be awaited, or entered, once."""

    def __init__(self, opening: Coroutine[Any, Any, StoreT]) -> None:
        self._opening = opening
        self._store: StoreT | None = None

    def __await__(self) -> Generator[Any, Any, StoreT]:
        return self._opening.__await__()

    async def __aenter__(self) -> StoreT:
        self._store = await self._opening
        return self._store

    async def __aexit__(self, *_: object) -> None:
        if self._store is not None:
            await self._store.aclose()


class SqliteStore:
    """`remit.runs.RunStore` on a SQLite file that several host processes may share.

    It belongs to the event loop that opened it. `aclose` stores what was handed over before it returns.
    """

    def __init__(
        self, commits: Commits, readers: Readers, *, epochs: Epochs, settings: StoreSettings
    ) -> None:
        self.epochs = epochs
        self._loop = asyncio.get_running_loop()
        self._readers = readers
        self._commits = commits
        self._wakeups = Wakeups(on_first=self._look_soon)
        self._writer = Writer(
            commits,
            deliver=self._deliver,
            ended=partial(self._call_on_loop, self._wakeups.close),
            watched=self._wakeups.anybody,
            poll_ms=settings.poll_ms,
        )
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        clock: Clock,
        epochs: Epochs | None = None,
        settings: StoreSettings | None = None,
        on_commit: CommitHook | None = None,
    ) -> Opening[Self]:
        """Open the database of a data folder, making and migrating it where that is due.

        `async with SqliteStore.open(...) as store` closes it at the end; so does whoever wrote
        `store = await SqliteStore.open(...)`, by `aclose`.

        Args:
            folder: The data folder; it becomes 0700, and what is in it 0600.
            clock: Gives events their moments.
            epochs: Tells which hosts are alive; None: those of the same folder.
            settings: Patience and width; None: the defaults.
            on_commit: For tests: see `CommitHook`.

        Cancellation: what was opened is closed again.

        Raises:
            StorageError: It can't be used; `SchemaTooNew` where a newer Remit has written it, `StorageBusy`
                where another process migrates it all the while, `StorageFull` where there is no room for it.
        """
        return Opening(
            cls._open(
                folder, clock=clock, epochs=epochs, settings=settings or StoreSettings(), on_commit=on_commit
            )
        )

    @classmethod
    async def _open(
        cls,
        folder: Path,
        *,
        clock: Clock,
        epochs: Epochs | None,
        settings: StoreSettings,
        on_commit: CommitHook | None,
    ) -> Self:
        data = DataFolder.prepare(folder)
        epochs = epochs or Epochs(data.path, clock=clock, ids=SystemIds())
        readers = Readers(data, size=settings.readers, busy_ms=settings.busy_wait_ms)
        opening = readers.start(
            partial(open_database, data, epochs=epochs, clock=clock, on_commit=on_commit, settings=settings)
        )
        try:
            commits = await settled(opening)
        except BaseException:
            if not opening.cancelled() and opening.exception() is None:
                opening.result().close()
            readers.close()
            raise
        return cls(commits, readers, epochs=epochs, settings=settings)

    async def aclose(self) -> None:
        """Store what was handed over, checkpoint, and close. A second time changes nothing.

        Cancellation: it closes all the same, then the cancel is raised.
        """
        if self._closing is None:
            self._closing = self._readers.start(self._stop_writing)
        try:
            await settled(self._closing)
        finally:
            self._readers.close()

    def _look_soon(self) -> None:
        self._writer.nudge()

    def _stop_writing(self) -> None:
        self._writer.stop()
        self._commits.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def submit(self, submission: Submission) -> Submitted:
        """See `RunStore`."""
        return await self._write(Submit(submission=submission))

    async def bury(
        self, run_id: str, *, by: CancelBy, reason: str | None = None, tenant: str = "local"
    ) -> Tombstone | None:
        """See `RunStore`."""
        return await self._write(Bury(ref=RunRef(tenant, run_id), by=by, reason=reason))

    async def find_tombstone(self, run_id: str, *, tenant: str = "local") -> Tombstone | None:
        """See `RunStore`."""
        return await self._readers.run(partial(find_tombstone, ref=_ref(tenant, run_id)))

    async def claim(
        self, epoch: str, *, run_id: str | None = None, tenant: str = "local"
    ) -> StoredRun | None:
        """See `RunStore`. Shielded, as the other writes are."""
        ref = None if run_id is None else _ref(tenant, run_id)
        return await self._write(Claim(epoch=epoch, ref=ref))

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
        """See `RunStore`."""
        return await self._write(
            Append(
                ref=_ref(tenant, run_id),
                generation=generation,
                events=tuple(events),
                transcript=tuple(transcript),
                artifacts=tuple(artifacts),
            )
        )

    async def finish(
        self,
        run_id: str,
        generation: int,
        events: Sequence[NewEvent],
        *,
        artifacts: Sequence[Artifact] = (),
        tenant: str = "local",
    ) -> tuple[Event, ...]:
        """See `RunStore`."""
        return await self._write(
            Append(
                ref=_ref(tenant, run_id),
                generation=generation,
                events=tuple(events),
                artifacts=tuple(artifacts),
                ends=True,
            )
        )

    async def log(self, run_id: str, type_: str, data: dict[str, Any], *, tenant: str = "local") -> None:
        """See `RunStore`."""
        await self._write(Log(ref=_ref(tenant, run_id), type=type_, data=data))

    async def record(self, act: AuditFact, *, tenant: str = "local") -> None:
        """See `RunStore`."""
        await self._write(Record(tenant=tenant, fact=act))

    async def trim_audit(self, *, before: datetime) -> int:
        """See `RunStore`."""
        return await self._write(TrimAudit(before=before))

    async def read_audit(
        self, *, tenant: str | None = "local", before: int | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        """See `RunStore`. A page holds 1000 entries at most."""
        query = partial(read_audit, tenant=tenant, before=before, limit=limit)
        return await self._readers.run(query)

    async def read_ledger(
        self, *, tenant: str, start: datetime | None = None, end: datetime | None = None
    ) -> tuple[BilledAttempt, ...]:
        """The attempts of a tenant's runs that started in `[start, end)`, in order of admission and start."""
        query = partial(read_ledger, tenant=clean_text(tenant)[0], start=start, end=end)
        return await self._readers.run(query)

    async def find_asked(self, ask: str, *, tenant: str, since: datetime) -> StoredRun | None:
        """The newest run that a door's call asked for since a moment, whichever host it asked; or None."""
        return await self._readers.run(partial(find_asked, ask=ask, tenant=tenant, since=since))

    async def list_sessions(
        self, *, tenant: str, after: str | None = None, limit: int = 50
    ) -> tuple[tuple[SessionRow, ...], str | None]:
        """A tenant's sessions, the one with the newest run first, and the cursor of the next page.

        Raises:
            InvalidRequest: `after` isn't a cursor of this tenant.
        """
        query = partial(list_sessions, tenant=clean_text(tenant)[0], after=after, limit=limit)
        return await self._readers.run(query)

    async def find_session(self, session_id: str, *, tenant: str) -> SessionRow | None:
        """A session, or None."""
        query = partial(find_session, tenant=clean_text(tenant)[0], session_id=clean_text(session_id)[0])
        return await self._readers.run(query)

    async def add_key(self, key: ApiKey, *, key_hash: str) -> None:
        """Keep a caller's key, under the hash of the key itself.

        Raises:
            PreconditionFailed: A living key of its tenant has its name.
        """
        await self._write(AddKey(key=key, key_hash=key_hash))

    async def find_key(self, key_hash: str) -> ApiKey | None:
        """The key of a hash, an expired or revoked one too, or None."""
        return await self._readers.run(partial(find_key, key_hash=key_hash))

    async def list_keys(self, *, tenant: str | None = None) -> tuple[ApiKey, ...]:
        """The keys of a tenant (None: of all), in the order in which they were made."""
        return await self._readers.run(partial(list_keys, tenant=tenant))

    async def read_spent(self, *, tenant: str, key_id: str | None = None) -> Mapping[str, int]:
        """Key -> micro-USD that its runs have cost at most; None: all keys of the tenant that spent any."""
        return await self._readers.run(partial(read_spent, tenant=clean_text(tenant)[0], key_id=key_id))

    async def find_spending(self, key_id: str, *, tenant: str) -> KeySpending | None:
        """What a key may spend, and what it has; None: the tenant has no such key."""
        key = next((key for key in await self.list_keys(tenant=tenant) if key.id == key_id), None)
        if key is None:
            return None
        spent = (await self.read_spent(tenant=tenant, key_id=key_id)).get(key_id, 0)
        return KeySpending(name=key.name, max_cost_usd=key.max_cost_usd, spent_micros=spent)

    async def revoke_key(self, name: str, *, tenant: str = "local") -> ApiKey:
        """End a key, by its id or name; a second time changes nothing.

        Raises:
            NotFound: The tenant has no such key.
        """
        return await self._write(RevokeKey(name=clean_text(name)[0], tenant=tenant))

    async def rebuild(self) -> int:
        """Make every run's row and ledger anew from its log; returns how many weren't right."""
        return await self._write(Rebuild())

    async def find_drift(self) -> tuple[str, ...]:
        """The ids of the runs whose rows aren't what their logs say; none, unless something is broken."""
        return await self._readers.run(find_drift)

    async def find_run(self, run_id: str, *, tenant: str = "local") -> StoredRun | None:
        """See `RunStore`."""
        return await self._readers.run(partial(_queries.find_run, ref=_ref(tenant, run_id)))

    async def find_by_key(self, idempotency_key: str, *, tenant: str = "local") -> StoredRun | None:
        """See `RunStore`."""
        query = partial(_queries.load_by_key, tenant=tenant, key=clean_text(idempotency_key)[0])
        return await self._readers.run(query)

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
        """See `RunStore`. A page holds 500 runs at most."""
        wanted = _queries.RunFilter(
            tenant=tenant,
            statuses=tuple(statuses),
            session_id=session_id,
            binding=binding,
            created_after=created_after,
            after=after,
        )
        return await self._readers.run(partial(_queries.list_runs, wanted=wanted, limit=limit))

    async def read_events(
        self, run_id: str, *, after: int = 0, limit: int = 500, tenant: str = "local"
    ) -> tuple[Event, ...]:
        """See `RunStore`. A page holds 5000 events at most."""
        query = partial(_queries.read_events, ref=_ref(tenant, run_id), after=after, limit=limit)
        return await self._readers.run(query)

    async def wait_for_events(self, run_id: str, *, after: int, tenant: str = "local") -> None:
        """See `RunStore`. Raises `StorageError` when the store is closed meanwhile."""
        ref = _ref(tenant, run_id)
        with self._wakeups.waiting(ref) as waiter:
            last_seq = self._wakeups.known(ref)
            if last_seq is None:
                last_seq = await self._readers.run(partial(_queries.last_seq, ref=ref))
            if last_seq <= after:
                await waiter

    async def read_attempts(self, run_id: str, *, tenant: str = "local") -> tuple[AttemptRow, ...]:
        """See `RunStore`."""
        return await self._readers.run(partial(_queries.read_attempts, ref=_ref(tenant, run_id)))

    async def read_transcript(
        self, run_id: str, *, stage_id: str | None = None, tenant: str = "local"
    ) -> tuple[TranscriptEntry, ...]:
        """See `RunStore`."""
        query = partial(_queries.read_transcript, ref=_ref(tenant, run_id), stage_id=stage_id)
        return await self._readers.run(query)

    async def read_artifact(self, run_id: str, name: str, *, tenant: str = "local") -> Artifact | None:
        """See `RunStore`."""
        return await self._readers.run(partial(_queries.read_artifact, ref=_ref(tenant, run_id), name=name))

    async def list_artifacts(self, run_id: str, *, tenant: str = "local") -> tuple[str, ...]:
        """See `RunStore`."""
        return await self._readers.run(partial(_queries.list_artifacts, ref=_ref(tenant, run_id)))

    async def children_of(self, run_id: str, *, tenant: str = "local") -> tuple[StoredRun, ...]:
        """See `RunStore`."""
        return await self._readers.run(partial(_queries.children_of, ref=_ref(tenant, run_id)))

    async def unfinished_of_dead_epochs(self) -> tuple[StoredRun, ...]:
        """See `RunStore`."""
        return await self._readers.run(self._load_unfinished)

    def _load_unfinished(self, connection: sqlite3.Connection) -> tuple[StoredRun, ...]:
        keys = unfinished_of_dead(connection, self.epochs)
        return tuple(_queries.load_run(connection, key) for key in keys)

    async def read_history(self, run_id: str, *, tenant: str = "local") -> tuple[HistoryEntry, ...]:
        """See `RunStore`."""
        return await self._readers.run(partial(_queries.read_history, ref=_ref(tenant, run_id)))

    async def _write(self, operation: Operation[T]) -> T:
        """Hand an operation to the writer and wait for its answer, whoever cancels meanwhile."""
        if asyncio.get_running_loop() is not self._loop:
            raise MisuseError("a store belongs to the event loop that opened it")
        reply: Reply[T] = Reply(loop=self._loop)
        self._writer.put(Request(operation, reply))
        try:
            return await reply
        finally:
            reply.forget()

    def _deliver(self, answers: Sequence[Answer], grown: Mapping[RunRef, int]) -> None:
        self._call_on_loop(partial(self._receive, answers, grown))

    def _call_on_loop(self, callback: partial[None] | Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(callback)

    def _receive(self, answers: Sequence[Answer], grown: Mapping[RunRef, int]) -> None:
        for answer in answers:
            reply = answer.request.reply
            if reply.done():
                continue
            if answer.error is not None:
                reply.set_exception(answer.error)
            else:
                reply.set_result(answer.result)
        self._wakeups.grown(grown)


def _ref(tenant: str, run_id: str) -> RunRef:
    """What names the run; an id that can't be stored is one that doesn't exist."""
    return RunRef(tenant, run_id if run_id.isascii() else clean_text(run_id)[0])
