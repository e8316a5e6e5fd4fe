"""What a store in memory keeps of one run, and what may follow in its log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from remit.contract import AttemptEnded, AttemptStarted, RunEnded, RunRequest, RunView
from remit.errors import InternalError
from remit.events import Artifact, Event, NewEvent, TranscriptEntry, number_event, payload_of
from remit.primitives import clean_json, clean_text, dump_json
from remit.runs import AttemptRow, HistoryEntry, StoredRun, fold_event


@dataclass(slots=True, kw_only=True)
class MemoryRun:
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
        """Its row."""
        view: RunView | None = None
        for event in self.log:
            view = fold_event(view, event)
        assert view is not None, "a run is admitted with its first event"
        return view

    def stored(self) -> StoredRun:
        """What a store gives of it."""
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
        """Whether an event of this type is in its log."""
        return any(event.type == type_ for event in self.log)

    def attempts(self) -> tuple[AttemptRow, ...]:
        """Its ledger."""
        return _ledger(self.log)

    def grow(
        self, events: Sequence[Event], transcript: Sequence[TranscriptEntry], artifacts: Sequence[Artifact]
    ) -> None:
        """Keep more of it, all or nothing.

        Raises:
            InternalError: It isn't what can follow.
        """
        messages = [_clean_message(entry) for entry in transcript]
        self._check(events, messages)
        self.log.extend(events)
        self.transcript.extend(messages)
        for artifact in artifacts:
            name, text = clean_text(artifact.name)[0], clean_text(artifact.text)[0]
            self.artifacts[name] = Artifact(name=name, text=text, media_type=artifact.media_type)
        self.grown.set()
        self.grown = asyncio.Event()

    def _check(self, events: Sequence[Event], messages: Sequence[TranscriptEntry]) -> None:
        view = self.view()
        for event in events:
            view = fold_event(view, event)
        _ledger([*self.log, *events])
        taken = [(entry.stage_id, entry.position) for entry in [*self.transcript, *messages]]
        if len(set(taken)) < len(taken) or any(position < 0 for _, position in taken):
            raise InternalError("a position of the transcript that is taken")


def number_clean(new: NewEvent, *, seq: int, run_id: str, session_id: str, at: datetime) -> Event:
    """A fact in its place in a log, without what can't be kept.

    Raises:
        InternalError: It can't be kept at all.
    """
    event = number_event(new, seq=seq, run_id=run_id, session_id=session_id, at=at)
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
        if ended.id != run_id or event.type != f"run.{ended.status}" or ended.terminal is None:
            raise InternalError("another run's terminal, or one of another kind")
    return event


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
