"""A store in memory: the run store's rules without a database, to test against and to test with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from remit.contract import (
    AttemptEnded,
    AttemptStarted,
    AuditEntry,
    AuditFact,
    RunEnded,
    RunQueued,
    RunRequest,
    RunStatus,
    RunView,
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
    number_event,
    payload_of,
)
from remit.primitives import Clock, clean_json, clean_text, dump_json, format_time, is_run_id
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
    fold_event,
)

_ONCE = ("run.settling", "delivery.intent")


@dataclass(slots=True, kw_only=True)
class _Run:
    """All that is kept of a run. Its row is folded anew from its log whenever it is asked for."""

    tenant: str
    id: str
    fingerprint: str
    epoch: str
    request: RunRequest
    key_id: str | None = None
    generation: int = 0
    claimed: bool = False
    log: list[Event] = field(default_factory=list[Event])
    transcript: list[TranscriptEntry] = field(default_factory=list[TranscriptEntry])
    artifacts: dict[str, Artifact] = field(default_factory=dict[str, Artifact])
    history: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    def view(self) -> RunView:
        view: RunView | None = None
        for event in self.log:
            view = fold_event(view, event)
        assert view is not None, "a run is admitted with its first event"
        return view

    def stored(self) -> StoredRun:
        return StoredRun(
            view=self.view(),
            request=self.request,
            fingerprint=self.fingerprint,
            tenant=self.tenant,
            epoch=self.epoch,
            generation=self.generation,
            last_seq=len(self.log),
            key_id=self.key_id,
        )

    def has(self, type_: str) -> bool:
        return any(event.type == type_ for event in self.log)


class MemoryStore:
    """`remit.runs.RunStore` in memory. It forgets everything with the process, and nothing before.

    Args:
        clock: Gives events their moments.
        is_alive: Whether a host epoch is alive; by default every one is.
    """

    def __init__(self, *, clock: Clock, is_alive: Callable[[str], bool] = lambda _: True) -> None:
        self._clock = clock
        self._is_alive = is_alive
        self._runs: dict[tuple[str, str], _Run] = {}
        """In the order of admission."""
        self._keys: dict[tuple[str, str], _Run] = {}
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

    def _find_submitted(self, submission: Submission) -> _Run | None:
        by_id = self._runs.get((submission.tenant, submission.run.id))
        key = submission.idempotency_key
        by_key = None if key is None else self._keys.get((submission.tenant, key))
        if by_id is not None and by_key is not None and by_id is not by_key:
            raise IdempotencyConflict("the id was used for one request and the key for another")
        return by_key or by_id

    def _admit(self, submission: Submission) -> _Run:
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
        run = _Run(
            tenant=submission.tenant,
            id=submission.run.id,
            fingerprint=submission.fingerprint,
            epoch=submission.epoch,
            request=submission.request,
            key_id=submission.key_id,
        )
        event = self._number(
            NewEvent(type="run.queued", payload=queued, work_id=submission.run.id),
            run,
            submission.run.session_id,
            1,
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

    def _may_claim(self, run: _Run, epoch: str, *, named: bool) -> bool:
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

    def _owned(self, tenant: str, run_id: str, generation: int) -> _Run:
        run = self._runs.get((tenant, run_id))
        if run is None or not run.claimed or run.generation != generation:
            raise StaleGeneration("not the owner")
        if run.view().status.ended:
            raise AlreadyDecided("the run has ended")
        return run

    def _store(
        self,
        run: _Run,
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
        session_id = run.view().session_id
        stored = tuple(
            self._number(new, run, session_id, len(run.log) + place)
            for place, new in enumerate(events, start=1)
        )
        messages = [_clean_message(entry) for entry in transcript]
        self._check(run, stored, messages)
        run.log.extend(stored)
        for event in stored:
            act = audit_of_event(run.id, payload_of(event), key_id=run.key_id)
            if act is not None:
                self._record(act, run.tenant)
        run.transcript.extend(messages)
        for artifact in artifacts:
            name, text = clean_text(artifact.name)[0], clean_text(artifact.text)[0]
            run.artifacts[name] = Artifact(name=name, text=text, media_type=artifact.media_type)
        if "run.released" in types:
            run.claimed = False
        run.grown.set()
        run.grown = asyncio.Event()
        return stored

    def _number(self, new: NewEvent, run: _Run, session_id: str, seq: int) -> Event:
        event = number_event(new, seq=seq, run_id=run.id, session_id=session_id, at=self._clock.now())
        try:
            dump_json(event.data)
        except (ValueError, RecursionError) as error:
            raise InternalError(f"the data of {new.type!r} can't be written as JSON: {error}") from error
        data, replaced = clean_json(event.data)
        work_id, in_work = clean_json(event.work_id)
        parent_work_id, in_parent = clean_json(event.parent_work_id)
        if replaced + in_work + in_parent:
            names = {"work_id": work_id, "parent_work_id": parent_work_id}
            event = event.model_copy(update={"data": data, **names})
        payload = payload_of(event)
        if isinstance(payload, RunEnded):
            ended = payload.run
            if ended.id != run.id or event.type != f"run.{ended.status}" or ended.terminal is None:
                raise InternalError("another run's terminal, or one of another kind")
        return event

    def _check(self, run: _Run, stored: Sequence[Event], messages: Sequence[TranscriptEntry]) -> None:
        view: RunView | None = run.view()
        for event in stored:
            view = fold_event(view, event)
        _ledger([*run.log, *stored])
        taken = [(entry.stage_id, entry.position) for entry in [*run.transcript, *messages]]
        if len(set(taken)) < len(taken) or any(position < 0 for _, position in taken):
            raise InternalError("a position of the transcript that is taken")

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
        return () if run is None else _ledger(run.log)

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


def _clean_message(entry: TranscriptEntry) -> TranscriptEntry:
    stage_id, body = clean_text(entry.stage_id)[0], clean_json(entry.body)[0]
    return TranscriptEntry(stage_id=stage_id, position=entry.position, role=entry.role, body=body)


def _ledger(log: Sequence[Event]) -> tuple[AttemptRow, ...]:
    """The attempts of a log, in order of start.

    Raises:
        InternalError: One starts twice, or ends twice, or without having started.
    """
    rows: dict[str, AttemptRow] = {}
    for event in log:
        if not event.type.startswith("attempt."):
            continue
        payload = payload_of(event)
        if isinstance(payload, AttemptStarted):
            if payload.attempt_id in rows:
                raise InternalError("an attempt started twice")
            rows[payload.attempt_id] = AttemptRow(
                run_id=event.run_id, started=payload, started_at=event.at, ended=None, ended_at=None
            )
        elif isinstance(payload, AttemptEnded):
            row = rows.get(payload.attempt_id)
            if row is None or row.ended is not None:
                raise InternalError("an attempt ended that hadn't started, or had ended")
            rows[payload.attempt_id] = AttemptRow(
                run_id=row.run_id,
                started=row.started,
                started_at=row.started_at,
                ended=payload,
                ended_at=event.at,
            )
    return tuple(rows.values())
