"""Rules of the log: order, atomicity, what stands in it once, and what follows from it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remit.contract import RunQueued, RunStatus, RunView, WorkRegistered
from remit.errors import AlreadyDecided, InternalError, MisuseError, RemitError, StaleGeneration
from remit.events import TERMINAL_TYPES, Artifact, NewEvent
from remit.runs import RunStore, fold_event
from remit.testing._store_samples import (
    attempt_completed,
    attempt_started,
    delivery_intent,
    fact,
    message,
    reviewed_run,
    sample_submission,
    settling,
    stage_started,
    terminal,
    work_finished,
    work_registered,
)
from remit.testing._store_suite_harness import StoreHarness, admit, store_write


async def fold_stored_log(store: RunStore, run_id: str) -> RunView | None:
    """The row that the stored log stands for."""
    view: RunView | None = None
    for event in await store.read_events(run_id):
        view = fold_event(view, event)
    return view


class LogRules:
    """`append` and `finish`."""

    async def test_events_are_numbered_without_gaps(self, harness: StoreHarness) -> None:
        """R66: numbers rise by 1 from 1, and what is returned is what is read."""
        run = await admit(harness, "run_1")
        one = await harness.store.append("run_1", run.generation, [work_registered("a"), work_finished("a")])
        two = await harness.store.append("run_1", run.generation, [work_registered("b")])
        assert [event.seq for event in (*one, *two)] == [2, 3, 4]
        assert await harness.store.read_events("run_1", after=1) == (*one, *two)
        assert one[0].work_id == "a"
        assert one[0].data == {"kind": "node_call", "label": "a"}
        assert one[0].at.utcoffset() is not None

    async def test_appends_at_once_keep_their_order(self, harness: StoreHarness) -> None:
        """Appends of one run are numbered in the order in which they were asked for, each in one piece."""
        run = await admit(harness, "run_1")
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    harness.store.append(
                        "run_1",
                        run.generation,
                        [work_registered(str(place)), work_finished(str(place))],
                    )
                )
                for place in range(40)
            ]
        assert [task.result()[0].seq for task in tasks] == list(range(2, 82, 2))
        events = await harness.store.read_events("run_1", after=1)
        assert [event.work_id for event in events] == [str(place) for place in range(40) for _ in range(2)]

    async def test_nothing_to_append(self, harness: StoreHarness) -> None:
        """An append of no events stores what comes beside them, under the same fence."""
        run = await admit(harness, "run_1")
        assert await harness.store.append("run_1", run.generation, []) == ()
        text = Artifact(name="plan", text="x")
        assert await harness.store.append("run_1", run.generation, [], artifacts=[text]) == ()
        assert await harness.store.read_artifact("run_1", "plan") == text
        with pytest.raises(StaleGeneration):
            await harness.store.append("run_1", run.generation + 1, [])

    async def test_only_the_owner_writes(self, harness: StoreHarness) -> None:
        """R61: nobody writes to a run that isn't claimed, nor with a generation other than the newest."""
        epoch = harness.start_epoch()
        await harness.store.submit(sample_submission("run_1", epoch=epoch))
        for generation in (0, 1):
            with pytest.raises(StaleGeneration):
                await harness.store.append("run_1", generation, [work_registered("a")])
        run = await harness.store.claim(epoch, run_id="run_1")
        assert run is not None
        for generation in (0, 2, -1):
            with pytest.raises(StaleGeneration):
                await harness.store.append("run_1", generation, [work_registered("a")])
        with pytest.raises(StaleGeneration):
            await harness.store.append("run_unknown", 1, [work_registered("a")])
        assert len(await harness.store.read_events("run_1")) == 1

    async def test_one_stale_append_fails_alone(self, harness: StoreHarness) -> None:
        """Of appends that are stored together only the stale one is refused."""
        epoch = harness.start_epoch()
        runs = [await admit(harness, f"run_{place}", epoch=epoch) for place in range(6)]
        answers: list[object] = []

        async def append(place: int) -> None:
            generation = runs[place].generation + (place == 3)
            try:
                await harness.store.append(f"run_{place}", generation, [work_registered("a")])
                answers.append(place)
            except StaleGeneration:
                answers.append("stale")

        async with asyncio.TaskGroup() as group:
            for place in range(6):
                group.create_task(append(place))
        assert sorted(map(str, answers)) == ["0", "1", "2", "4", "5", "stale"]
        for place in range(6):
            assert len(await harness.store.read_events(f"run_{place}")) == (1 if place == 3 else 2)

    @pytest.mark.parametrize(
        "bad",
        [
            NewEvent(type="tool.started", payload=WorkRegistered(kind="tool", label="x")),
            NewEvent(type="message.delta", payload=WorkRegistered(kind="tool", label="x")),
            attempt_completed("never_started"),
            attempt_started("twice"),
        ],
        ids=["another_shape", "not_stored", "end_without_start", "start_twice"],
    )
    async def test_facts_that_break_a_rule_are_refused_whole(
        self, harness: StoreHarness, bad: NewEvent
    ) -> None:
        """An append is all or nothing, and one that breaks a rule of the log fails alone."""
        epoch = harness.start_epoch()
        run = await admit(harness, "run_1", epoch=epoch)
        peer = await admit(harness, "run_2", epoch=epoch)
        await harness.store.append("run_1", run.generation, [attempt_started("twice")])
        events = [work_registered("a"), bad, stage_started("plan", RunStatus.PLANNING)]
        async with asyncio.TaskGroup() as group:
            group.create_task(harness.store.append("run_2", peer.generation, [work_registered("b")]))
            refused = group.create_task(self._refusal(harness, run.generation, events))
            group.create_task(harness.store.append("run_2", peer.generation, [work_finished("b")]))
        assert isinstance(refused.result(), InternalError)
        assert len(await harness.store.read_events("run_1")) == 2
        assert len(await harness.store.read_events("run_2")) == 3
        found = await harness.store.find_run("run_1")
        assert found is not None
        assert found.view.status == RunStatus.QUEUED
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(harness.store.wait_for_events("run_1", after=2))
            await asyncio.wait([waiter], timeout=0.05)
            assert not waiter.done(), "nothing of it was stored, so nobody is woken"
            (event,) = await harness.store.append("run_1", run.generation, [work_registered("c")])
        assert event.seq == 3

    async def _refusal(
        self, harness: StoreHarness, generation: int, events: list[NewEvent], **more: Any
    ) -> RemitError | None:
        try:
            await harness.store.append("run_1", generation, events, **more)
        except RemitError as error:
            return error
        return None

    async def test_numbers_that_arent_finite_are_refused(self, harness: StoreHarness) -> None:
        """R84: NaN and Infinity never get into the log."""
        epoch = harness.start_epoch()
        with pytest.raises(InternalError):
            await harness.store.submit(
                sample_submission("run_1", epoch=epoch, metadata={"score": float("nan")})
            )
        assert await harness.store.find_run("run_1") is None

    async def test_finish_once(self, harness: StoreHarness) -> None:
        """Promise 1, R5: one terminal, the last of the log; whatever comes later changes nothing."""
        run = await admit(harness, "run_1")
        await harness.store.append("run_1", run.generation, [settling()])
        stored = await harness.store.finish("run_1", run.generation, [work_finished("a"), terminal(run.view)])
        assert [event.type for event in stored] == ["work.finished", "run.completed"]
        for events in ([terminal(run.view)], [terminal(run.view, "cancelled")]):
            with pytest.raises(AlreadyDecided):
                await harness.store.finish("run_1", run.generation, events)
        with pytest.raises(AlreadyDecided):
            await harness.store.append("run_1", run.generation, [work_registered("late")])
        events = await harness.store.read_events("run_1")
        assert events[-1].type == "run.completed"
        assert sum(event.type in TERMINAL_TYPES for event in events) == 1
        found = await harness.store.find_run("run_1")
        assert found is not None
        assert found.view.status == RunStatus.COMPLETED
        assert found.view.to_json() == events[-1].data

    async def test_of_two_terminals_at_once_one_is_stored(self, harness: StoreHarness) -> None:
        """R5: cancel and finish cross; the first wins, the other is told."""
        run = await admit(harness, "run_1")
        await harness.store.append("run_1", run.generation, [settling()])
        answers: list[str] = []

        async def finish(event: NewEvent) -> None:
            try:
                await harness.store.finish("run_1", run.generation, [event])
                answers.append("stored")
            except AlreadyDecided:
                answers.append("told")

        async with asyncio.TaskGroup() as group:
            for event in (terminal(run.view), terminal(run.view, "cancelled"), terminal(run.view, "failed")):
                group.create_task(finish(event))
        assert sorted(answers) == ["stored", "told", "told"]

    @pytest.mark.parametrize("once", [settling(), delivery_intent()], ids=["decision", "delivery_intent"])
    async def test_decisions_are_stored_once(self, harness: StoreHarness, once: NewEvent) -> None:
        """The first decision wins, and a delivery is intended once: also within one append, and at once."""
        run = await admit(harness, "run_1")
        with pytest.raises(AlreadyDecided):
            await harness.store.append("run_1", run.generation, [once, once])
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._refusal(harness, run.generation, [work_registered("a"), once]))
                for _ in range(3)
            ]
        assert sorted(type(task.result()).__name__ for task in tasks) == [
            "AlreadyDecided",
            "AlreadyDecided",
            "NoneType",
        ]
        types = [event.type for event in await harness.store.read_events("run_1")]
        assert types == ["run.queued", "work.registered", once.type]

    async def test_a_decision_outlives_its_owner(self, harness: StoreHarness) -> None:
        """A recorded decision is finished by whoever takes the run over, not retaken."""
        dead, mine = harness.start_epoch(), harness.start_epoch()
        run = await admit(harness, "run_1", epoch=dead)
        await harness.store.append("run_1", run.generation, [delivery_intent(), settling()])
        harness.kill_epoch(dead)
        taken = await harness.store.claim(mine, run_id="run_1")
        assert taken is not None
        for once in (settling("cancelled"), delivery_intent()):
            with pytest.raises(AlreadyDecided):
                await harness.store.append("run_1", taken.generation, [once])

    async def test_each_call_takes_its_own_facts(self, harness: StoreHarness) -> None:
        """Terminals come by `finish`, admission by `submit`, and a finish has its terminal last."""
        run = await admit(harness, "run_1")
        queued = RunQueued(run=run.view, request=run.request, fingerprint="f")
        with pytest.raises(MisuseError):
            await harness.store.append("run_1", run.generation, [terminal(run.view)])
        with pytest.raises(MisuseError):
            await harness.store.append("run_1", run.generation, [fact("run.queued", queued)])
        end = terminal(run.view)
        refused: list[list[NewEvent]] = [[], [work_finished("a")], [end, work_finished("a")], [end, end]]
        for events in refused:
            with pytest.raises(MisuseError):
                await harness.store.finish("run_1", run.generation, events)
        assert len(await harness.store.read_events("run_1")) == 1

    async def test_a_terminal_is_the_runs_own(self, harness: StoreHarness) -> None:
        """A terminal that says it was another run, or that it ended otherwise, is refused."""
        run = await admit(harness, "run_1")
        other = run.view.model_copy(update={"id": "run_2"})
        lying = NewEvent(type="run.failed", payload=terminal(run.view).payload)
        for event in (terminal(other), lying):
            with pytest.raises(InternalError):
                await harness.store.finish("run_1", run.generation, [event])

    async def test_the_row_is_the_fold_of_the_log(self, harness: StoreHarness) -> None:
        """The log is the truth: after every write the row is what the log says."""
        run = await admit(harness, "run_1")
        writes = list(reviewed_run(run.view))
        for place, write in enumerate(writes, start=1):
            await store_write(harness.store, run, write, last=place == len(writes))
            found = await harness.store.find_run("run_1")
            assert found is not None
            assert found.view == await fold_stored_log(harness.store, "run_1")

    async def test_the_row_holds_what_json_holds(self, harness: StoreHarness) -> None:
        """Objects of any shape are stored as JSON, and the row that is returned is the one that is read."""
        metadata: dict[str, Any] = {"numbers": {1: (2, 3)}, "\ud800": None}
        submission = sample_submission("run_1", epoch=harness.start_epoch(), metadata=metadata)
        submitted = await harness.store.submit(submission)
        assert submitted.run.view.metadata["numbers"] == {"1": [2, 3]}
        assert submitted.run == await harness.store.find_run("run_1")
        assert submitted.run.view == await fold_stored_log(harness.store, "run_1")

    async def test_many_runs_at_once(self, harness: StoreHarness) -> None:
        """Logs of runs that are written at the same time are whole, and don't mix."""
        epoch = harness.start_epoch()

        async def drive(run_id: str) -> None:
            run = await admit(harness, run_id, epoch=epoch)
            writes = list(reviewed_run(run.view))
            for write in writes[:-1]:
                await store_write(harness.store, run, write)
            await store_write(harness.store, run, writes[-1], last=True)

        async with asyncio.TaskGroup() as group:
            for place in range(30):
                group.create_task(drive(f"run_{place}"))
        lone = [event.type for event in await harness.store.read_events("run_0")]
        for place in range(30):
            events = await harness.store.read_events(f"run_{place}")
            assert [event.type for event in events] == lone
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert {event.run_id for event in events} == {f"run_{place}"}
        runs, cursor = await harness.store.list_runs(statuses=["completed"], limit=100)
        assert len(runs) == 30
        assert cursor is None

    async def test_text_that_cant_be_kept_is_replaced(self, harness: StoreHarness) -> None:
        """R44: NUL and lone surrogates become U+FFFD wherever text goes in, and the run says so."""
        epoch, store = harness.start_epoch(), harness.store
        bad, good = "a\x00b\ud800c", "a\ufffdb\ufffdc"
        submission = sample_submission(
            "run_1", epoch=epoch, prompt=bad, metadata={"note": [bad], "\ud800": 1}, text_replaced=1
        )
        submitted = await store.submit(submission)
        assert submitted.run.request.prompt == good
        assert submitted.run.view.metadata["note"] == [good]
        assert all(key.isprintable() for key in submitted.run.view.metadata)
        (queued,) = await store.read_events("run_1")
        in_request = 2 * 2  # two characters each in the prompt and in the note
        assert queued.data["text_replaced"] == 1 + in_request
        run = await store.claim(epoch, run_id="run_1")
        assert run is not None
        (returned,) = await store.append(
            "run_1",
            run.generation,
            [work_registered(bad)],
            transcript=[message("plan", 0, bad)],
            artifacts=[Artifact(name="plan", text=bad)],
        )
        assert (returned.data["label"], returned.work_id) == (good, good)
        assert await store.read_events("run_1", after=1) == (returned,)
        (entry,) = await store.read_transcript("run_1")
        assert entry.body == {"text": good}
        assert await store.read_artifact("run_1", "plan") == Artifact(name="plan", text=good)
        ended = run.view.model_copy(update={"output": bad})
        await store.finish("run_1", run.generation, [settling(), terminal(ended)])
        await store.log("run_1", "note", {"text": bad})
        (line,) = await store.read_history("run_1")
        assert line.data == {"text": good}
        found = await store.find_run("run_1")
        assert found is not None
        assert found.view.output == good
        assert found.view == await fold_stored_log(store, "run_1")

    async def test_all_other_text_is_kept(self, harness: StoreHarness) -> None:
        r"""R70: separators, controls, quotes, a written-out \u0000 and every plane come back as they were."""
        run = await admit(harness, "run_1")
        text = 'x\u0085y\u2028z\u2029w\u000bv\u0001\ufeff\\u0000 \\ " \U0001f600 \ufffd\r\n\t'
        (event,) = await harness.store.append(
            "run_1",
            run.generation,
            [work_registered(text)],
            transcript=[message("plan", 0, text)],
            artifacts=[Artifact(name="a", text=text)],
        )
        assert (await harness.store.read_events("run_1", after=1)) == (event,)
        assert event.data["label"] == text
        assert (await harness.store.read_transcript("run_1"))[0].body == {"text": text}
        artifact = await harness.store.read_artifact("run_1", "a")
        assert artifact is not None
        assert artifact.text == text
