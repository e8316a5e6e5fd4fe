"""How a reviewed request ends: one terminal on every path, by the right cause, and nobody held up by it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from remit.admission import Binding
from remit.contract import NodeFailure, NodeRequest, NodeResponse, RunStatus, RunView
from remit.errors import ProviderError
from remit.events import TERMINAL_TYPES, Event
from remit.models import ModelRequest
from remit.runs import RunTimes
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import FakePool, PoolReply
from remit.testing._run_world import BLOCK, PLAN, WORK, WRITE, RunWorld, good_replies, run_world

TREE = {"a.txt": "old\n"}
BLOCKED = (PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls"))
REJECT = '{"decision": "reject", "output": "a.txt is right now.", "summary": "No."}'
PATIENCE_S = 60


def raw_cancellation(request: ModelRequest) -> PoolReply:
    """What a provider's library may raise of its own accord."""
    raise asyncio.CancelledError


async def check_one_terminal(world: RunWorld, view: RunView) -> None:
    """One terminal, last and stored; no waiter, no work and no owed cleanup is left."""
    events = await world.events(view.id)
    assert [event.seq for event in events if event.type in TERMINAL_TYPES] == [len(events)]
    assert events[-1].data == view.to_json()
    assert [event.type for event in events].count("run.settling") == 1
    assert world.link.pending_count(view.id) == 0
    assert world.registry.active_ids_for_session(view.session_id) == ()


def ending(view: RunView) -> tuple[str, str | None, str | None]:
    assert view.terminal is not None
    return view.terminal.kind, view.terminal.class_, view.terminal.code


# ---- every error path


def _fails_to_open() -> FakeNode:
    node = FakeNode(TREE)
    node.failures["open"] = NodeFailure(run_id="x", reason="storage_full", message="full")
    return node


def _unprepared() -> FakeNode:
    node = FakeNode(TREE)
    node.failures["prepare"] = NodeFailure(run_id="x", reason="unavailable", message="gone")
    return node


def _moved() -> FakeNode:
    """Its user changes the file before anything is delivered."""
    node = FakeNode(TREE)
    node._checks["move"] = lambda tree: node.tree.update({"a.txt": "moved\n"}) or 0
    return node


PATHS: dict[str, tuple[tuple[str, str | None, str | None], tuple[Any, ...], dict[str, Any], Any]] = {
    "budget": (("failed", "budget", "wall_clock"), BLOCKED, {"wall_clock_ms": 500}, FakeNode),
    "stage timeout": (("failed", "timeout", "work"), BLOCKED, {"stage_timeout_ms": 500}, FakeNode),
    "provider": (
        ("failed", "provider", "auth"),
        (PoolReply(text=PLAN), ProviderError("no", reason="auth")),
        {},
        FakeNode,
    ),
    "tool rounds": (
        ("failed", "budget", "tool_rounds"),
        (PoolReply(text=PLAN), *[PoolReply(calls=[WRITE], finish="tool_calls")] * 2),
        {"max_tool_rounds": 1},
        FakeNode,
    ),
    "open fails": (("failed", "workspace", "storage_full"), good_replies(), {}, _fails_to_open),
    "preparation fails": (("failed", "workspace", "unavailable"), (), {}, _unprepared),
    "conflict": (("failed", "workspace", "delivery_conflict"), good_replies(), {}, _moved),
    "invalid plan": (
        ("failed", "invalid_output", "plan"),
        (PoolReply(text="No."),),
        {"max_corrections": 0},
        FakeNode,
    ),
    "invalid work": (
        ("failed", "invalid_output", "work"),
        (PoolReply(text=PLAN), PoolReply(text="No.")),
        {"max_corrections": 0},
        FakeNode,
    ),
    "invalid work after a tool": (
        ("failed", "invalid_output", "work"),
        (PoolReply(text=PLAN), PoolReply(calls=[WRITE], finish="tool_calls"), PoolReply(text="No.")),
        {"max_corrections": 0},
        FakeNode,
    ),
    "invalid review": (
        ("failed", "invalid_output", "review"),
        (*good_replies()[:3], PoolReply(text="No.")),
        {"max_corrections": 0},
        FakeNode,
    ),
    "rejected": (
        ("failed", "rejected", "rejected"),
        (*good_replies()[:3], PoolReply(text=REJECT)),
        {},
        FakeNode,
    ),
    "a fault of ours": (("failed", "internal", "invariant"), (ZeroDivisionError("oops"),), {}, FakeNode),
}


