"""The embedding API: starting runs, waiting for them, bounding and stopping them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import remit
from host_kit import COMPLETES, FAILS, MODEL, THINKS, WAITS, make_config, open_host, request
from remit import Host, RunCancelled, RunExpired, RunFailed, Scope
from remit.errors import (
    IdempotencyConflict,
    NotFound,
    PreconditionFailed,
    QueueFull,
    QuotaExceeded,
    RunIndeterminate,
    SessionBusy,
)
from remit.runs import Tombstone


@pytest.fixture
async def host(tmp_path: Path) -> AsyncGenerator[Host]:
    async with open_host(tmp_path) as made:
        yield made


async def until(host: Host, run_id: str, type_: str) -> None:
    """Return once the run has had such an event."""
    async with asyncio.timeout(60):
        async for event in host.open_run(run_id).events():
            if event.type == type_:
                return


async def test_a_run_from_start_to_end(host: Host) -> None:
    """R15, R16: followed and waited for; viewers may leave and come back; the last event is the run."""
    run = await host.start(remit.RunRequest(prompt=COMPLETES, model=MODEL))
    async for event in run.events():
        if event.type == "run.started":
            break
    seen = [event async for event in run.events(after=1) if event.seq is not None]
    assert [event.seq for event in seen] == list(range(2, len(seen) + 2))
    view = await run.wait()
    assert view.output == "a.txt is new."
    assert seen[-1].type == "run.completed"
    assert seen[-1].data == view.to_json()
    assert await run.view() == view
    assert await run.ended() == view
    assert await (await host.get_run(run.id)).wait() == view
    assert repr(run) == f"Run({run.id!r})"


async def test_a_run_that_fails(host: Host) -> None:
    """R14: it raises what the terminal says: class and code, never a provider's text."""
    run = await host.start(request(FAILS))
    with pytest.raises(RunFailed) as raised:
        await run.wait()
    assert raised.value.fields == {
        "run_id": run.id,
        "kind": "failed",
        "class": "provider",
        "reason": "auth",
    }
    assert (raised.value.run_id, raised.value.reason) == (run.id, "auth")
    assert not isinstance(raised.value, TimeoutError)
    assert (await run.ended()).status.value == "failed"


async def test_a_run_that_is_cancelled(host: Host) -> None:
    """S58, R1, R5: the receipt comes with the end; a second cancel joins or changes nothing."""
    run = await host.start(request(WAITS))
    await until(host, run.id, "tool.started")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run.cancel(reason="enough")) for _ in range(3)]
    outcomes = [task.result() for task in tasks]
    assert [outcome.changed for outcome in outcomes] == [True, False, False]
    assert outcomes[0].run == outcomes[1].run == outcomes[2].run
    assert outcomes[0].receipt is not None
    assert outcomes[0].receipt.complete
    assert outcomes[0].receipt.reason == "enough"
    later = await run.cancel()
    assert (later.changed, later.run) == (False, outcomes[0].run)
    assert not run.cancel_nowait()
    with pytest.raises(RunCancelled) as raised:
        await run.wait()
    assert raised.value.reason == "caller"
    assert not isinstance(raised.value, RunExpired)


async def test_a_bill_that_must_be_whole(host: Host) -> None:
    """An end that can't be proven has an error of its own."""
    run = await host.start(request(THINKS, usage="required"))
    await until(host, run.id, "attempt.started")
    await run.cancel()
    with pytest.raises(RunIndeterminate) as raised:
        await run.wait()
    assert raised.value.reason == "missing_attempt_usage"


# ---- the caller's own bounds


@pytest.mark.parametrize("text", [THINKS, WAITS])
async def test_a_deadline(host: Host, text: str) -> None:
    """S57, S60, R55: the caller's own deadline ends the run, code `deadline`; it is a TimeoutError, too."""
    run = await host.start(request(text), deadline=timedelta(seconds=1.2))
    with pytest.raises(TimeoutError) as raised:
        await run.wait()
    assert isinstance(raised.value, RunExpired)
    assert isinstance(raised.value, RunCancelled)
    assert raised.value.reason == "deadline"
    view = await run.view()
    assert view.terminal is not None
    assert (view.terminal.kind, view.terminal.code) == ("cancelled", "deadline")
    assert view.cancel is not None
    assert (view.cancel.by, view.cancel.complete) == ("deadline", True)


async def test_a_deadline_as_a_moment(host: Host) -> None:
    """A moment with a zone is as good as a length; a run that ends before it isn't touched."""
    view = await host.run(request(), deadline=datetime.now(UTC) + timedelta(minutes=5))
    assert view.output == "a.txt is new."


