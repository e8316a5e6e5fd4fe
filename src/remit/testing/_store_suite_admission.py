"""Rules of admission, idempotency, tenants and claims."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from remit.contract import RunReleased, RunStatus
from remit.errors import IdempotencyConflict, InternalError, InvalidRequest, StaleGeneration
from remit.testing._store_samples import (
    fact,
    sample_submission,
    settling,
    stage_started,
    terminal,
    work_registered,
)
from remit.testing._store_suite_harness import StoreHarness, admit


class AdmissionRules:
    """`submit` and `claim`."""

    async def test_submit_stores_the_row_and_the_first_event(self, harness: StoreHarness) -> None:
        """A run is admitted with its row and its `run.queued`."""
        submission = sample_submission("run_1", epoch=harness.start_epoch())
        submitted = await harness.store.submit(submission)
        assert submitted.created
        assert submitted.run.view == submission.run
        assert submitted.run.request == submission.request
        assert (submitted.run.generation, submitted.run.last_seq) == (0, 1)
        assert submitted.run == await harness.store.find_run("run_1")
        (event,) = await harness.store.read_events("run_1")
        assert (event.type, event.seq, event.run_id) == ("run.queued", 1, "run_1")
        assert event.data["fingerprint"] == submission.fingerprint

    async def test_a_run_can_be_taken_up_as_it_is_admitted(self, harness: StoreHarness) -> None:
        """A run that is submitted as claimed is its host's at once: written by it, given to nobody."""
        epoch, other = harness.start_epoch(), harness.start_epoch()
        submission = replace(sample_submission("run_1", epoch=epoch), claimed=True)
        submitted = await harness.store.submit(submission)
        assert (submitted.created, submitted.run.generation, submitted.run.last_seq) == (True, 1, 1)
        assert submitted.run.view.status == RunStatus.QUEUED
        assert submitted.run == await harness.store.find_run("run_1")
        assert await harness.store.claim(epoch) is None
        assert await harness.store.claim(other, run_id="run_1") is None
        await harness.store.append("run_1", 1, [work_registered("open")])
        again = await harness.store.submit(submission)
        assert (again.created, again.run.generation) == (False, 1)
        harness.kill_epoch(epoch)
        taken = await harness.store.claim(other, run_id="run_1")
        assert taken is not None
        assert taken.generation == 2
        with pytest.raises(StaleGeneration):
            await harness.store.append("run_1", 1, [work_registered("open")])

    async def test_submit_again_gives_the_same_run(self, harness: StoreHarness) -> None:
        """R63: the same id and request give the run that is there, queued, claimed or ended."""
        submission = sample_submission("run_1", epoch=harness.start_epoch())
        await harness.store.submit(submission)
        assert not (await harness.store.submit(submission)).created
        run = await harness.store.claim(submission.epoch, run_id="run_1")
        assert run is not None
        assert (await harness.store.submit(submission)).run == run
        await harness.store.finish("run_1", run.generation, [settling(), terminal(run.view)])
        again = await harness.store.submit(submission)
        assert not again.created
        assert again.run.view.status == RunStatus.COMPLETED
        assert len(await harness.store.read_events("run_1")) == 3

    async def test_a_key_stands_for_one_run(self, harness: StoreHarness) -> None:
        """R63: the same key and request give the first run, whatever id the second one was given."""
        epoch = harness.start_epoch()
        await harness.store.submit(sample_submission("run_1", epoch=epoch, idempotency_key="k"))
        again = await harness.store.submit(sample_submission("run_2", epoch=epoch, idempotency_key="k"))
        assert (again.created, again.run.view.id) == (False, "run_1")
        assert await harness.store.find_run("run_2") is None
        assert await harness.store.find_by_key("k") == again.run
        assert await harness.store.find_by_key("k", tenant="b") is None
        assert await harness.store.find_by_key("other") is None

    async def test_another_request_is_a_conflict(self, harness: StoreHarness) -> None:
        """R63: a used id or key with another request is refused, and nothing is stored."""
        epoch = harness.start_epoch()
        await harness.store.submit(sample_submission("run_1", epoch=epoch, idempotency_key="k"))
        with pytest.raises(IdempotencyConflict):
            await harness.store.submit(sample_submission("run_1", epoch=epoch, prompt="Other."))
        with pytest.raises(IdempotencyConflict):
            await harness.store.submit(
                sample_submission("run_2", epoch=epoch, prompt="Other.", idempotency_key="k")
            )
        assert await harness.store.find_run("run_2") is None
        assert len(await harness.store.read_events("run_1")) == 1

    async def test_an_id_and_a_key_of_two_runs_conflict(self, harness: StoreHarness) -> None:
        """A request can't be two runs at once."""
        epoch = harness.start_epoch()
        await harness.store.submit(sample_submission("run_1", epoch=epoch))
        await harness.store.submit(sample_submission("run_2", epoch=epoch, idempotency_key="k"))
        with pytest.raises(IdempotencyConflict):
            await harness.store.submit(sample_submission("run_1", epoch=epoch, idempotency_key="k"))

    async def test_a_key_that_came_later_is_bound_too(self, harness: StoreHarness) -> None:
        """R63: a key that was answered with a run stands for it from then on."""
        epoch = harness.start_epoch()
        await harness.store.submit(sample_submission("run_1", epoch=epoch))
        await harness.store.submit(sample_submission("run_1", epoch=epoch, idempotency_key="k"))
        with pytest.raises(IdempotencyConflict):
            await harness.store.submit(
                sample_submission("run_2", epoch=epoch, prompt="Other.", idempotency_key="k")
            )

    async def test_many_identical_submits_make_one_run(self, harness: StoreHarness) -> None:
        """R63: of 20 at once one is created, and all get its id."""
        epoch = harness.start_epoch()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    harness.store.submit(sample_submission(f"run_{place}", epoch=epoch, idempotency_key="k"))
                )
                for place in range(20)
            ]
        answers = [task.result() for task in tasks]
        assert [answer.created for answer in answers].count(True) == 1
        assert len({answer.run.view.id for answer in answers}) == 1
        runs, _ = await harness.store.list_runs()
        assert len(runs) == 1

    async def test_an_id_or_key_that_cant_be_kept_is_refused(self, harness: StoreHarness) -> None:
        """R44: ids and keys aren't changed on their way in, so what can't be kept can't be one."""
        epoch = harness.start_epoch()
        with pytest.raises(InvalidRequest):
            await harness.store.submit(sample_submission("run\x00", epoch=epoch))
        with pytest.raises(InvalidRequest):
            await harness.store.submit(sample_submission("run_1", epoch=epoch, idempotency_key="k\ud800"))
        assert await harness.store.find_run("run\x00") is None
        assert await harness.store.find_run("run\ud800") is None

    async def test_a_run_is_admitted_queued(self, harness: StoreHarness) -> None:
        """A run begins at the beginning."""
        submission = sample_submission("run_1", epoch=harness.start_epoch())
        begun = submission.run.model_copy(update={"status": RunStatus.WORKING})
        with pytest.raises(InternalError):
            await harness.store.submit(replace(submission, run=begun))
        assert await harness.store.find_run("run_1") is None

    async def test_tenants_dont_meet(self, harness: StoreHarness) -> None:
        """R63, R78: the same id and key of another tenant are another run, and neither sees the other's."""
        epoch, store = harness.start_epoch(), harness.store
        await store.submit(sample_submission("run_1", epoch=epoch, idempotency_key="k"))
        other = sample_submission("run_1", epoch=epoch, tenant="b", idempotency_key="k", prompt="Other.")
        assert (await store.submit(other)).created
        run = await store.claim(epoch, run_id="run_1", tenant="b")
        assert run is not None
        assert run.tenant == "b"
        await store.append("run_1", run.generation, [work_registered("b")], tenant="b")
        assert len(await store.read_events("run_1")) == 1
        assert len(await store.read_events("run_1", tenant="b")) == 2
        assert await store.find_run("run_1", tenant="c") is None
        (mine,), _ = await store.list_runs()
        assert mine.request.prompt != "Other."
        with pytest.raises(StaleGeneration):
            await store.append("run_1", run.generation, [work_registered("a")])

    async def test_claim_gives_the_oldest_queued_run(self, harness: StoreHarness) -> None:
        """Runs are taken up in the order of their admission, each once."""
        epoch, store = harness.start_epoch(), harness.store
        for run_id in ("run_b", "run_a", "run_c"):
            await store.submit(sample_submission(run_id, epoch=epoch))
        claimed = [await store.claim(epoch) for _ in range(4)]
        assert [run and run.view.id for run in claimed] == ["run_b", "run_a", "run_c", None]
        assert claimed[0] is not None
        assert claimed[0].generation == 1

    async def test_claims_at_once_give_each_run_once(self, harness: StoreHarness) -> None:
        """However many ask at once, no run is given twice."""
        epoch, store = harness.start_epoch(), harness.store
        for place in range(5):
            await store.submit(sample_submission(f"run_{place}", epoch=epoch))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(store.claim(epoch)) for _ in range(12)]
        given = [run.view.id for task in tasks if (run := task.result()) is not None]
        assert sorted(given) == [f"run_{place}" for place in range(5)]

    async def test_a_living_hosts_runs_are_its_own(self, harness: StoreHarness) -> None:
        """A run whose epoch is alive and another's is never given, named or not."""
        mine, other = harness.start_epoch(), harness.start_epoch()
        await harness.store.submit(sample_submission("run_1", epoch=other))
        assert await harness.store.claim(mine) is None
        assert await harness.store.claim(mine, run_id="run_1") is None
        harness.kill_epoch(other)
        run = await harness.store.claim(mine)
        assert run is not None
        assert (run.epoch, run.generation) == (mine, 1)

    async def test_a_dead_hosts_run_is_taken_over(self, harness: StoreHarness) -> None:
        """R57, R61: the generation rises with the owner, and the earlier one's writes are refused."""
        dead, mine = harness.start_epoch(), harness.start_epoch()
        first = await admit(harness, "run_1", epoch=dead)
        await harness.store.append("run_1", first.generation, [stage_started("plan", RunStatus.PLANNING)])
        harness.kill_epoch(dead)
        assert await harness.store.claim(mine) is None, "it isn't queued any more: it has to be named"
        second = await harness.store.claim(mine, run_id="run_1")
        assert second is not None
        assert (second.generation, second.epoch, second.last_seq) == (2, mine, 2)
        with pytest.raises(StaleGeneration):
            await harness.store.append("run_1", first.generation, [work_registered("late")])
        with pytest.raises(StaleGeneration):
            await harness.store.finish("run_1", first.generation, [settling(), terminal(first.view)])
        (event,) = await harness.store.append("run_1", second.generation, [work_registered("mine")])
        assert event.seq == 3

    async def test_a_claimed_queued_run_of_a_dead_host_is_given(self, harness: StoreHarness) -> None:
        """R57: a run whose host died while it was being prepared is queued still, and waits for nobody."""
        dead, mine = harness.start_epoch(), harness.start_epoch()
        await admit(harness, "run_1", epoch=dead)
        assert await harness.store.claim(mine) is None
        harness.kill_epoch(dead)
        run = await harness.store.claim(mine)
        assert run is not None
        assert run.generation == 2

    async def test_a_claim_sees_what_came_before(self, harness: StoreHarness) -> None:
        """A claim that is stored together with a fact from before it knows of that fact."""
        dead, mine = harness.start_epoch(), harness.start_epoch()
        runs = [await admit(harness, f"run_{place}", epoch=dead) for place in range(3)]
        harness.kill_epoch(dead)
        async with asyncio.TaskGroup() as group:
            for run in runs:
                begun = [stage_started("plan", RunStatus.PLANNING)]
                group.create_task(harness.store.append(run.view.id, run.generation, begun))
            claim = group.create_task(harness.store.claim(mine))
        assert claim.result() is None, "none of them is queued any more"

    async def test_what_cant_be_claimed(self, harness: StoreHarness) -> None:
        """An unknown run and an ended one are never given."""
        run = await admit(harness, "run_1")
        await harness.store.finish("run_1", run.generation, [settling(), terminal(run.view)])
        assert await harness.store.claim(run.epoch, run_id="run_1") is None
        assert await harness.store.claim(run.epoch, run_id="run_2") is None
        assert await harness.store.claim(run.epoch, run_id="run_1", tenant="b") is None

    async def test_a_released_run_has_no_owner(self, harness: StoreHarness) -> None:
        """After `run.released` the old generation writes nothing more, and the run can be claimed again."""
        run = await admit(harness, "run_1")
        await harness.store.append(
            "run_1", run.generation, [fact("run.released", RunReleased(reason="drain"))]
        )
        with pytest.raises(StaleGeneration):
            await harness.store.append("run_1", run.generation, [work_registered("late")])
        again = await harness.store.claim(run.epoch)
        assert again is not None
        assert again.generation == run.generation + 1

    async def test_two_hosts_on_the_same_data(self, harness: StoreHarness) -> None:
        """Several hosts share the data: each sees what the other stored, and fences the other off."""
        first, second = harness.start_epoch(), harness.start_epoch()
        other = await harness.another_host()
        run = await admit(harness, "run_1", epoch=first)
        await harness.store.append("run_1", run.generation, [work_registered("a")])
        assert await other.claim(second, run_id="run_1") is None
        harness.kill_epoch(first)
        taken = await other.claim(second, run_id="run_1")
        assert taken is not None
        assert (taken.generation, taken.last_seq) == (2, 2)
        await other.append("run_1", taken.generation, [stage_started("plan", RunStatus.PLANNING)])
        with pytest.raises(StaleGeneration):
            await harness.store.append("run_1", run.generation, [work_registered("late")])
        found = await harness.store.find_run("run_1")
        assert found is not None
        assert (found.view.status, found.last_seq) == (RunStatus.PLANNING, 3)