@pytest.mark.parametrize("path", PATHS)
async def test_every_error_is_one_terminal(path: str) -> None:
    """S11, S14, S15, S27, S53, S69-S73: the stream closes after its one terminal, and the wait returns.

    Nobody answers: what fails needs no acknowledgement, also where one was asked for. Nothing but the
    review's output with a pass is ever the result.
    """
    end, replies, limits, make_node = PATHS[path]
    node = make_node(TREE) if make_node is FakeNode else make_node()
    acknowledge = None if path == "conflict" else "required"
    async with run_world(*replies, node=node) as world:
        supervisor = await world.admit(limits=limits, acknowledge=acknowledge)
        (run_id,) = world.controls
        control, feed = world.controls[run_id], supervisor._context.feed

        async def watched() -> list[Event]:
            return [event async for event in feed.follow(run_id)]

        async def waited() -> tuple[RunView, int]:
            return await control.wait(), world.link.pending_count()

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            watching = group.create_task(watched())
            waiting = group.create_task(waited())
            view = await world.supervise(supervisor)
        assert ending(view) == end
        assert waiting.result() == (view, 0), "no waiter is left at the moment that the wait returns"
        told = [event.type for event in watching.result() if event.type in TERMINAL_TYPES]
        assert told == ["run.failed"]
        assert view.terminal is not None
        assert view.terminal.message not in {"oops", "No.", "full", "gone"}
        assert (view.output is not None) == (path == "conflict")
        await check_one_terminal(world, view)


