"""Stages over the real pool and the scripted model: the two sides of the ledger fit each other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.errors import LimitReached, ProviderError
from remit.models import Pool, PoolMember, PoolSettings, ProviderSettings, build_pool
from remit.primitives import SystemClock
from remit.testing import tool_response
from stage_kit import ANSWERS, Bench, CountingIds

TOOL_CALL = {"stage": "work", "tool_calls": [{"id": "c1", "name": "grep", "arguments": {"pattern": "x"}}]}


@pytest.fixture
def scripted(tmp_path: Path) -> Callable[..., Pool]:
    """Makes a pool that plays these replies."""

    def make(*replies: dict[str, Any]) -> Pool:
        script = tmp_path / "script.json"
        script.write_text(json.dumps(list(replies)))
        settings = PoolSettings(name="default", members=(PoolMember(model="play:model"),))
        providers = {"play": ProviderSettings(name="play", kind="scripted", script=script)}
        return build_pool(settings, providers, clock=SystemClock(), ids=CountingIds())

    return make


async def test_a_reviewed_run_of_stages(scripted: Callable[..., Pool]) -> None:
    """S18, S19: plan, work with one tool call, review: four attempts, eight durable steps, all priced."""
    replies = [
        {"stage": "plan", "json": ANSWERS["plan"]},
        TOOL_CALL,
        {"stage": "work", "tool_calls": [{"name": "submit_work", "arguments": ANSWERS["work"]}]},
        {"stage": "review", "json": ANSWERS["review"], "when": {"contains": "Did it."}},
    ]
    pool, steps, attempts = scripted(*replies), 0, []
    for kind in ("plan", "work", "review"):
        completion = ANSWERS["work"]["completion"] if kind == "review" else None
        async with Bench(kind, pool=pool, completion=completion, options={}) as bench:
            assert (await bench.run()).fields == ANSWERS[kind]
            bench.check_record()
            steps += len(bench.journal.steps)
            attempts += bench.journal.of_type("attempt.completed")
    assert steps == 8
    assert len(attempts) == 4
    assert all(end.cost_micros == 0 and end.usage.coverage == "reported" for end in attempts)


async def test_retries_are_the_pool_s_and_each_attempt_has_its_row(scripted: Callable[..., Pool]) -> None:
    """R22: a refused attempt and a good one, one row each, the second with the next number."""
    refused = {"stage": "plan", "error": {"status": 429, "retry_after": 0.01, "body": "slow down"}}
    async with Bench(
        "plan", pool=scripted(refused, {"stage": "plan", "json": ANSWERS["plan"]}), options={}
    ) as bench:
        await bench.run()
        assert [step.types for step in bench.journal.steps] == [
            ["stage.started", "attempt.started"],
            ["attempt.failed"],
            ["attempt.started"],
            ["attempt.completed", "stage.completed"],
        ]
        assert [began.ordinal for began in bench.journal.of_type("attempt.started")] == [1, 2]
        (failed,) = bench.journal.of_type("attempt.failed")
        assert (failed.status, failed.code, failed.usage.coverage) == ("refused", "rate_limited", "refused")
        bench.check_record()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, {"error": {"message": "bad key"}}, "auth"),
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}, "context_length"),
    ],
)
async def test_errors_that_can_not_get_better_end_the_stage(
    scripted: Callable[..., Pool], status: int, body: dict[str, Any], reason: str
) -> None:
    """R56: one try; the stage ends with the provider's code, after a tool round as before one."""
    pool = scripted(TOOL_CALL, {"stage": "work", "error": {"status": status, "body": body}})
    async with Bench("work", pool=pool, options={}) as bench:
        with pytest.raises(ProviderError) as failed:
            await bench.run()
        assert failed.value.reason == reason
        assert len(bench.journal.of_type("attempt.started")) == 2
        bench.check_record()


async def test_a_cancel_closes_the_attempt_with_its_record(scripted: Callable[..., Pool]) -> None:
    """R4, R6: while the model is silent; the attempt's end is stored before the cancel goes on."""
    pool = scripted({"stage": "plan", "json": ANSWERS["plan"], "delay_ms": 60_000})
    async with Bench("plan", pool=pool, options={}) as bench:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(bench.run())
            while not bench.journal.steps:
                await asyncio.sleep(0)
            await asyncio.sleep(0.02)
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled()
        (failed,) = bench.journal.of_type("attempt.failed")
        assert (failed.status, failed.usage.coverage) == ("cancelled", "interrupted")
        bench.check_record()


async def test_a_cancelled_retry_pause_ends_at_once(scripted: Callable[..., Pool]) -> None:
    """R6: the wait for a rate limit hears the cancel."""
    pool = scripted({"stage": "plan", "error": {"status": 429, "retry_after": 30}})
    async with Bench("plan", pool=pool, options={}) as bench:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await bench.run()
        bench.check_record()


async def test_an_attempt_stopped_by_hand_is_sent_again(scripted: Callable[..., Pool]) -> None:
    """R3: over the real pool too, one attempt is cancelled and the stage goes on."""
    slow = {"stage": "plan", "json": ANSWERS["plan"], "delay_ms": 60_000}
    async with Bench(
        "plan", pool=scripted(slow, {"stage": "plan", "json": ANSWERS["plan"]}), options={}
    ) as bench:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(bench.run())
            while not (begun := bench.journal.of_type("attempt.started")):
                await asyncio.sleep(0)
            await asyncio.sleep(0.02)
            assert bench.registry.cancel("run_1", f"run_1.plan.{begun[0].attempt_id}")
        assert running.result().fields == ANSWERS["plan"]
        assert [end.status for end in bench.journal.of_type("attempt.failed")] == ["cancelled"]
        bench.check_record()


async def test_a_stage_that_is_flagged_sends_nothing(scripted: Callable[..., Pool]) -> None:
    """R3, R7: no row, no request, though the pool was asked."""
    async with Bench("plan", pool=scripted({"stage": "plan", "json": ANSWERS["plan"]}), options={}) as bench:
        bench.registry.cancel("run_1", "run_1.plan")
        with pytest.raises(asyncio.CancelledError):
            await bench.run()
        assert bench.journal.types == ["stage.started"]
        bench.check_record()


async def test_the_output_bound_is_lowered_to_what_fits(scripted: Callable[..., Pool]) -> None:
    """R24: a model's own bound larger than the run's limit is lowered, not refused; then it is refused."""
    usage = {"input_tokens": 1_000, "output_tokens": 3_900}
    pool = scripted({**TOOL_CALL, "usage": usage}, {"stage": "work", "json": ANSWERS["work"]})
    async with Bench("work", pool=pool, options={}, limits={"max_output_tokens": 4_000}) as bench:
        with pytest.raises(LimitReached) as reached:
            await bench.run()
        assert reached.value.fields["kind"] == "max_output_tokens"
        assert len(bench.journal.of_type("attempt.completed")) == 1
        assert [w.kind for w in bench.journal.of_type("limit.warning")] == ["max_output_tokens"]
        bench.check_record()


async def test_the_script_s_tools_reach_the_hands(scripted: Callable[..., Pool]) -> None:
    """S44: ids and arguments go through unchanged."""
    pool = scripted(TOOL_CALL, {"stage": "work", "json": ANSWERS["work"], "when": {"contains": "FOUND IT"}})
    async with Bench(
        "work", pool=pool, options={}, tools={"grep": lambda use: tool_response(use, "FOUND IT")}
    ) as bench:
        await bench.run()
        assert [(use.tool_call_id, use.arguments) for use in bench.tools.uses] == [("c1", '{"pattern":"x"}')]
