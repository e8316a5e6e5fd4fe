"""Sessions: what a later run is told of the earlier ones, and whose turn it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from remit.contract import RunStatus, Terminal
from remit.errors import ProviderError, SessionBusy
from remit.events import TranscriptEntry
from remit.runs import MAX_CONTEXT_CHARS, StoreSessions, describe_run
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import FakePool, PoolReply
from remit.testing._run_world import BLOCK, PLAN, RunWorld, good_replies, run_world


def last_pool(world: RunWorld) -> FakePool:
    assert isinstance(world.pool, FakePool)
    return world.pool


async def test_a_later_run_sees_the_earlier_ones() -> None:
    """Requests, outputs, ends and finished tool results go into the session's next run, and no other."""
    async with run_world(*good_replies()) as world:
        await world.drive(session_id="talk", prompt="First thing: sparrows.")
        world.pool = FakePool(ZeroDivisionError())
        failed = await world.drive(session_id="talk", prompt="Second thing: wrens.")
        assert failed.status is RunStatus.FAILED
        world.node.tree["a.txt"] = "old\n"
        world.pool = FakePool(*good_replies())
        await world.drive(session_id="talk", prompt="Third thing.")
        told = str(last_pool(world).requests[0].messages)
        assert "sparrows" in told
        assert "a.txt is right now." in told
        assert "wrens" in told
        assert "written" in told, "a finished tool result"
        world.node.tree["a.txt"] = "old\n"
        world.pool = FakePool(*good_replies())
        await world.drive(session_id="other", prompt="Elsewhere.")
        assert "sparrows" not in str(last_pool(world).requests[0].messages)


async def test_a_result_that_did_not_land_is_told_as_such() -> None:
    """A run that has an output and failed all the same is told with both: what it found, and how it ended."""
    async with run_world(*good_replies()) as world:
        await world.drive(session_id="talk")
        stored = (await world.store.list_runs(session_id="talk", limit=1))[0][0]
    conflict = Terminal.of("workspace", "delivery_conflict")
    lost = stored.view.model_copy(update={"status": RunStatus.FAILED, "terminal": conflict})
    told = describe_run(replace(stored, view=lost), ())
    assert "a.txt is right now." in told
    assert conflict.message is not None
    assert conflict.message in told
    assert str(conflict.message) not in describe_run(stored, ())


