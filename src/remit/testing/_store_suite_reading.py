"""Rules of what is read: ledger, conversations, artifacts, lists, the host log."""

from __future__ import annotations

from datetime import timedelta

import pytest

from remit.contract import RunStatus
from remit.errors import InternalError, InvalidRequest, NotFound, PreconditionFailed
from remit.events import Artifact, Event
from remit.testing._store_samples import (
    SAMPLE_MOMENT,
    attempt_completed,
    attempt_started,
    message,
    sample_submission,
    settling,
    stage_started,
    terminal,
    work_registered,
)
from remit.testing._store_suite_harness import StoreHarness, admit


class ReadingRules:
    """The reading operations, and `log`."""

    async def test_what_isnt_there(self, harness: StoreHarness) -> None:
        """Reading an unknown id isn't an error."""
        store = harness.store
        assert await store.find_run("no") is None
        assert await store.read_events("no") == ()
        assert await store.read_attempts("no") == ()
        assert await store.read_transcript("no") == ()
        assert await store.read_artifact("no", "plan") is None
        assert await store.list_artifacts("no") == ()
        assert await store.read_history("no") == ()
        assert await store.list_runs() == ((), None)
        assert await store.unfinished_of_dead_epochs() == ()
        assert await store.claim(harness.start_epoch()) is None

    async def test_events_in_pages(self, harness: StoreHarness) -> None:
        """R66: what a reader joins together from pages is the whole log, once, in order."""
        run = await admit(harness, "run_1")
        await harness.store.append(
            "run_1", run.generation, [work_registered(str(place)) for place in range(10)]
        )
        whole = await harness.store.read_events("run_1")
        for limit in (1, 3, 11, 50):
            joined: list[Event] = []
            while page := await harness.store.read_events("run_1", after=len(joined), limit=limit):
                assert len(page) <= limit
                joined.extend(page)
            assert tuple(joined) == whole
        assert await harness.store.read_events("run_1", after=-5) == whole
        assert await harness.store.read_events("run_1", after=99) == ()

    async def test_the_ledger(self, harness: StoreHarness) -> None:
        """R22: one line per attempt from before its request is sent on, in order of start."""
        run = await admit(harness, "run_1")
        store = harness.store
        await store.append("run_1", run.generation, [attempt_started("z"), attempt_started("a")])
        first, second = await store.read_attempts("run_1")
        assert [first.started.attempt_id, second.started.attempt_id] == ["z", "a"]
        assert (first.ended, first.ended_at, first.run_id) == (None, None, "run_1")
        await store.append("run_1", run.generation, [attempt_completed("a")])
        first, second = await store.read_attempts("run_1")
        assert first.ended is None
        assert second.ended is not None
        assert second.ended.usage is not None
        assert second.ended.usage.total_tokens == 1_280
        assert second.ended_at is not None
        with pytest.raises(InternalError):
            await store.append("run_1", run.generation, [attempt_completed("a")])

    async def test_conversations(self, harness: StoreHarness) -> None:
        """Messages come by stage in the order of the stages' beginnings, then by position."""
        run = await admit(harness, "run_1")
        store = harness.store
        for entries in (
            [message("work-1", 0, "a"), message("plan", 0, "b")],
            [message("plan", 1, "c"), message("work-1", 1, "d")],
        ):
            await store.append("run_1", run.generation, [], transcript=entries)
        read = await store.read_transcript("run_1")
        assert [(entry.stage_id, entry.body["text"]) for entry in read] == [
            ("work-1", "a"),
            ("work-1", "d"),
            ("plan", "b"),
            ("plan", "c"),
        ]
        assert await store.read_transcript("run_1", stage_id="plan") == read[2:]
        assert await store.read_transcript("run_1", stage_id="review-1") == ()

    async def test_a_position_is_taken_once(self, harness: StoreHarness) -> None:
        """(run, stage, position) names one message; a second one is refused, with all that came along."""
        run = await admit(harness, "run_1")
        store = harness.store
        await store.append("run_1", run.generation, [], transcript=[message("plan", 0, "a")])
        for entry in (message("plan", 0, "b"), message("plan", -1, "b")):
            with pytest.raises(InternalError):
                await store.append("run_1", run.generation, [work_registered("x")], transcript=[entry])
        assert [entry.body["text"] for entry in await store.read_transcript("run_1")] == ["a"]
        assert len(await store.read_events("run_1")) == 1

    async def test_artifacts(self, harness: StoreHarness) -> None:
        """A name stands for its newest text; names come sorted; large texts are whole."""
        run = await admit(harness, "run_1")
        store = harness.store
        large = Artifact(name="patch", text="+ line of a patch\n" * 100_000, media_type="text/x-diff")
        plans = [Artifact(name="plan", text="one"), Artifact(name="plan", text="two")]
        await store.append("run_1", run.generation, [], artifacts=[*plans, large])
        assert await store.list_artifacts("run_1") == ("patch", "plan")
        assert await store.read_artifact("run_1", "patch") == large
        plan = await store.read_artifact("run_1", "plan")
        assert plan is not None
        assert plan.text == "two"
        last = Artifact(name="plan", text="three")
        await store.finish("run_1", run.generation, [settling(), terminal(run.view)], artifacts=[last])
        assert await store.read_artifact("run_1", "plan") == last
        assert await store.read_artifact("run_1", "none") is None

    async def test_the_host_log(self, harness: StoreHarness) -> None:
        """What happens after the terminal goes to the host log, in order, and never into the run's events."""
        run = await admit(harness, "run_1")
        store = harness.store
        with pytest.raises(NotFound):
            await store.log("no", "webhook", {})
        with pytest.raises(PreconditionFailed):
            await store.log("run_1", "webhook", {})
        await store.finish("run_1", run.generation, [settling(), terminal(run.view)])
        for attempt in range(3):
            await store.log("run_1", "webhook", {"attempt": attempt})
        lines = await store.read_history("run_1")
        assert [(line.type, line.data) for line in lines] == [
            ("webhook", {"attempt": attempt}) for attempt in range(3)
        ]
        assert len(await store.read_events("run_1")) == 3

    async def test_lists_in_pages(self, harness: StoreHarness) -> None:
        """Newest first; pages join to the whole, also while runs are added."""
        epoch, store = harness.start_epoch(), harness.store
        for place in range(7):
            await store.submit(sample_submission(f"run_{place}", epoch=epoch))
        for limit in (1, 2, 3, 7, 50):
            found: list[str] = []
            cursor: str | None = None
            while True:
                page, cursor = await store.list_runs(after=cursor, limit=limit)
                found += [run.view.id for run in page]
                if cursor is None:
                    break
            assert found == [f"run_{place}" for place in reversed(range(7))]
        _, cursor = await store.list_runs(limit=3)
        await store.submit(sample_submission("run_new", epoch=epoch))
        page, _ = await store.list_runs(after=cursor, limit=2)
        assert [run.view.id for run in page] == ["run_3", "run_2"]
        with pytest.raises(InvalidRequest):
            await store.list_runs(after="no_such_run")
        with pytest.raises(InvalidRequest):
            await store.list_runs(after="run_1", tenant="b")

    async def test_lists_by_what_they_hold(self, harness: StoreHarness) -> None:
        """By status, session, binding and moment of creation, and by several at once."""
        epoch, store = harness.start_epoch(), harness.store
        for place, (session, binding) in enumerate([("s", "x"), ("s", "y"), ("t", "x"), ("u", "y")]):
            created = SAMPLE_MOMENT + timedelta(seconds=place)
            submission = sample_submission(
                f"run_{place}", epoch=epoch, session_id=session, binding=binding, created_at=created
            )
            await store.submit(submission)
        run = await store.claim(epoch, run_id="run_2")
        assert run is not None
        await store.append("run_2", run.generation, [stage_started("work-1", RunStatus.WORKING)])

        async def ids(**wanted: object) -> list[str]:
            page, _ = await store.list_runs(**wanted)  # type: ignore[arg-type] - a table of cases
            return [run.view.id for run in page]

        assert await ids(statuses=["working"]) == ["run_2"]
        assert await ids(statuses=["queued", "working"]) == ["run_3", "run_2", "run_1", "run_0"]
        assert await ids(statuses=["completed"]) == []
        assert await ids(session_id="s") == ["run_1", "run_0"]
        assert await ids(binding="x", statuses=["queued"]) == ["run_0"]
        assert await ids(created_after=SAMPLE_MOMENT + timedelta(seconds=1)) == ["run_3", "run_2"]
        assert await ids(session_id="s", after="run_1") == ["run_0"]

    async def test_children_of_a_run(self, harness: StoreHarness) -> None:
        """R25: those that it started itself, in that order; another tenant's run of that id has its own."""
        store = harness.store
        epoch = harness.start_epoch()

        async def submit(run_id: str, parent: str | None, *, tenant: str = "local") -> None:
            await store.submit(sample_submission(run_id, epoch=epoch, tenant=tenant, parent_run_id=parent))

        async def children(run_id: str, *, tenant: str = "local") -> list[str]:
            return [run.view.id for run in await store.children_of(run_id, tenant=tenant)]

        await submit("run_1", None)
        await submit("run_b", "run_1")
        await submit("run_a", "run_1")
        await submit("run_below", "run_b")
        await submit("run_1", None, tenant="b")
        await submit("run_theirs", "run_1", tenant="b")
        assert await children("run_1") == ["run_b", "run_a"]
        assert await children("run_b") == ["run_below"]
        assert await children("run_1", tenant="b") == ["run_theirs"]
        assert await children("run_a") == await children("run_nobody") == []
        claimed = await store.claim(epoch, run_id="run_a")
        assert claimed is not None
        await store.append("run_a", claimed.generation, [stage_started("work-1", RunStatus.WORKING)])
        newest = (await store.children_of("run_1"))[-1]
        assert newest == await store.find_run("run_a")

    async def test_unfinished_runs_of_dead_hosts(self, harness: StoreHarness) -> None:
        """R57: every run without a terminal whose host is dead, oldest first, in whatever status."""
        dead, alive = harness.start_epoch(), harness.start_epoch()
        store = harness.store
        await admit(harness, "run_alive", epoch=alive)
        working = await admit(harness, "run_working", epoch=dead)
        await store.append("run_working", working.generation, [stage_started("work-1", RunStatus.WORKING)])
        ended = await admit(harness, "run_ended", epoch=dead)
        await store.finish("run_ended", ended.generation, [settling(), terminal(ended.view)])
        await store.submit(sample_submission("run_queued", epoch=dead, tenant="b"))
        assert await store.unfinished_of_dead_epochs() == ()
        harness.kill_epoch(dead)
        left = await store.unfinished_of_dead_epochs()
        assert [run.view.id for run in left] == ["run_working", "run_queued"]
        assert [run.tenant for run in left] == ["local", "b"]
        for run in left:
            taken = await store.claim(alive, run_id=run.view.id, tenant=run.tenant)
            assert taken is not None
        assert await store.unfinished_of_dead_epochs() == ()