async def test_a_deadline_that_has_passed(host: Host) -> None:
    """S59, S60: a parent that is over already: it is raised at the call, and nothing is stored."""
    with pytest.raises(RunExpired):
        await host.start(request(id="late"), deadline=timedelta(0))
    scope = Scope()
    scope.abort()
    with pytest.raises(RunCancelled) as raised:
        await host.run(request(id="late"), scope=scope)
    assert raised.value.reason == "caller"
    assert await host.find_run("late") is None


async def test_a_scope_of_several_runs(host: Host) -> None:
    """It ends what was started in it, with its reason, and nothing else."""
    scope = Scope()
    runs = [await host.start(request(WAITS), scope=scope) for _ in range(2)]
    ended = await host.start(request(), scope=scope)
    done = await ended.wait()
    other = await host.start(request(WAITS))
    for run in [*runs, other]:
        await until(host, run.id, "tool.started")
    assert scope.abort("no need")
    for run in runs:
        with pytest.raises(RunCancelled):
            await run.wait()
        view = await run.view()
        assert view.cancel is not None
        assert view.cancel.reason == "no need"
    assert await ended.view() == done
    assert not (await other.view()).status.ended
    assert not scope._listeners


async def test_wait_only_watches(host: Host) -> None:
    """R15: a wait that is given up leaves the run alone."""
    run = await host.start(request(WAITS))
    with pytest.raises(TimeoutError) as raised:
        async with asyncio.timeout(0.3):
            await run.wait()
    assert not isinstance(raised.value, RunExpired)
    assert not (await run.view()).status.ended


