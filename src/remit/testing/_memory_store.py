"""A store in memory: the run store's rules without a database, to test against and to test with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from remit.contract import (
    AuditEntry,
    AuditFact,
    RunQueued,
    RunRequest,
    RunStatus,
)
from remit.errors import (
    AlreadyDecided,
    IdempotencyConflict,
    InternalError,
    InvalidRequest,
    MisuseError,
    NotFound,
    PreconditionFailed,
    StaleGeneration,
)
from remit.events import (
    TERMINAL_TYPES,
    Artifact,
    Event,
    NewEvent,
    TranscriptEntry,
    payload_of,
)
from remit.primitives import Clock, clean_json, clean_text, format_time, is_run_id
from remit.runs import (
    AttemptRow,
    CancelBy,
    HistoryEntry,
    StoredRun,
    Submission,
    Submitted,
    Tombstone,
    audit_of_event,
    audit_of_log,
    check_trim,
    end_buried,
)
from remit.testing._memory_run import MemoryRun, number_clean

_ONCE = ("run.settling", "delivery.intent")


class MemoryStore:
    """`remit.runs.RunStore` in memory. It forgets everything with the process, and nothing before.

    Args:
        clock: Gives events their moments.
        is_alive: Whether a host epoch is alive; by default every one is.
    """

    def __init__(self, *, clock: Clock, is_alive: Callable[[str], bool] = lambda _: True) -> None:
        self._clock = clock
        self._is_alive = is_alive
        self._runs: dict[tuple[str, str], MemoryRun] = {}
        """In the order of admission."""
        self._keys: dict[tuple[str, str], MemoryRun] = {}
        self._admitted = asyncio.Event()
        self._tombstones: dict[tuple[str, str], Tombstone] = {}
        self._audit: list[AuditEntry] = []

    async def submit(self, submission: Submission) -> Submitted:
        """See `RunStore`."""
        key = submission.idempotency_key
        if not is_run_id(submission.run.id):
            raise InvalidRequest("not an id", param="id")
        if key is not None and clean_text(key)[1]:
            raise InvalidRequest("a key that can't be kept", param="Idempotency-Key")
        there = self._find_submitted(submission)
        created = there is None
        if there is None:
            there = self._admit(submission)
        elif there.fingerprint != submission.fingerprint and not self._is_dead(submission):
            raise IdempotencyConflict("used before, with another request")
        if key is not None:
            self._keys.setdefault((submission.tenant, key), there)
        return Submitted(run=there.stored(), created=created)

    def _find_submitted(self, submission: Submission) -> MemoryRun | None:
        by_id = self._runs.get((submission.tenant, submission.run.id))
        key = submission.idempotency_key
        by_key = None if key is None else self._keys.get((submission.tenant, key))
        if by_id is not None and by_key is not None and by_id is not by_key:
            raise IdempotencyConflict("the id was used for one request and the key for another")
        return by_key or by_id

    def _admit(self, submission: Submission) -> MemoryRun:
        if submission.run.status is not RunStatus.QUEUED:
            raise InternalError(f"a run is admitted queued, not {submission.run.status}")
        _, replaced = clean_json(submission.request.to_json())
        queued = RunQueued(
            run=submission.run,
            request=submission.request,
            fingerprint=submission.fingerprint,
            text_replaced=submission.text_replaced + replaced,
            key_id=submission.key_id,
            ask=submission.ask,
        )
        run = MemoryRun(
            tenant=submission.tenant,
            id=submission.run.id,
            fingerprint=submission.fingerprint,
            epoch=submission.epoch,
            request=submission.request,
            key_id=submission.key_id,
        )
        event = number_clean(
            NewEvent(type="run.queued", payload=queued, work_id=run.id),
            seq=1,
            run_id=run.id,
            session_id=submission.run.session_id,
            at=self._clock.now(),
        )
        run.log.append(event)
        tombstone = self._tombstones.get((run.tenant, run.id))
        if tombstone is not None:
            ending = end_buried(run.view(), tombstone, at=self._clock.now())
            self._store(run, ending, (), ())
        run.request = RunRequest.model_validate(event.data["request"])
        if submission.claimed and not run.view().status.ended:
            run.generation, run.claimed = 1, True
        run.view()
        self._runs[run.tenant, run.id] = run
        for act in submission.audit:
            self._record(act, run.tenant)
        self._admitted.set()
        self._admitted = asyncio.Event()
        return run

    def _is_dead(self, submission: Submission) -> bool:
        return (submission.tenant, submission.run.id) in self._tombstones

    async def bury(
        self, run_id: str, *, by: CancelBy, reason: str | None = None, tenant: str = "local"
    ) -> Tombstone | None:
        """See `RunStore`."""
        if not is_run_id(run_id):
            raise InvalidRequest("not an id", param="id")
        if (tenant, run_id) in self._runs:
            return None
        reason = None if reason is None else clean_text(reason)[0]
        made = Tombstone(run_id=run_id, by=by, reason=reason, at=self._clock.now())
        return self._tombstones.setdefault((tenant, run_id), made)

    async def find_tombstone(self, run_id: str, *, tenant: str = "local") -> Tombstone | None:
        """See `RunStore`."""
        return self._tombstones.get((tenant, run_id))

    async def claim(
        self, epoch: str, *, run_id: str | None = None, tenant: str = "local"
    ) -> StoredRun | None:
        """See `RunStore`."""
        runs = self._runs.values() if run_id is None else [self._runs.get((tenant, run_id))]
        for run in runs:
            if run is not None and self._may_claim(run, epoch, named=run_id is not None):
                run.epoch = epoch
                run.generation += 1
                run.claimed = True
                return run.stored()
        return None

    def _may_claim(self, run: MemoryRun, epoch: str, *, named: bool) -> bool:
        status = run.view().status
        if status.ended or not (named or status == "queued"):
            return False
        if run.epoch != epoch:
            return not self._is_alive(run.epoch)
        return named or not run.claimed

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
        run = self._owned(tenant, run_id, generation)
        if any(event.type in TERMINAL_TYPES for event in events):
            raise MisuseError("a terminal is stored by `finish`")
        return self._store(run, events, transcript, artifacts)

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
        run = self._owned(tenant, run_id, generation)
        if [event.type in TERMINAL_TYPES for event in events] != [False] * (len(events) - 1) + [True]:
            raise MisuseError("the last fact of `finish` is the run's terminal, and no other one is")
        return self._store(run, events, (), artifacts)

    def _owned(self, tenant: str, run_id: str, generation: int) -> MemoryRun:
        run = self._runs.get((tenant, run_id))
        if run is None or not run.claimed or run.generation != generation:
            raise StaleGeneration("not the owner")
        if run.view().status.ended:
            raise AlreadyDecided("the run has ended")
        return run

    def _store(
        self,
        run: MemoryRun,
        events: Sequence[NewEvent],
        transcript: Sequence[TranscriptEntry],
        artifacts: Sequence[Artifact],
    ) -> tuple[Event, ...]:
        types = [event.type for event in events]
        if "run.queued" in types:
            raise MisuseError("a run is admitted by `submit`")
        for type_ in _ONCE:
            if types.count(type_) + run.has(type_) > 1:
                raise AlreadyDecided(f"{type_} stands in the log")
        session_id, now = run.view().session_id, self._clock.now
        stored = tuple(
            number_clean(new, seq=len(run.log) + place, run_id=run.id, session_id=session_id, at=now())
            for place, new in enumerate(events, start=1)
        )
        run.grow(stored, transcript, artifacts)
        for event in stored:
            act = audit_of_event(run.id, payload_of(event), key_id=run.key_id)
            if act is not None:
                self._record(act, run.tenant)
        if "run.released" in types:
            run.claimed = False
        return stored

    async def find_run(self, run_id: str, *, tenant: str = "local") -> StoredRun | None:
        """See `RunStore`."""
        run = self._runs.get((tenant, run_id))
        return None if run is None else run.stored()

    async def find_by_key(self, idempotency_key: str, *, tenant: str = "local") -> StoredRun | None:
        """See `RunStore`."""
        run = self._keys.get((tenant, idempotency_key))
        return None if run is None else run.stored()

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
        """See `RunStore`."""
        runs = [run for run in reversed(self._runs.values()) if run.tenant == tenant]
        if after is not None:
            places = [place for place, run in enumerate(runs) if run.id == after]
            if not places:
                raise InvalidRequest("there is no such place in the list", param="cursor")
            runs = runs[places[0] + 1 :]
        wanted = [
            stored
            for stored in (run.stored() for run in runs)
            if (not statuses or stored.view.status in statuses)
            and session_id in {None, stored.view.session_id}
            and binding in {None, stored.view.binding}
            and (created_after is None or stored.view.created_at > created_after)
        ]
        limit = max(1, limit)
        return tuple(wanted[:limit]), wanted[limit - 1].view.id if len(wanted) > limit else None

    async def read_events(
        self, run_id: str, *, after: int = 0, limit: int = 500, tenant: str = "local"
    ) -> tuple[Event, ...]:
        """See `RunStore`."""
        run = self._runs.get((tenant, run_id))
        first = max(0, after)
        return () if run is None else tuple(run.log[first : first + max(1, limit)])

    async def wait_for_events(self, run_id: str, *, after: int, tenant: str = "local") -> None:
        """See `RunStore`."""
        while (run := self._runs.get((tenant, run_id))) is None:
            await self._admitted.wait()
        if len(run.log) <= after:
            await run.grown.wait()

    async def read_attempts(self, run_id: str, *, tenant: str = "local") -> tuple[AttemptRow, ...]:
        """See `RunStore`."""
        run = self._runs.get((tenant, run_id))
        return () if run is None else run.attempts()

    async def read_transcript(
        self, run_id: str, *, stage_id: str | None = None, tenant: str = "local"
    ) -> tuple[TranscriptEntry, ...]:
        """See `RunStore`."""
        run = self._runs.get((tenant, run_id))
        entries = [] if run is None else run.transcript
        stages = list(dict.fromkeys(entry.stage_id for entry in entries))
        ordered = sorted(entries, key=lambda entry: (stages.index(entry.stage_id), entry.position))
        return tuple(entry for entry in ordered if stage_id in {None, entry.stage_id})

    async def read_artifact(self, run_id: str, name: str, *, tenant: str = "local") -> Artifact | None:
        """See `RunStore`."""
        run = self._runs.get((tenant, run_id))
        return None if run is None else run.artifacts.get(name)

    async def list_artifacts(self, run_id: str, *, tenant: str = "local") -> tuple[str, ...]:
        """See `RunStore`."""
        run = self._runs.get((tenant, run_id))
        return () if run is None else tuple(sorted(run.artifacts))

    async def children_of(self, run_id: str, *, tenant: str = "local") -> tuple[StoredRun, ...]:
        """See `RunStore`."""
        stored = [run.stored() for (owner, _), run in self._runs.items() if owner == tenant]
        return tuple(run for run in stored if run.view.parent_run_id == run_id)

    async def unfinished_of_dead_epochs(self) -> tuple[StoredRun, ...]:
        """See `RunStore`."""
        stored = [run.stored() for run in self._runs.values() if not self._is_alive(run.epoch)]
        return tuple(run for run in stored if not run.view.status.ended)

    async def log(self, run_id: str, type_: str, data: dict[str, Any], *, tenant: str = "local") -> None:
        """See `RunStore`."""
        run = self._runs.get((tenant, run_id))
        if run is None:
            raise NotFound("there is no such run")
        if not run.view().status.ended:
            raise PreconditionFailed("the host log is for what happens after a run's terminal")
        cleaned, _ = clean_json(data)
        run.history.append(HistoryEntry(at=self._clock.now(), type=type_, data=cleaned))
        act = audit_of_log(run_id, type_, cleaned)
        if act is not None:
            self._record(act, tenant)

    async def record(self, act: AuditFact, *, tenant: str = "local") -> None:
        """See `RunStore`."""
        self._record(act, tenant)

    async def trim_audit(self, *, before: datetime) -> int:
        """See `RunStore`."""
        check_trim(before, now=self._clock.now())
        configured = [entry.id for entry in self._audit if entry.action == "host.configured"][-1:]
        old = [entry for entry in self._audit if entry.at < before and entry.id not in configured]
        if not old:
            return 0
        data = {"acts": len(old), "before": format_time(before)}
        self._record(AuditFact(action="audit.trimmed", subject="audit", data=data), "local")
        self._audit = [entry for entry in self._audit if entry not in old]
        return len(old)

    def _record(self, act: AuditFact, tenant: str) -> None:
        cleaned = clean_json(act.model_dump(mode="json"))[0]
        number = self._audit[-1].id + 1 if self._audit else 1
        self._audit.append(
            AuditEntry.model_validate({**cleaned, "id": number, "at": self._clock.now(), "tenant": tenant})
        )

    async def read_audit(
        self, *, tenant: str | None = "local", before: int | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        """See `RunStore`."""
        found = [
            entry
            for entry in reversed(self._audit)
            if tenant in {None, entry.tenant} and (before is None or entry.id < before)
        ]
        return tuple(found[: max(1, limit)])

    async def read_history(self, run_id: str, *, tenant: str = "local") -> tuple[HistoryEntry, ...]:
        """See `RunStore`."""
        run = self._runs.get((tenant, run_id))
        return () if run is None else tuple(run.history)

    async def aclose(self) -> None:
        """Nothing to close; here so that it can stand where another store stands."""