class SkippingSelector(selectors.DefaultSelector):
    """Doesn't wait for a timer: it puts the time forward instead."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s = 1_000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is not None and timeout > 0:
            self.at_s, timeout = self.at_s + timeout, 0
        return super().select(timeout)


class PatientLoop(asyncio.SelectorEventLoop):
    """Its time passes only where something waits for it, so a slow machine takes none of a limit away."""

    def __init__(self) -> None:
        self._skipping = SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.at_s


async def _ten_milliseconds() -> None:
    async with run_world(PoolReply(text=PLAN, gate=asyncio.Event())) as world:
        view = await world.drive(limits={"wall_clock_ms": 10, "stage_timeout_ms": 10})
        assert ending(view) == ("failed", "budget", "wall_clock")
        assert isinstance(world.pool, FakePool)
        assert world.pool.sent == 1
        await check_one_terminal(world, view)


def test_nothing_slow_stands_before_the_first_call() -> None:
    """S42, S76: within 10 ms the first provider call has gone out, once, 20 of 20."""
    for _ in range(20):
        with asyncio.Runner(loop_factory=PatientLoop) as runner:
            runner.run(_ten_milliseconds())


# ---- a parent that has ended, and one that is alive


@pytest.mark.parametrize("below", [raw_cancellation, ProviderError("down", reason="unavailable")])
async def test_a_living_parent_makes_it_the_providers_fault(below: Any) -> None:
    """S61, S82: a raw cancellation from below is class provider: one terminal, and driving raises nothing."""
    for before in ((), good_replies()[:1], good_replies()[:2], good_replies()[:3]):
        async with run_world(*before, below) as world:
            view = await world.drive()
            assert ending(view) == ("failed", "provider", "unavailable")
            assert not view.cancel_requested
            assert view.cancel is None
            await check_one_terminal(world, view)


@pytest.mark.parametrize("by", ["caller", "deadline"])
@pytest.mark.parametrize("error", [asyncio.CancelledError, lambda: ProviderError("down", reason="auth")])
async def test_an_ended_parent_wins_over_its_provider(by: Any, error: Callable[[], BaseException]) -> None:
    """S57, S59, S60: the provider cancels, or lets the parent expire, and fails: the run is cancelled."""
    async with run_world() as world:

        def ends_its_parent(request: ModelRequest) -> PoolReply:
            assert world.cancel(request.run_id, by=by)
            raise error()

        world.pool = FakePool(ends_its_parent)
        view = await world.drive()
        assert ending(view) == ("cancelled", "cancelled", by)
        assert "open" not in world.node.kinds()
        await check_one_terminal(world, view)


async def test_a_parent_that_had_ended_before() -> None:
    """S59, S60, R7: a parent that is over when the run is taken up: no stage, no call, one terminal."""
    for by in ("caller", "deadline"):
        async with run_world() as world:
            supervisor = await world.admit()
            (run_id,) = world.controls
            assert world.cancel(run_id, by=by)
            view = await world.supervise(supervisor)
            assert ending(view) == ("cancelled", "cancelled", by)
            assert "stage.started" not in [event.type for event in await world.events(run_id)]
            await check_one_terminal(world, view)


# ---- a node that answers late, or never


async def test_an_answer_long_after_the_cancel() -> None:
    """S50, S52, S83: the cancelled run ends though its call stays blocked; a late answer is harmless."""
    node = FakeNode(TREE)
    node.ignore_cancel = True
    async with run_world(node=node) as world:
        world.pool = FakePool(*BLOCKED)
        blocked = await world.admit()
        (first,) = world.controls
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(blocked))
            await node.blocked.wait()
            assert world.cancel(first)
            world.pool = FakePool(*good_replies())
            peer = await world.drive()
            assert peer.status is RunStatus.COMPLETED
            view = await driving
        assert ending(view) == ("cancelled", "cancelled", "caller")
        assert world.link.pending_count() == 0
        before = await world.events(first)
        assert world.link.waiters.dropped == 0
        node.release.set()
        async with asyncio.timeout(PATIENCE_S):
            while not world.link.waiters.dropped:
                await asyncio.sleep(0.001)
        assert world.link.pending_count() == 0
        assert await world.events(first) == before
        stored = await world.store.find_run(first)
        assert stored is not None
        assert stored.view == view
        await check_one_terminal(world, peer)


@pytest.mark.parametrize("end", ["cancel", "budget", "timeout"])
@pytest.mark.parametrize("later", ["never", "in time"])
async def test_a_stop_that_the_node_never_answers(end: str, later: str) -> None:
    """S83, R1, R33: no run waits for ever for a node that was told to stop a call and says nothing.

    Where the run's own end finds that all has been stopped, it ends as it would have; else the call is
    named as abandoned.
    """
    node = FakeNode(TREE)
    handle: Callable[[NodeRequest], Awaitable[NodeResponse]] = node.handle

    async def silent(request: NodeRequest) -> NodeResponse:
        if request.kind == "cancel" and (later == "never" or "cancel" not in node.kinds()):
            node.requests.append(request)
            await asyncio.Event().wait()
        return await handle(request)

    node.handle = silent
    limits = {"budget": {"wall_clock_ms": 800}, "timeout": {"stage_timeout_ms": 800}}.get(end)
    times = RunTimes(link_grace_ms=0, drain_slack_ms=500)
    async with run_world(*BLOCKED, node=node, times=times) as world:
        supervisor = await world.admit(limits=limits or {})
        (run_id,) = world.controls
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await node.blocked.wait()
            if end == "cancel":
                assert world.cancel(run_id)
            view = await driving
        await check_one_terminal(world, view)
        if later == "never":
            assert ending(view) == ("indeterminate", "lost", "not_stopped")
            assert (f"{run_id}.work-1.c1", "tool") in [(work.work_id, work.kind) for work in view.abandoned]
        else:
            expected = {"cancel": "cancelled", "budget": "budget", "timeout": "timeout"}[end]
            assert ending(view)[1] == expected
            assert view.abandoned == ()
        if end == "cancel":
            assert view.cancel is not None
            assert view.cancel.complete == (later == "in time")
            assert [item.how for item in view.cancel.items if item.kind == "tool"] == ["notified"]


@pytest.mark.parametrize("answers", [True, False])
async def test_a_stop_that_is_cut_off_once_more(answers: bool) -> None:
    """R1, S83: a deadline that passes while a call is being stopped changes nothing of how it was stopped."""
    node = FakeNode(TREE)
    gate = node.gates["cancel"] = asyncio.Event()
    async with run_world(*BLOCKED, node=node, times=RunTimes(link_grace_ms=0, drain_slack_ms=500)) as world:
        supervisor = await world.admit()
        (run_id,) = world.controls
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await node.blocked.wait()
            assert world.cancel(run_id)
            while "cancel" not in node.kinds():
                await asyncio.sleep(0)
            assert supervisor._live is not None
            supervisor._live.cancel()
            await asyncio.sleep(0)
            if answers:
                gate.set()
            view = await driving
        assert view.cancel is not None
        assert view.cancel.complete == answers
        (item,) = [item for item in view.cancel.items if item.kind == "tool"]
        assert (item.how, item.pids) == (("term", (7,)) if answers else ("notified", None))
        assert ending(view)[0] == ("cancelled" if answers else "indeterminate")
        assert ("tool" in [work.kind for work in view.abandoned]) != answers
        await check_one_terminal(world, view)


@pytest.mark.parametrize(
    ("profile", "kind", "nth"),
    [
        ("reviewed", "snapshot", 1),
        ("reviewed", "snapshot", 2),
        ("reviewed", "checks", 1),
        ("direct", "open", 1),
    ],
)
async def test_a_node_that_hangs_between_two_stages(profile: str, kind: str, nth: int) -> None:
    """S43, S62, R55: the request's time ends whatever the run waits for, not only what a stage waits for."""
    node = FakeNode(TREE, checks={"tests": lambda files: 0})
    handle: Callable[[NodeRequest], Awaitable[NodeResponse]] = node.handle

    async def hanging(request: NodeRequest) -> NodeResponse:
        if request.kind == kind and node.kinds().count(kind) == nth - 1:
            node.requests.append(request)
            await asyncio.Event().wait()
        return await handle(request)

    node.handle = hanging
    replies = good_replies() if profile == "reviewed" else (good_replies()[1], PoolReply(text=WORK))
    binding = Binding.model_validate({"name": "reviewed", "workspace": "tree", "profile": profile})
    async with run_world(*replies, node=node) as world:
        view = await world.drive(binding=binding, limits={"wall_clock_ms": 1_000})
        assert ending(view) == ("failed", "budget", "wall_clock")
        assert node.kinds().count(kind) >= nth
        assert node.tree == TREE
        await check_one_terminal(world, view)
