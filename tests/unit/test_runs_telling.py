"""What a caller adds while a run goes on: read before the next round, once, in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remit.errors import InvalidRequest, NotFound, PreconditionFailed, QuotaExceeded
from remit.models import ModelRequest, SystemMessage, ToolResultsMessage, UserMessage
from remit.runs import RunControl, tell_run
from remit.runs._telling import MAX_MESSAGE_CHARS, MAX_MESSAGES, MAX_WAITING, Messages
from remit.testing._fakes_stages import FakePool, PoolReply
from remit.testing._run_world import PASS, PLAN, WORK, WRITE, RunWorld, run_world

TABS = "Use tabs, please."


class _Driver:
    """Drives what a world drives."""

    def __init__(self, world: RunWorld) -> None:
        self._world = world

    def find_control(self, run_id: str, *, tenant: str = "local") -> RunControl | None:
        control = self._world.controls.get(run_id) if tenant == "local" else None
        return None if control is None or control.ended.is_set() else control


async def tell(world: RunWorld, run_id: str, text: str, **more: Any) -> None:
    await tell_run(run_id, text, store=world.store, driver=_Driver(world), **more)


def said(request: ModelRequest) -> list[str]:
    """What stands in a request beside system, replies and results."""
    return [message.text for message in request.messages if isinstance(message, UserMessage)]


async def test_a_message_is_read_before_the_next_round() -> None:
    """What comes in while the model works stands after the results of its calls, as the caller's, once."""
    gate = asyncio.Event()
    pool = FakePool(
        PoolReply(text=PLAN),
        PoolReply(calls=[WRITE], finish="tool_calls", gate=gate),
        PoolReply(text=WORK),
        PoolReply(text=PASS),
    )
    async with run_world(pool=pool) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driven = group.create_task(world.supervise(supervisor))
            while len(pool.requests) < 2:
                await asyncio.sleep(0)
            await tell(world, run_id, TABS)
            await tell(world, run_id, "And\x00 spaces.")
            gate.set()
        assert driven.result().status.value == "completed"
        plan, first, second, review = pool.requests
        assert not any(TABS in text for text in (*said(plan), *said(first)))
        assert isinstance(second.messages[-3], ToolResultsMessage)
        assert [TABS in said(second)[-2], "And\ufffd spaces." in said(second)[-1]] == [True, True]
        assert "of the caller" in said(second)[-1]
        assert said(review)[0].count(TABS) == 1, "the stages after it know it as a part of the request"
        assert len(said(review)) == 1
        transcript = await world.store.read_transcript(run_id, stage_id="work-1")
        assert [entry.position for entry in transcript] == list(range(len(transcript)))
        assert sum(TABS in str(entry.body) for entry in transcript) == 1


async def test_a_message_to_a_queued_run_is_read_in_its_first_round() -> None:
    """It waits as long as the run does."""
    pool = FakePool(
        PoolReply(text=PLAN),
        PoolReply(calls=[WRITE], finish="tool_calls"),
        PoolReply(text=WORK),
        PoolReply(text=PASS),
    )
    async with run_world(pool=pool) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        await tell(world, run_id, TABS)
        await world.supervise(supervisor)
        plan = pool.requests[0]
        assert isinstance(plan.messages[0], SystemMessage)
        assert TABS in said(plan)[-1]
        assert all(sum(text.count(TABS) for text in said(request)) == 1 for request in pool.requests)
        with pytest.raises(PreconditionFailed, match="it has ended"):
            await tell(world, run_id, TABS)


async def test_what_is_no_message() -> None:
    """Empty and endless texts, unknown ids, other tenants' and ending runs are refused at the call."""
    async with run_world() as world:
        await world.admit()
        run_id, control = next(iter(world.controls.items()))
        for text in ("", " \n", "x" * (MAX_MESSAGE_CHARS + 1)):
            with pytest.raises(InvalidRequest):
                await tell(world, run_id, text)
        with pytest.raises(NotFound):
            await tell(world, "run_nobody", TABS)
        with pytest.raises(NotFound):
            await tell(world, run_id, TABS, tenant="other")
        assert control.messages.waiting == 0
        world.cancel(run_id)
        with pytest.raises(PreconditionFailed, match="ending"):
            await tell(world, run_id, TABS)


async def test_a_committed_run_reads_nothing() -> None:
    """From its delivery intent on no round is to come."""
    async with run_world() as world:
        await world.admit()
        run_id, control = next(iter(world.controls.items()))
        assert control.commit()
        with pytest.raises(PreconditionFailed, match="ending"):
            await tell(world, run_id, TABS)


async def test_a_run_that_another_process_drives() -> None:
    """Its messages would wait here for nobody."""
    async with run_world() as world:
        await world.admit()
        run_id = next(iter(world.controls))
        world.controls.clear()
        with pytest.raises(PreconditionFailed, match="another host process"):
            await tell(world, run_id, TABS)


def test_messages_are_bounded() -> None:
    """So many wait at once, and so many in all."""
    messages = Messages()
    for number in range(MAX_MESSAGES):
        messages.add(str(number))
        if messages.waiting == MAX_WAITING:
            with pytest.raises(QuotaExceeded):
                messages.add("one more")
            assert len(messages.take()) == MAX_WAITING
    assert messages.take() == ()
    assert messages.heard == tuple(map(str, range(MAX_MESSAGES)))
    with pytest.raises(PreconditionFailed):
        messages.add("one more")
