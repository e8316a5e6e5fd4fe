"""Rules of the audit record."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from remit.contract import AuditFact, Delivery, DeliveryCompleted, DeliveryIntended, DeliveryMode
from remit.errors import IdempotencyConflict, NotFound, PreconditionFailed
from remit.events import NewEvent
from remit.testing._store_samples import SAMPLE_PATCH, reviewed_run, sample_submission
from remit.testing._store_suite_harness import StoreHarness, admit, store_write

_OVERRIDE = AuditFact(
    actor="key_1",
    action="run.override",
    subject="run run_1",
    origin="192.0.2.7",
    data={"overrides": ["unreviewed"]},
)


class AuditRules:
    """`record`, `read_audit`, and what other operations put on record with what they store."""

    async def test_acts_are_kept_in_order_by_tenant(self, harness: StoreHarness) -> None:
        """Who, what, when, from where, with what outcome; nobody sees another tenant's."""
        store = harness.store
        for number in range(3):
            await store.record(AuditFact(action="admin.called", subject=f"call {number}"))
        await store.record(
            AuditFact(action="admin.called", subject="call x", outcome="forbidden"), tenant="b"
        )
        entries = await store.read_audit()
        assert [entry.subject for entry in entries] == ["call 2", "call 1", "call 0"]
        assert [entry.id for entry in entries] == sorted((entry.id for entry in entries), reverse=True)
        assert {(entry.tenant, entry.actor, entry.outcome) for entry in entries} == {
            ("local", "owner", "done")
        }
        older = await store.read_audit(before=entries[0].id, limit=1)
        assert [entry.subject for entry in older] == ["call 1"]
        (foreign,) = await store.read_audit(tenant="b")
        assert (foreign.subject, foreign.outcome) == ("call x", "forbidden")
        assert len(await store.read_audit(tenant=None)) == 4
        assert len(await (await harness.another_host()).read_audit(tenant=None)) == 4

    async def test_acts_of_a_submission_are_stored_with_it(self, harness: StoreHarness) -> None:
        """Once, and only where the run was admitted: a repeated or refused start leaves no second trace."""
        epoch, store = harness.start_epoch(), harness.store
        submission = replace(sample_submission("run_1", epoch=epoch), audit=(_OVERRIDE,))
        await store.submit(submission)
        await store.submit(submission)
        with pytest.raises(IdempotencyConflict):
            await store.submit(replace(submission, fingerprint="another"))
        (entry,) = await store.read_audit()
        assert AuditFact.model_validate(entry.model_dump(exclude={"id", "at", "tenant"})) == _OVERRIDE

    @pytest.mark.parametrize("mode", ["apply", "branch", "patch"])
    async def test_a_delivery_is_on_record_with_its_event(self, harness: StoreHarness, mode: str) -> None:
        """What went to a tree or a branch is; a patch that stays in the store isn't."""
        store, run = harness.store, await admit(harness, "run_1")
        word = cast("DeliveryMode", mode)
        done = Delivery(mode=word, status="conflict", ref="main" if mode == "branch" else None)
        events = [
            NewEvent(type="delivery.intent", payload=DeliveryIntended(mode=word, patch=SAMPLE_PATCH)),
            NewEvent(
                type="delivery.completed", payload=DeliveryCompleted(delivery=done, paths=("a.txt", "b.txt"))
            ),
        ]
        await store.append("run_1", run.generation, events)
        entries = await store.read_audit()
        if mode == "patch":
            assert entries == ()
            return
        (entry,) = entries
        assert (entry.action, entry.subject, entry.outcome) == ("delivery.ended", "run run_1", "conflict")
        assert (entry.actor, entry.origin) == ("owner", None)
        assert (entry.data["mode"], entry.data["ref"], entry.data["paths"]) == (mode, done.ref, 2)

    async def test_what_is_done_by_hand_is_on_record_with_the_host_log(self, harness: StoreHarness) -> None:
        """A patch delivered, thrown away or taken back after the end, by whom and from where."""
        store, run = harness.store, await admit(harness, "run_1")
        line = {"mode": "apply", "by": "key_7", "origin": "192.0.2.7", "paths": 2, "unreviewed": True}
        with pytest.raises(PreconditionFailed):
            await store.log("run_1", "delivery.completed", line)
        with pytest.raises(NotFound):
            await store.log("no", "delivery.completed", line)
        assert await store.read_audit() == ()
        writes = list(reviewed_run(run.view))
        for write in writes:
            await store_write(store, run, write, last=write is writes[-1])
        before = await store.read_audit()
        await store.log("run_1", "webhook", {"status": 200})
        await store.log("run_1", "delivery.completed", line)
        await store.log("run_1", "delivery.undone", {"mode": "apply", "paths": 2})
        await store.log("run_1", "delivery.discarded", {"by": "hand"})
        entries = (await store.read_audit())[: -len(before) or None]
        told = [(entry.action, entry.actor, entry.origin, entry.outcome) for entry in reversed(entries)]
        assert told == [
            ("delivery.ended", "key_7", "192.0.2.7", "delivered"),
            ("delivery.undone", "owner", None, "done"),
            ("delivery.discarded", "owner", None, "done"),
        ]
        assert entries[-1].data == {"mode": "apply", "paths": 2, "unreviewed": True}
