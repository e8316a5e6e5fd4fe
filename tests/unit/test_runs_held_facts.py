"""Facts that wait for the next ones: few durable steps, none forgotten, none unseen for long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from remit.contract import RunStatus
from remit.errors import NodeError, StorageBusy, StorageFull
from remit.events import Event, NewEvent, closing_among
from remit.primitives import SystemClock
from remit.runs._settlement import Settlement
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import PoolReply
from remit.testing._memory_store import MemoryStore
from remit.testing._run_world import RunWorld, good_replies, run_world

UNCHANGED = {"a.txt": "new\n"}
"""A tree that already holds what the work writes."""


class SteppingStore(MemoryStore):
    """Remembers what was stored together; on a full disk takes only what ends something."""

    def __init__(self) -> None:
        super().__init__(clock=SystemClock())
        self.steps: list[list[str]] = []
        self.full_from: str | None = None
        """The type of the first event that the disk doesn't take."""
        self._full = False
        self.errors: list[Exception] = []
        """Raised by the next steps, in order."""

    async def append(
        self,
        run_id: str,
        generation: int,
        events: Sequence[NewEvent],
        *,
        transcript: Any = (),
        artifacts: Any = (),
        tenant: str = "local",
    ) -> tuple[Event, ...]:
        """Store a step, if there is room for it."""
        if self.errors:
            raise self.errors.pop(0)
        types = [event.type for event in events]
        self._full |= self.full_from in types
        ends = len(closing_among(events)) == len(events)
        if self._full and (not ends or transcript or artifacts):
            raise StorageFull("full")
        self.steps.append(types)
        return await super().append(
            run_id, generation, events, transcript=transcript, artifacts=artifacts, tenant=tenant
        )

    def step_of(self, type_: str) -> list[str]:
        """What was stored with the first event of a type."""
        return next(step for step in self.steps if type_ in step)


async def wait_for(world: RunWorld, run_id: str, type_: str) -> None:
    """Until an event is stored."""
    async with asyncio.timeout(30):
        while type_ not in [event.type for event in await world.events(run_id)]:
            await asyncio.sleep(0.01)


async def test_what_follows_at_once_is_stored_together() -> None:
    """Before its terminal a reviewed run with a call and a delivery is nine durable steps."""
    store = SteppingStore()
    async with run_world(*good_replies(), store=store) as world:
        view = await world.drive()
    assert view.status is RunStatus.COMPLETED
    assert len(store.steps) == 9
    assert store.step_of("plan.ready")[-1] == "work.registered", "the open is announced before it is sent"
    assert store.step_of("checkout.opened")[-1] == "attempt.started"
    assert "stage.completed" in store.step_of("plan.ready")
    assert {"review.decided", "run.finalizing", "delivery.intent"} <= set(store.step_of("delivery.intent"))
    assert store.step_of("run.settling") == ["run.settling"]


async def test_where_nothing_is_delivered_the_review_is_stored_with_the_decision() -> None:
    """Nothing outside hangs on a result without changes: one step says all of it, in the order of the end."""
    store = SteppingStore()
    async with run_world(*good_replies(), store=store, node=FakeNode(dict(UNCHANGED))) as world:
        view = await world.drive()
    assert view.status is RunStatus.COMPLETED
    told = [type_ for type_ in store.step_of("run.settling") if not type_.startswith("work.")]
    assert told == [
        "attempt.completed",
        "stage.completed",
        "review.decided",
        "run.finalizing",
        "delivery.completed",
        "run.settling",
    ]
    assert len(store.steps) == 7


@pytest.mark.parametrize("missing", ["review.decided", "run.finalizing"])
async def test_what_can_not_be_stored_is_not_completed(missing: str) -> None:
    """R44: a run completes by what is on record; where its review can't be any more, it has failed."""
    store = SteppingStore()
    store.full_from = missing
    async with run_world(*good_replies(), store=store, node=FakeNode(dict(UNCHANGED))) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        view = await world.supervise(supervisor)
        types = [event.type for event in await world.events(run_id)]
    assert view.terminal is not None
    assert (view.status, view.terminal.class_, view.terminal.code, view.terminal.stage) == (
        RunStatus.FAILED,
        "workspace",
        "storage_full",
        "review-1",
    )
    assert view.output is None
    assert missing not in types
    assert types.count("attempt.completed") == types.count("attempt.started") == 4
    assert types[-1] == "run.failed"


