"""What a stage stores, in how few steps, and that the record is whole however it ends."""

from __future__ import annotations

import asyncio
import json

import pytest

from remit.contract import AttemptEnded, StageCompleted, ToolCompleted, ToolResponse
from remit.errors import NodeError, ProviderError, StaleGeneration, StorageFull
from remit.events import NewEvent
from remit.models import UserMessage, message_from_json
from remit.stages import StageFailure, ToolUse
from remit.stages._log import StageLog
from remit.testing._fakes_stages import FakeJournal, FakePool, PoolReply, Step, tool_response
from remit.usage import Price
from stage_kit import ANSWERS, Bench, answer, calls, submit

PRICE = Price(
    input_micros=1_000_000,
    output_micros=2_000_000,
    cache_read_micros=0,
    cache_write_micros=0,
    version="config",
)


async def test_a_reviewed_run_costs_eight_durable_steps_in_its_stages() -> None:
    """Four attempts and one tool call: each boundary is one step."""
    steps: list[list[str]] = []
    for kind, replies in (
        ("plan", [answer("plan")]),
        ("work", [calls(("c1", "grep")), submit("work")]),
        ("review", [answer("review")]),
    ):
        async with Bench(kind, *replies) as bench:  # type: ignore[arg-type] - one of the kinds
            await bench.run()
            steps += [step.types for step in bench.journal.steps]
    began, ended = ["stage.started", "attempt.started"], ["attempt.completed", "stage.completed"]
    assert steps == [
        began,
        ended,
        began,
        ["attempt.completed", "tool.started"],
        ["tool.completed", "attempt.started"],
        ended,
        began,
        ended,
    ]


async def test_nothing_durable_stands_before_the_first_request_but_its_own_row() -> None:
    """S76: one append, then the provider."""
    async with Bench("plan", answer("plan")) as bench:
        seen: list[int] = []
        bench.pool = FakePool(lambda request: (seen.append(len(bench.journal.steps)), answer("plan"))[1])
        await bench.run()
        assert seen == [0]
        assert bench.journal.steps[0].types == ["stage.started", "attempt.started"]
        assert [entry.role for entry in bench.journal.steps[0].transcript] == ["system", "user"]


async def test_a_call_is_announced_before_it_is_made() -> None:
    """R58: intent is stored before it starts, together with the reply that asked for it."""
    async with Bench("work", answer("work")) as bench:
        seen: list[list[str]] = []
        bench.pool = FakePool(calls(("c1", "grep"), ("c2", "write_file", '{"path":"a.py"}')), answer("work"))

        def look(use: ToolUse) -> ToolResponse:
            seen.append(bench.journal.types)
            return tool_response(use)

        bench.tools.handlers |= {"grep": look, "write_file": look}
        await bench.run()
        assert seen[0] == [
            "stage.started",
            "attempt.started",
            "attempt.completed",
            "tool.started",
            "tool.started",
        ]
        step = bench.journal.steps[1]
        assert [entry.role for entry in step.transcript] == ["assistant"]
        assert bench.journal.of_type("tool.started")[1].label == "a.py"


async def test_events_name_their_work_and_its_parent() -> None:
    """Attempts and tool calls hang below the stage's own work item."""
    async with Bench("work", calls(("c1", "grep")), answer("work")) as bench:
        await bench.run()
        named = [(e.type, e.work_id, e.parent_work_id) for e in bench.journal.events if e.parent_work_id]
        assert named[0] == ("attempt.started", "run_1.work-1.att_1", "run_1.work-1")
        assert ("tool.started", "run_1.work-1.c1", "run_1.work-1") in named
        assert ("tool.completed", "run_1.work-1.c1", "run_1.work-1") in named


async def test_the_transcript_is_the_conversation() -> None:
    """R27: read back, the record holds what was sent and what came, pair by pair."""
    replies = (calls(("c1", "grep"), text="Looking."), PoolReply(text="x"), submit("work"))
    async with Bench("work", *replies) as bench:
        await bench.run()
        told = [message_from_json(entry.body) for entry in bench.journal.transcript("work-1")]
        sent = bench.requests[-1].messages
        assert tuple(told[: len(sent)]) == sent
        assert [entry.role for entry in bench.journal.transcript("work-1")] == [
            "system", "user", "assistant", "tool", "assistant", "user", "assistant", "tool",
        ]  # fmt: skip