async def test_a_stopped_run_does_not_spoil_its_session() -> None:
    """R8, R27: after a cancel in the middle of a tool the session takes the next request, whole."""
    async with run_world(PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls")) as world:
        supervisor = await world.admit(session_id="talk", prompt="Stop me: robins.")
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await world.node.blocked.wait()
            world.cancel(run_id)
            await driving
        world.pool = FakePool(*good_replies())
        view = await world.drive(session_id="talk")
        assert view.status is RunStatus.COMPLETED
        assert "robins" in str(last_pool(world).requests[0].messages)


async def test_a_run_stopped_while_it_waits_for_a_person_does_not_spoil_its_session() -> None:
    """R8: the stop itself writes the end; nobody answers any more, and the session takes the next request."""
    async with run_world(*good_replies()) as world:
        supervisor = await world.admit(session_id="talk", prompt="Ask me: robins.", acknowledge="required")
        run_id, control = next(iter(world.controls.items()))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            while control.acknowledged is None:
                await asyncio.sleep(0)
            world.cancel(run_id)
            view = await driving
        assert (view.status, view.output) == (RunStatus.CANCELLED, None)
        assert world.node.tree == {"a.txt": "old\n"}
        assert not control.acknowledge(True)
        world.pool = FakePool(*good_replies())
        assert (await world.drive(session_id="talk")).status is RunStatus.COMPLETED
        assert "robins" in str(last_pool(world).requests[0].messages)


async def test_a_failed_run_does_not_wedge_its_session() -> None:
    """R14: it ends with a reason and no output, and the session takes the next request and knows of it."""
    async with run_world(ProviderError("down", reason="unavailable")) as world:
        view = await world.drive(session_id="talk", prompt="Fail: robins.")
        assert (view.status, view.output) == (RunStatus.FAILED, None)
        assert view.terminal is not None
        assert view.terminal.message
        world.pool = FakePool(*good_replies())
        assert (await world.drive(session_id="talk")).status is RunStatus.COMPLETED
        assert "robins" in str(last_pool(world).requests[0].messages)
        assert view.terminal.message in str(last_pool(world).requests[0].messages)


async def test_runs_of_a_session_take_turns() -> None:
    """One active root run per session: who comes later stays queued until the earlier one has ended."""
    async with run_world(PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls")) as world:
        first = await world.admit(session_id="talk")
        first_id = next(iter(world.controls))
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(first))
            await world.node.blocked.wait()
            world.pool = FakePool(*good_replies())
            second = await world.admit(session_id="talk", on_busy="enqueue")
            second_id = next(run_id for run_id in world.controls if run_id != first_id)
            waiting = group.create_task(world.supervise(second))
            await asyncio.sleep(0.05)
            stored = await world.store.find_run(second_id)
            assert stored is not None
            assert stored.view.status is RunStatus.QUEUED
            assert last_pool(world).requests == []
            world.cancel(first_id)
            ended = await driving
            view = await waiting
        assert view.status is RunStatus.COMPLETED
        assert ended.ended_at is not None
        assert view.started_at is not None
        assert view.started_at >= ended.ended_at
        started = next(event for event in await world.events(second_id) if event.type == "run.started")
        assert started.data["queue"]["turn_ms"] >= 50, "why it was queued for so long stands in its log"
        assert started.data["queue"]["place_ms"] < started.data["queue"]["turn_ms"]


async def test_a_run_that_waits_for_its_turn_can_be_cancelled() -> None:
    """R7: it never gets a workspace or a model call."""
    async with run_world(PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls")) as world:
        first = await world.admit(session_id="talk")
        first_id = next(iter(world.controls))
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(first))
            await world.node.blocked.wait()
            second = await world.admit(session_id="talk")
            second_id = next(run_id for run_id in world.controls if run_id != first_id)
            waiting = group.create_task(world.supervise(second))
            await asyncio.sleep(0.02)
            world.cancel(second_id)
            view = await waiting
            assert view.status is RunStatus.CANCELLED
            assert view.usage is not None
            assert view.usage.total_tokens == 0
            settling = next(event for event in await world.events(second_id) if event.type == "run.settling")
            assert settling.data["detail"] == "an earlier run of its session was still active"
            world.cancel(first_id)
            await driving


async def test_a_busy_session_says_so() -> None:
    """`on_busy` is reject unless it says otherwise: the answer names the run that is active."""
    async with run_world(PoolReply(text=PLAN, gate=asyncio.Event())) as world:
        supervisor = await world.admit(session_id="talk")
        run_id = next(iter(world.controls))
        sessions = StoreSessions(world.store)
        facts = await sessions.look(session_id="talk", continues=None, tenant="local")
        assert facts.active_run_id == run_id
        assert (await sessions.look(session_id="x", continues=None, tenant="local")).active_run_id is None
        with pytest.raises(SessionBusy, match=run_id):
            await world.admit(session_id="talk", facts=facts)
        world.cancel(run_id)
        await world.supervise(supervisor)
        facts = await sessions.look(session_id="talk", continues=None, tenant="local")
        assert facts.active_run_id is None


async def test_what_is_told_is_bounded() -> None:
    """However long a session is, what its next run is told has an end; the newest runs are kept."""
    async with run_world() as world:
        for number in range(30):
            world.node = FakeNode({"a.txt": "old\n"})
            world.pool = FakePool(ZeroDivisionError())
            await world.drive(session_id="talk", prompt=f"Run number {number:03}. " + "x" * 5_000)
        stored, _ = await world.store.list_runs(session_id="talk", limit=1)
        supervisor = await world.admit(session_id="talk")
        run_id = list(world.controls)[-1]
        run = await world.store.find_run(run_id)
        assert run is not None
        told = await StoreSessions(world.store).context_of(run)
        assert told is not None
        assert len(told) <= MAX_CONTEXT_CHARS + 100
        assert "number 029" in told
        assert "number 001" not in told
        world.cancel(run_id)
        await world.supervise(supervisor)
        many = [
            TranscriptEntry(
                stage_id="work-1",
                position=0,
                role="tool",
                body={"results": [{"name": "t", "status": "success", "content": "y" * 10_000}] * 50},
            )
        ]
        assert len(describe_run(stored[0], many)) < 12_000