async def test_nothing_waits_for_long() -> None:
    """R57: while a node takes its time, what came before is on record and the viewers see it."""
    node = FakeNode({"a.txt": "old\n"})
    gate = node.gates["snapshot"] = asyncio.Event()
    async with run_world(*good_replies(), store=SteppingStore(), node=node) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(world.supervise(supervisor))
            await wait_for(world, run_id, "tool.completed")
            async with asyncio.timeout(30):
                while [event.type for event in await world.events(run_id)].count("stage.completed") < 2:
                    await asyncio.sleep(0.01)
            gate.set()
        assert running.result().status is RunStatus.COMPLETED


async def test_a_failure_loses_nothing_that_waited() -> None:
    """R57: a node that fails just after a stage's end: the end is in the log, before the decision."""
    node = FakeNode({"a.txt": "old\n"})
    async with run_world(*good_replies(), store=SteppingStore(), node=node) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))

        async def lost(request: Any) -> Any:
            raise NodeError("gone", reason="lost")

        world.link.snapshot = lost
        view = await world.supervise(supervisor)
        types = [event.type for event in await world.events(run_id)]
    assert view.status is RunStatus.FAILED
    assert types.count("stage.completed") == 2
    assert types.index("run.settling") > max(
        at for at, type_ in enumerate(types) if type_ == "stage.completed"
    )


async def test_on_a_full_disk_the_decision_goes_without_what_waited() -> None:
    """R44: what can't be stored any more keeps neither the run from its end nor attempts from the bill."""
    store = SteppingStore()
    store.full_from = "review.decided"
    async with run_world(*good_replies(), store=store) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        view = await world.supervise(supervisor)
        types = [event.type for event in await world.events(run_id)]
    assert view.status is RunStatus.FAILED
    assert view.terminal is not None
    assert (view.terminal.class_, view.terminal.code) == ("workspace", "storage_full")
    assert types.count("attempt.completed") == types.count("attempt.started") == 4
    assert "review.decided" not in types
    assert "delivery.intent" not in types
    assert types[-1] == "run.failed"
    assert world.node.tree["a.txt"] == "old\n"


async def test_what_is_refused_is_on_record_first() -> None:
    """R60: the review of a patch that may not be delivered, and the patch, don't wait for the decision."""
    store = SteppingStore()
    node = FakeNode({"a.txt": "old\n"}, protected=("a.txt",))
    async with run_world(*good_replies(), store=store, node=node) as world:
        view = await world.drive()
        assert view.terminal is not None
        assert view.terminal.code == "delivery_refused"
        assert store.step_of("run.settling") == ["run.settling"]
        assert await store.read_artifact(view.id, "patch") is not None


async def test_what_is_refused_on_a_full_disk_is_the_disk() -> None:
    """R60: where the review can't be kept any more, that is why the run fails."""
    store = SteppingStore()
    store.full_from = "review.decided"
    node = FakeNode({"a.txt": "old\n"}, protected=("a.txt",))
    async with run_world(*good_replies(), store=store, node=node) as world:
        view = await world.drive()
    assert view.terminal is not None
    assert (view.terminal.class_, view.terminal.code) == ("workspace", "storage_full")


async def test_a_last_void_pass_is_on_record_first() -> None:
    """R83: a review that is void, and may not be asked again, doesn't wait for the decision."""
    store, node = SteppingStore(), FakeNode({"a.txt": "old\n"})
    async with run_world(*good_replies(), store=store, node=node) as world:
        supervisor = await world.admit(limits={"max_corrections": 0})
        run_id, look, looks = next(iter(world.controls)), world.link.snapshot, 0

        async def meddled(request: Any) -> Any:
            nonlocal looks
            looks += 1
            if looks == 3:  # before and after the review, then this one
                node.edit(run_id, "a.txt", "slipped in\n")
            return await look(request)

        world.link.snapshot = meddled
        view = await world.supervise(supervisor)
    assert view.terminal is not None
    assert (view.terminal.class_, view.terminal.code) == ("invalid_output", "review")
    assert store.step_of("run.settling") == ["run.settling"]


async def test_a_rejection_is_on_record_before_its_decision() -> None:
    """R60: a review that ends the run doesn't wait for its decision, which a full disk must take."""
    store, reject = SteppingStore(), '{"decision": "reject", "output": "", "summary": "No."}'
    async with run_world(*good_replies()[:3], PoolReply(text=reject), store=store) as world:
        view = await world.drive()
    assert view.terminal is not None
    assert view.terminal.code == "rejected"
    assert store.step_of("run.settling") == ["run.settling"]