async def test_run_owns_what_it_starts(host: Host) -> None:
    """R4: cancelled, it cancels its run, and raises once everything of it has ended."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await host.run(request(WAITS, id="mine"))
    view = await host.find_run("mine")
    assert view is not None
    assert view.terminal is not None
    assert (view.terminal.kind, view.terminal.code) == ("cancelled", "caller")
    assert host.residencies == {}
    assert host.registry.active_count() == 0


async def test_run_that_is_cancelled_while_it_starts(host: Host) -> None:
    """Whenever the cancel comes, no run is left that goes on."""
    for delay_s in (0, 0.001, 0.003, 0.01):
        run_id = f"run-{delay_s}".replace(".", "-")
        calling = asyncio.ensure_future(host.run(request(WAITS, id=run_id)))  # noqa: TID251 - awaited below
        await asyncio.sleep(delay_s)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        view = await host.find_run(run_id)
        assert view is None or view.status.ended


async def test_run_raises_like_wait(host: Host) -> None:
    """Failed, expired: the same errors as those of `wait`."""
    with pytest.raises(RunFailed):
        await host.run(request(FAILS))
    with pytest.raises(RunExpired):
        await host.run(request(THINKS), deadline=timedelta(milliseconds=300))


# ---- one run per id


async def test_a_repeated_start_is_the_same_run(host: Host) -> None:
    """R63: by id or key, while it goes on and afterwards; another body is a conflict."""
    first = await host.start(request(id="mine"), idempotency_key="key")
    again = await host.start(request(id="mine"))
    by_key = await host.start(request(), idempotency_key="key")
    assert first.id == again.id == by_key.id == "mine"
    view = await first.wait()
    assert await (await host.start(request(id="mine"))).wait() == view
    with pytest.raises(IdempotencyConflict):
        await host.start(request(WAITS, id="mine"))
    with pytest.raises(IdempotencyConflict):
        await host.start(request(WAITS), idempotency_key="key")
    assert (await first.view()) == view


async def test_a_session_has_one_active_run(tmp_path: Path) -> None:
    """`on_busy`: rejected, put behind, or in its place: which one stops the other is on record."""
    async with open_host(tmp_path) as host, asyncio.timeout(60):
        first = await host.start(request(WAITS, id="first", session_id="talk"))
        await until(host, first.id, "tool.started")
        with pytest.raises(SessionBusy):
            await host.start(request(FAILS, session_id="talk"))
        behind = await host.start(request(FAILS, id="behind", session_id="talk", on_busy="enqueue"))
        assert (await behind.view()).status.value == "queued"
        other = await host.start(request(session_id="another"))
        assert (await other.wait()).status.value == "completed", "other sessions go on"
        instead = await host.start(request(FAILS, id="instead", session_id="talk", on_busy="interrupt"))
        views = [await run.ended() for run in (first, behind, instead)]
        stopped, *later = views
        assert stopped.cancel is not None
        assert stopped.cancel.complete
        assert stopped.cancel.reason == "run instead of its session came with on_busy = interrupt"
        ended_at = stopped.ended_at
        for view in later:
            assert ended_at is not None
            if view.started_at is not None:
                assert view.started_at >= ended_at, "two at once"
            ended_at = view.ended_at
        assert [view.status.value for view in (stopped, views[-1])] == ["cancelled", "failed"]


async def test_a_repeated_start_of_a_full_host(tmp_path: Path) -> None:
    """R63: where there is room for nothing new, whoever asks again for what was admitted still gets it."""
    config = make_config(tmp_path, host={"max_running": 1, "max_queued": 0})
    async with Host(config) as host, asyncio.timeout(60):
        ended = await host.start(request(id="ended"))
        await ended.wait()
        run = await host.start(request(WAITS, id="mine"), idempotency_key="key")
        with pytest.raises(QueueFull):
            await host.start(request())
        assert (await host.start(request(WAITS), idempotency_key="key")).id == run.id
        assert (await host.start(request(id="ended"))).id == ended.id
        await run.cancel()


async def test_a_repeated_interrupt_interrupts_nothing(tmp_path: Path) -> None:
    """R63: neither a retry of an interrupting request nor one that is refused stops what its session does."""
    asked = {"session_id": "talk", "on_busy": "interrupt"}
    async with open_host(tmp_path) as host, asyncio.timeout(60):
        run = await host.start(request(WAITS, id="mine", **asked), idempotency_key="key")
        await until(host, run.id, "tool.started")
        again = await host.start(request(WAITS, id="mine", **asked))
        by_key = await host.start(request(WAITS, id="mine", **asked), idempotency_key="key")
        assert run.id == again.id == by_key.id
        with pytest.raises(IdempotencyConflict):
            await host.start(request(FAILS, id="mine", **asked))
        with pytest.raises(IdempotencyConflict):
            await host.start(request(FAILS, id="another", **asked), idempotency_key="key")
        assert not (await run.view()).cancel_requested
        await run.cancel()


async def test_a_tombstone_is_for_ever(tmp_path: Path) -> None:
    """R7: an id that was cancelled before it was started answers a cancelled run, also after a restart."""
    async with open_host(tmp_path) as host:
        with pytest.raises(NotFound):
            await host.cancel("dead")
        dead = await host.cancel("dead", reason="never mind", tombstone=True)
        assert isinstance(dead, Tombstone)
        assert (dead.run_id, dead.reason) == ("dead", "never mind")
        with pytest.raises(RunCancelled):
            await host.run(request(id="dead"))
        view = await (await host.get_run("dead")).ended()
        assert view.cancel is not None
        assert view.cancel.reason == "never mind"
        assert (view.started_at, view.cost_usd) == (None, 0)
    async with open_host(tmp_path) as host:
        for text in (COMPLETES, WAITS):
            run = await host.start(request(text, id="dead"))
            assert await run.ended() == view
        again = await host.cancel("dead", tombstone=True)
        assert not isinstance(again, Tombstone)
        assert (again.changed, again.run) == (False, view)


async def test_a_run_of_another_host(tmp_path: Path) -> None:
    """Two hosts on the same data: the other one's run can be followed and waited for, and not be stopped."""
    config = make_config(tmp_path)
    async with Host(config) as mine, Host(config) as other:
        run = await mine.start(request(WAITS))
        await until(mine, run.id, "tool.started")
        seen = await other.get_run(run.id)
        assert not (await seen.view()).status.ended
        with pytest.raises(PreconditionFailed):
            await seen.cancel()
        assert not seen.cancel_nowait()
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            waiting = group.create_task(seen.ended())
            await asyncio.sleep(0.05)
            outcome = await run.cancel()
        assert waiting.result() == outcome.run


async def test_a_run_is_taken_up_as_it_is_admitted(host: Host) -> None:
    """R57: the host that admits a run has it from its first fact on; nobody takes it up a second time."""
    run = await host.start(request(COMPLETES))
    await run.wait()
    stored = await host._open_parts.store.find_run(run.id)
    assert stored is not None
    assert stored.generation == 1


async def test_a_repetition_is_answered_while_money_is_held(host: Host) -> None:
    """R63: a key whose money is held by requests in flight starts nothing, and finds what it started."""

    async def held(caller: object) -> None:
        raise QuotaExceeded("held for requests in flight", retry_after_ms=1)

    first = await (await host.start(request(COMPLETES), idempotency_key="k-1")).wait()
    object.__setattr__(host._open_parts.starter, "check_money", held)
    assert (await host.start(request(COMPLETES), idempotency_key="k-1")).id == first.id
    with pytest.raises(QuotaExceeded):
        await host.start(request(COMPLETES), idempotency_key="k-2")