async def test_attempts_carry_usage_cost_and_price() -> None:
    """R22, R24: one row an attempt, reserved before it is sent, settled with what it used."""
    reply = PoolReply(text=json.dumps(ANSWERS["plan"]), input_tokens=100, output_tokens=50)
    async with Bench("plan", pool=FakePool(reply, price=PRICE, max_output_tokens=1_000)) as bench:
        await bench.run()
        (began,) = bench.journal.of_type("attempt.started")
        (ended,) = bench.journal.of_type("attempt.completed")
        assert (began.reserved_tokens, began.reserved_micros) == (1_010, 2_010)
        assert (ended.usage.total_tokens, ended.cost_micros, ended.price_version) == (150, 200, "config")
        assert bench.budget.subtree.cost_micros == 200


async def test_an_attempt_that_fails_is_stored_at_once() -> None:
    """R22: what was refused is on record with its code before anything else happens."""
    async with Bench("plan", ProviderError("no", reason="auth")) as bench:
        with pytest.raises(ProviderError):
            await bench.run()
        assert [step.types for step in bench.journal.steps] == [
            ["stage.started", "attempt.started"],
            ["attempt.failed"],
        ]
        assert bench.journal.of_type("attempt.failed")[0].code == "auth"


async def test_finished_calls_are_shown_while_others_go_on() -> None:
    """A long batch is no blind spot: what is done is on record soon, not only when all is done."""
    done = asyncio.Event()

    async def run(use: ToolUse) -> ToolResponse:
        if use.tool_call_id == "c2":
            await done.wait()
        return tool_response(use)

    async with Bench(
        "work", calls(("c1", "run_shell"), ("c2", "run_shell")), answer("work"), tools={"run_shell": run}
    ) as bench:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(bench.run())
            async with asyncio.timeout(30):
                while "tool.completed" not in bench.journal.types:
                    await asyncio.sleep(0.01)
            assert not running.done()
            done.set()
        bench.check_record()


# ---- however it ends


@pytest.mark.parametrize("nth", range(5))
async def test_a_cancel_at_any_step_leaves_the_record_whole(nth: int) -> None:
    """R5, R27, S43: the cancel goes on, nothing more is sent, and everything that began has its end."""
    async with Bench("work", calls(("c1", "grep"), ("c2", "write_file")), answer("work")) as bench:
        asked = 0

        def cancel(step: Step) -> None:
            nonlocal asked
            if len(bench.journal.steps) == nth + 1:
                asked = len(bench.requests)
                running.cancel()

        bench.journal.on_append = cancel
        async with asyncio.TaskGroup() as group:
            running = group.create_task(bench.run())
            await asyncio.wait([running])
        if nth < 4:
            assert running.cancelled()
            assert len(bench.requests) == asked
        bench.check_record()


async def test_a_cancel_while_the_model_answers_closes_the_attempt() -> None:
    """R4, R6: the attempt ends as cancelled, its reservation is settled, its text so far is kept."""
    gate = asyncio.Event()
    async with Bench("plan", PoolReply(text="Half an ans", gate=gate)) as bench:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(bench.run())
            await bench.pool.begun.wait()
            await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled()
        ended = bench.journal.of_type("attempt.failed")
        assert [(end.status, end.usage.coverage) for end in ended] == [("cancelled", "interrupted")]
        assert bench.partial.text == "Half an ans"
        bench.check_record()


async def test_a_cancel_while_tools_run_stops_them_all() -> None:
    """R33, R1: every call in flight is stopped before the cancel goes on; finished results are kept."""
    first = asyncio.Event()

    async def run(use: ToolUse) -> ToolResponse:
        if use.tool_call_id == "c1":
            first.set()
            return tool_response(use, "FIRST")
        await asyncio.Event().wait()
        raise AssertionError

    async with Bench("work", calls(*[(f"c{n}", "grep") for n in range(1, 4)]), tools={"grep": run}) as bench:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(bench.run())
            await first.wait()
            await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled()
        assert sorted(bench.tools.stopped) == ["c2", "c3"]
        last = bench.journal.transcript("work-1")[-1].body["results"]
        assert [(r["content"] == "FIRST", r["status"]) for r in last] == [
            (True, "success"),
            (False, "cancelled"),
            (False, "cancelled"),
        ]
        bench.check_record()


async def test_a_stopped_call_tells_how_long_it_ran() -> None:
    """R33, a true story: a call that was cancelled ran for some time; one that never began for none."""

    async def run(use: ToolUse) -> ToolResponse:
        await asyncio.Event().wait()
        raise AssertionError

    asked = calls(("c1", "run_shell"), ("c2", "run_shell"))
    async with Bench("work", asked, tools={"run_shell": run}) as bench:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(bench.run())
            while not bench.tools.running:
                await asyncio.sleep(0)
            await asyncio.sleep(0.02)
            running.cancel()
            await asyncio.wait([running])
        ended = [
            one.payload
            for step in bench.journal.steps
            for one in step.events
            if isinstance(one.payload, ToolCompleted)
        ]
        took = {one.tool_call_id: one.duration_ms for one in ended}
        assert took["c1"] is not None
        assert took["c1"] >= 20
        assert took["c2"] is None