async def test_nobody_waits_with_anything_held() -> None:
    """R57: before checks are run, and before a caller is asked, all that came before is on record."""
    store, seen = SteppingStore(), list[bool]()
    node = FakeNode({"a.txt": "old\n"}, checks={"test": lambda tree: 0})
    async with run_world(*good_replies(), store=store, node=node) as world:
        supervisor = await world.admit(acknowledge="required")
        control, check = next(iter(world.controls.values())), world.link.checks

        async def checks(request: Any) -> Any:
            seen.append(not supervisor._journal._held.waiting)
            return await check(request)

        world.link.checks = checks
        async with asyncio.TaskGroup() as group:
            running = group.create_task(world.supervise(supervisor))
            while control.acknowledged is None:
                await asyncio.sleep(0)
            seen.append(not supervisor._journal._held.waiting)
            assert control.acknowledge(True)
        assert running.result().status is RunStatus.COMPLETED
    assert seen == [True, True]


async def test_a_caller_is_asked_once_all_is_on_record() -> None:
    """S12: also where no checks stand between the review and the question."""
    async with run_world(*good_replies(), store=SteppingStore()) as world:
        supervisor = await world.admit(acknowledge="required")
        control = next(iter(world.controls.values()))
        async with asyncio.TaskGroup() as group:
            group.create_task(world.supervise(supervisor))
            while control.acknowledged is None:
                await asyncio.sleep(0)
            assert not supervisor._journal._held.waiting
            assert control.acknowledge(True)


async def test_what_could_not_be_stored_in_time_is_stored_later() -> None:
    """R59: a store that is busy when something is due doesn't end the run, and loses nothing of it."""
    node, store = FakeNode({"a.txt": "old\n"}), SteppingStore()
    gate = node.gates["snapshot"] = asyncio.Event()
    async with run_world(*good_replies(), store=store, node=node) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(world.supervise(supervisor))
            async with asyncio.timeout(30):
                while "snapshot" not in node.kinds():
                    await asyncio.sleep(0)
                store.errors = [StorageBusy("busy")]
                while store.errors:
                    await asyncio.sleep(0.01)
            gate.set()
        assert running.result().status is RunStatus.COMPLETED
        types = [event.type for event in await world.events(run_id)]
    assert types.count("stage.completed") == 3


async def test_a_cancel_on_a_full_disk_is_one() -> None:
    """R60: what was held when the disk was full changes nothing of how a run ends that doesn't complete."""
    node, store = FakeNode({"a.txt": "old\n"}), SteppingStore()
    node.gates["snapshot"] = asyncio.Event()
    async with run_world(*good_replies(), store=store, node=node) as world:
        supervisor = await world.admit()
        (run_id,) = world.controls
        async with asyncio.TaskGroup() as group:
            running = group.create_task(world.supervise(supervisor))
            async with asyncio.timeout(30):
                while "snapshot" not in node.kinds():
                    await asyncio.sleep(0)
            store.full_from = "stage.completed"
            assert world.cancel(run_id)
            node.gates.clear()
        view = running.result()
        types = [event.type for event in await world.events(run_id)]
    assert view.terminal is not None
    assert (view.terminal.kind, view.terminal.code) == ("cancelled", "caller")
    assert types.count("stage.completed") == 1
    assert types[-1] == "run.cancelled"


async def test_a_delivered_run_is_not_made_a_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """R60: once all that it came to is on record, a decision for which there is no room isn't taken anew."""
    store, node = SteppingStore(), FakeNode({"a.txt": "old\n"})
    async with run_world(*good_replies(), store=store, node=node) as world:
        supervisor = await world.admit()
        (run_id,) = world.controls
        decide, full = Settlement._facts_of, [StorageFull("full")]

        def facts_of(settlement: Any, *args: Any) -> Any:
            store.errors, full[:] = list(full), []
            return decide(settlement, *args)

        monkeypatch.setattr(Settlement, "_facts_of", facts_of)
        with pytest.raises(StorageFull):
            await world.supervise(supervisor)
        types = [event.type for event in await world.events(run_id)]
    assert node.tree == {"a.txt": "new\n"}
    assert types[-1] == "delivery.completed" or types[-1].startswith("work.")
    assert "run.settling" not in types
