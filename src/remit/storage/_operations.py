"""What the writer can be asked for, one class each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from remit.contract import RunQueued, RunStatus, RunView
from remit.errors import IdempotencyConflict, InternalError, InvalidRequest, NotFound, PreconditionFailed
from remit.events import Artifact, Event, NewEvent, TranscriptEntry, closing_among
from remit.primitives import clean_text, format_time, is_run_id
from remit.runs import StoredRun, Submission, Submitted, Tombstone, audit_of_event, audit_of_log, end_buried
from remit.storage._burying import find_tombstone
from remit.storage._claiming import choose_run
from remit.storage._facts import (
    Fact,
    add_facts,
    artifact_rows,
    check_owner,
    check_types,
    fold_facts,
    transcript_rows,
    write_down,
)
from remit.storage._held import RunRef
from remit.storage._queries import find_by_key, load_run
from remit.storage._texts import dump_clean
from remit.storage._transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """`append` and `finish`."""

    ref: RunRef
    generation: int
    events: tuple[NewEvent, ...]
    transcript: Sequence[TranscriptEntry] = ()
    artifacts: Sequence[Artifact] = ()
    ends: bool = False

    @property
    def weight(self) -> int:
        """Its events, and the messages beside them."""
        return max(1, len(self.events) + len(self.transcript) + len(self.artifacts))

    @property
    def closing(self) -> bool:
        """Whether it only ends things. What comes with the terminal is stored with it, if there is room."""
        if self.ends:
            return True
        if self.transcript or self.artifacts:
            return False
        return len(closing_among(self.events)) == len(self.events)

    def run(self, transaction: Transaction) -> tuple[Event, ...]:
        """Check, number, fold, and add the rows."""
        held = check_owner(transaction.find(self.ref), self.generation)
        check_types(held, self.events, ends=self.ends)
        at = transaction.clock.now()
        facts = [
            write_down(
                new, seq=held.last_seq + place, run_id=held.view.id, session_id=held.view.session_id, at=at
            )
            for place, new in enumerate(self.events, start=1)
        ]
        view = fold_facts(held.view, facts)
        assert view is not None, "a run that is owned has a row"
        messages = transcript_rows(held.key, self.transcript)
        texts = artifact_rows(held.key, self.artifacts)
        # Nothing raises below: the state and the rows change together.
        rows = transaction.rows
        add_facts(rows, held.key, facts)
        rows.transcript.extend(messages)
        rows.artifacts.extend(texts)
        if view is not held.view:
            rows.views[held.key] = view
            if view.status is not held.view.status:
                rows.statuses[held.key] = str(view.status)
            held.view = view
        types = {new.type for new in self.events}
        if "run.released" in types:
            rows.released.append((held.key,))
            held.claimed = False
        held.settled |= "run.settling" in types
        held.intended |= "delivery.intent" in types
        held.last_seq += len(facts)
        transaction.stored.extend((self.ref, fact.event) for fact in facts)
        for fact in facts:
            act = audit_of_event(fact.event.run_id, fact.payload, key_id=held.key_id)
            if act is not None:
                transaction.audit(self.ref.tenant, act)
        if self.ends:
            transaction.done.add(self.ref)
        return tuple(fact.event for fact in facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """`submit`."""

    submission: Submission
    weight: int = 1
    closing: bool = False

    def run(self, transaction: Transaction) -> Submitted:
        """The run that was there, or the new one."""
        self._check_names()
        transaction.flush()
        there = self._find(transaction)
        if there is None:
            return Submitted(run=load_run(transaction.connection, self._insert(transaction)), created=True)
        key, fingerprint = there
        if fingerprint != self.submission.fingerprint and self._tombstone(transaction) is None:
            raise IdempotencyConflict("the same id or key was used before, with another request")
        self._bind_key(transaction, key)
        return Submitted(run=load_run(transaction.connection, key), created=False)

    def _check_names(self) -> None:
        key = self.submission.idempotency_key
        if not is_run_id(self.submission.run.id):
            raise InvalidRequest("an id is 1 to 128 of A-Z a-z 0-9 _ -", param="id")
        if key is not None and clean_text(key)[1]:
            raise InvalidRequest(
                "the idempotency key holds characters that can't be kept", param="Idempotency-Key"
            )

    def _find(self, transaction: Transaction) -> tuple[int, str] | None:
        tenant, run_id = self.submission.tenant, self.submission.run.id
        by_id = transaction.connection.execute(
            "SELECT key, fingerprint FROM runs WHERE tenant = ? AND id = ?", (tenant, run_id)
        ).fetchone()
        if self.submission.idempotency_key is None:
            return by_id
        by_key = find_by_key(transaction.connection, tenant, self.submission.idempotency_key)
        if by_id is not None and by_key is not None and by_id[0] != by_key[0]:
            raise IdempotencyConflict("the id was used for one request and the key for another")
        return by_key or by_id

    def _insert(self, transaction: Transaction) -> int:
        submission, run = self.submission, self.submission.run
        if run.status is not RunStatus.QUEUED:
            raise InternalError(f"a run is admitted queued, not {run.status}")
        _, _, replaced = dump_clean(submission.request.to_json())
        queued = RunQueued(
            run=run,
            request=submission.request,
            fingerprint=submission.fingerprint,
            text_replaced=submission.text_replaced + replaced,
            key_id=submission.key_id,
            ask=submission.ask,
        )
        fact = write_down(
            NewEvent(type="run.queued", payload=queued, work_id=run.id),
            seq=1,
            run_id=run.id,
            session_id=run.session_id,
            at=transaction.clock.now(),
        )
        view = fold_facts(None, [fact])
        assert view is not None, "the first fact makes the row"
        facts = [fact, *self._ends_at_once(transaction, view)]
        view = fold_facts(view, facts[1:]) or view
        claimed = int(submission.claimed and not view.status.ended)
        key = transaction.connection.execute(
            "INSERT INTO runs (tenant, id, session_id, binding, status, created_at, fingerprint, epoch,"
            " claimed, generation, parent_id, key_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                submission.tenant,
                view.id,
                view.session_id,
                view.binding,
                str(view.status),
                format_time(view.created_at),
                submission.fingerprint,
                submission.epoch,
                claimed,
                claimed,
                view.parent_run_id,
                submission.key_id,
            ),
        ).lastrowid
        assert key is not None, "an insert gives the row its key"
        add_facts(transaction.rows, key, facts)
        transaction.rows.views[key] = view
        transaction.flush()
        self._bind_key(transaction, key)
        ref = RunRef(submission.tenant, run.id)
        transaction.stored.extend((ref, stored.event) for stored in facts)
        for act in submission.audit:
            transaction.audit(submission.tenant, act)
        return key

    def _tombstone(self, transaction: Transaction) -> Tombstone | None:
        return find_tombstone(transaction.connection, RunRef(self.submission.tenant, self.submission.run.id))

    def _ends_at_once(self, transaction: Transaction, view: RunView) -> list[Fact]:
        """What follows on the admission of a dead id; nothing where the id is alive."""
        tombstone = self._tombstone(transaction)
        if tombstone is None:
            return []
        at = transaction.clock.now()
        return [
            write_down(new, seq=seq, run_id=view.id, session_id=view.session_id, at=at)
            for seq, new in enumerate(end_buried(view, tombstone, at=at), start=2)
        ]

    def _bind_key(self, transaction: Transaction, key: int) -> None:
        if self.submission.idempotency_key is not None:
            transaction.connection.execute(
                "INSERT INTO idempotency_keys (tenant, key, run) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (self.submission.tenant, self.submission.idempotency_key, key),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`claim`."""

    epoch: str
    ref: RunRef | None
    weight: int = 1
    closing: bool = True
    """It adds nothing to the database's size, and without it no run could be ended."""

    def run(self, transaction: Transaction) -> StoredRun | None:
        """Take the run, or None."""
        transaction.flush()
        key = choose_run(transaction.connection, transaction.epochs, self.epoch, self.ref)
        if key is None:
            return None
        transaction.connection.execute(
            "UPDATE runs SET epoch = ?, generation = generation + 1, claimed = 1 WHERE key = ?",
            (self.epoch, key),
        )
        stored = load_run(transaction.connection, key)
        transaction.forget(RunRef(stored.tenant, stored.view.id))
        return stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """`log`."""

    ref: RunRef
    type: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    weight: int = 1
    closing: bool = True

    def run(self, transaction: Transaction) -> None:
        """Add a line to the host log of an ended run."""
        held = transaction.find(self.ref)
        if held is None:
            raise NotFound("there is no such run")
        transaction.done.add(self.ref)
        if not held.ended:
            raise PreconditionFailed("the host log is for what happens after a run's terminal")
        transaction.connection.execute(
            "INSERT INTO history (run, at, type, data) VALUES (?, ?, ?, ?)",
            (held.key, format_time(transaction.clock.now()), self.type, dump_clean(self.data)[0]),
        )
        act = audit_of_log(self.ref.run_id, self.type, self.data)
        if act is not None:
            transaction.audit(self.ref.tenant, act)