async def test_a_second_cancel_does_not_cut_the_stopping() -> None:
    """R3, R10: whoever cancels twice still gets every call stopped and recorded."""
    stopping = asyncio.Event()

    async def run(use: ToolUse) -> ToolResponse:
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await asyncio.sleep(0.02)
        raise AssertionError

    async with Bench("work", calls(("c1", "run_shell")), tools={"run_shell": run}) as bench:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(bench.run())
            while not bench.tools.running:
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            running.cancel()
            await stopping.wait()
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled()
        assert bench.tools.running == 0
        bench.check_record()


async def test_a_deadline_ends_as_a_timeout_for_whoever_set_it() -> None:
    """S43: the caller's own `timeout` around a stage gets its TimeoutError, whatever the stage was doing."""
    for reply in (PoolReply(gate=asyncio.Event()), calls(("c1", "grep"))):

        async def hang(use: ToolUse) -> ToolResponse:
            await asyncio.Event().wait()
            return tool_response(use)

        async with Bench("work", reply, tools={"grep": hang}) as bench:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await bench.run()
            bench.check_record()


async def test_a_failed_child_leaves_no_cancel_count_behind() -> None:
    """A count that is left would swallow the TimeoutError of an enclosing `timeout` later on."""
    async with Bench("plan", ProviderError("no", reason="auth")) as bench:
        with pytest.raises(ProviderError):
            await bench.run()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_journal_that_refuses_ends_the_stage() -> None:
    """R61: who has lost the run sends nothing; what was reserved is given back."""
    for error in (StaleGeneration("gone"), StorageFull("full")):
        async with Bench("plan", answer("plan")) as bench:
            bench.journal.fail = [error, error, error]
            with pytest.raises(type(error)):
                await bench.run()
            assert bench.budget.subtree.total_tokens == 0
            bench.check_record()


async def test_what_could_not_be_stored_is_stored_when_the_stage_ends() -> None:
    """R60: after one failed append the record is still in order, begin before end."""
    async with Bench("plan", answer("plan")) as bench:
        bench.journal.fail = [StorageFull("full")]
        with pytest.raises(StorageFull):
            await bench.run()
        assert bench.journal.types == ["stage.started", "attempt.started", "attempt.failed"]
        (end,) = bench.journal.of_type("attempt.failed")
        assert isinstance(end, AttemptEnded)
        assert (end.status, end.usage and end.usage.total_tokens) == ("cancelled", 0)
        bench.check_record()


@pytest.mark.parametrize("failure", [NodeError("x", reason="lost"), StorageFull("full"), RuntimeError("bug")])
async def test_any_error_of_the_hands_leaves_the_record_whole(failure: Exception) -> None:
    """R11, R27: also when the cause is a fault of our own."""

    async def run(use: ToolUse) -> ToolResponse:
        await asyncio.sleep(0)
        raise failure

    async with Bench("work", calls(("c1", "grep"), ("c2", "run_shell")), tools={"grep": run}) as bench:
        with pytest.raises(type(failure)):
            await bench.run()
        bench.check_record()


async def test_a_stage_that_fails_keeps_its_partial_and_commands() -> None:
    """R13: what there was stays readable for whoever tells of the failure."""
    tools = {"run_shell": lambda use: tool_response(use, "out", command="make", exit_code=2)}
    replies = (calls(("c1", "run_shell"), text="I run make."), PoolReply(text=" "), PoolReply(text=" "))
    async with Bench("work", *replies, tools=tools) as bench:
        with pytest.raises((StageFailure, ProviderError)):
            await bench.run()
        assert bench.partial.text == "I run make."
        assert [(c.command, c.exit_code) for c in bench.partial.commands] == [("make", 2)]


async def test_what_is_handed_over_is_the_run_s() -> None:
    """R57: at a stage's end all that waits goes on record with what the run does next, once."""
    journal = FakeJournal()
    log = StageLog(journal, stage_id="work-1")
    log.say(UserMessage(text="x"))
    completed = StageCompleted(stage_id="work-1", answer={})
    log.hand_over(NewEvent(type="stage.completed", payload=completed, work_id="work-1"))
    assert not log.waiting
    await log.flush()
    (step,) = journal.steps
    assert ([event.type for event in step.events], len(step.transcript)) == (["stage.completed"], 1)
