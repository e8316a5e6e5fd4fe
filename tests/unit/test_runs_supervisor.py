"""One run from its claim to its terminal, on fakes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remit.admission import Binding
from remit.contract import ArtifactRequest, NodeFailure, RunStatus
from remit.errors import ProviderError
from remit.events import TERMINAL_TYPES, Event
from remit.runs import RunTimes, fold_event
from remit.stages import PROMPTS_VERSION
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import FakePool, PoolReply
from remit.testing._run_world import BLOCK, PASS, PLAN, WORK, WRITE, RunWorld, good_replies, run_world

REVISE = '{"decision": "revise", "output": "", "summary": "Say it louder."}'
REJECT = '{"decision": "reject", "output": "", "summary": "No."}'
TREE = {"a.txt": "old\n"}


def types(events: tuple[Event, ...]) -> list[str]:
    return [event.type for event in events]


async def check_invariants(world: RunWorld, run_id: str) -> None:
    """What holds of every ended run."""
    events = await world.events(run_id)
    ends = [event for event in events if event.type in TERMINAL_TYPES]
    assert len(ends) == 1
    assert events[-1] is ends[0] or events[-1] == ends[0]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert types(events).count("run.settling") == 1
    assert world.registry.active_count() == 0
    assert world.link.pending_count() == 0
    assert world.node.opened == world.node.cleaned
    view = None
    for event in events:
        view = fold_event(view, event)
    stored = await world.store.find_run(run_id)
    assert stored is not None
    assert stored.view == view
    started = types(events).count("attempt.started")
    assert started == types(events).count("attempt.completed") + types(events).count("attempt.failed")
    assert types(events).count("tool.started") == types(events).count("tool.completed")


async def test_the_record_says_which_prompts_were_told() -> None:
    """Prompts are versioned, and each stage of a run's record names the version of its own."""
    async with run_world(*good_replies()) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        await world.supervise(supervisor)
        started = [event for event in await world.events(run_id) if event.type == "stage.started"]
        assert [event.data["prompts_version"] for event in started] == [PROMPTS_VERSION] * 3


@pytest.mark.parametrize("failing", [0, 2])
async def test_a_cancel_that_counts_is_the_end(failing: int) -> None:
    """R5, S71: whatever goes wrong meanwhile, a cancel that changed something ends the run cancelled.

    Nothing that was found out but not written may win over it.
    """
    for turns in range(120):
        replies: list[Any] = [*good_replies()]
        replies[failing] = ProviderError("down", reason="unavailable")
        async with run_world(*replies) as world:
            supervisor = await world.admit()
            run_id = next(iter(world.controls))
            async with asyncio.TaskGroup() as group:
                driven = group.create_task(world.supervise(supervisor))
                for _ in range(turns):
                    await asyncio.sleep(0)
                changed = world.cancel(run_id)
            view = driven.result()
            assert changed == (view.status is RunStatus.CANCELLED), turns
            assert changed == (view.cancel is not None), turns
            await check_invariants(world, run_id)
        if not changed:
            break
    else:
        pytest.fail("no cancel came too late")


async def test_plan_work_review_deliver() -> None:
    """S12, S13, S18-S22, S25, S37: four dispatches in order; the reviewer's output is the result."""
    async with run_world(*good_replies()) as world:
        view = await world.drive()
        assert view.status is RunStatus.COMPLETED
        assert view.terminal is not None
        assert view.terminal.to_json() == {
            "kind": "completed",
            "class": None,
            "code": None,
            "message": None,
            "stage": None,
            "limit": None,
        }
        assert view.output == "a.txt is right now."
        assert world.node.tree == {"a.txt": "new\n"}
        assert view.delivery is not None
        assert view.delivery.status == "delivered"
        assert view.review is not None
        assert view.review.decision == "pass"
        assert view.patch is not None
        assert view.patch.reviewed
        assert view.usage is not None
        assert view.usage.complete
        assert view.usage.coverage.attempts == 4
        assert view.usage.total_tokens == 60
        assert view.cost_usd == 0
        events = await world.events(view.id)
        told = ("run.", "stage.", "review.", "delivery.")
        assert [kind for kind in types(events) if kind.startswith(told)] == [
            "run.queued",
            "run.started",
            "stage.started",
            "stage.completed",
            "stage.started",
            "stage.completed",
            "stage.started",
            "stage.completed",
            "review.decided",
            "run.finalizing",
            "delivery.intent",
            "delivery.completed",
            "run.settling",
            "run.completed",
        ]
        await check_invariants(world, view.id)
        plan = await world.store.read_artifact(view.id, "plan")
        assert plan is not None
        assert view.id in plan.text
        assert "Change a.txt." in plan.text


async def test_the_plan_is_given_to_the_node() -> None:
    """S37: once, under the run's id, named as what it is, and with the text of the plan."""
    async with run_world(*good_replies()) as world:
        view = await world.drive()
        sent = [one for one in world.node.requests if isinstance(one, ArtifactRequest)]
        assert [(one.run_id, one.name) for one in sent] == [(view.id, "plan")]
        assert "Change a.txt." in sent[0].text
        assert view.id in sent[0].text


async def test_few_durable_steps() -> None:
    """A reviewed run of four attempts and one tool call is a bounded number of durable steps."""
    async with run_world(*good_replies()) as world:
        steps = 0
        append = world.store.append

        async def counting(*args: object, **kwargs: object) -> object:
            nonlocal steps
            steps += 1
            return await append(*args, **kwargs)  # type: ignore[arg-type] - passed on as they came

        world.store.append = counting  # type: ignore[method-assign] - a spy of this test
        await world.drive()
        assert steps <= 20, steps


async def test_a_revise_goes_back_to_work() -> None:
    """S27: only a pass is a success; a revise is one more work stage, which is told why."""
    again = ("c2", "write_file", '{"relative_path": "a.txt", "content": "NEW\\n"}')
    async with run_world(
        PoolReply(text=PLAN),
        PoolReply(calls=[WRITE], finish="tool_calls"),
        PoolReply(text=WORK),
        PoolReply(text=REVISE),
        PoolReply(calls=[again], finish="tool_calls"),
        PoolReply(text=WORK),
        PoolReply(text=PASS),
    ) as world:
        view = await world.drive()
        assert view.status is RunStatus.COMPLETED
        assert world.node.tree == {"a.txt": "NEW\n"}
        assert isinstance(world.pool, FakePool)
        assert any("Say it louder." in str(message) for message in world.pool.requests[4].messages)
        await check_invariants(world, view.id)


async def test_no_revision_left() -> None:
    """The second revise ends the run rejected, and the tree is untouched."""
    async with run_world(
        PoolReply(text=PLAN),
        PoolReply(calls=[WRITE], finish="tool_calls"),
        PoolReply(text=WORK),
        PoolReply(text=REVISE),
    ) as world:
        view = await world.drive(limits={"max_revisions": 0})
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("rejected", "revisions_exhausted")
        assert world.node.tree == TREE
        assert view.patch is not None
        assert not view.patch.reviewed
        await check_invariants(world, view.id)


async def test_a_rejected_run_delivers_nothing() -> None:
    """S27: a reject ends the run, and its work stays readable."""
    async with run_world(*good_replies()[:3], PoolReply(text=REJECT)) as world:
        view = await world.drive()
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("rejected", "rejected")
        assert world.node.tree == TREE
        patch = await world.store.read_artifact(view.id, "patch")
        assert patch is not None
        assert "+new" in patch.text
        assert view.delivery is not None
        assert (view.delivery.mode, view.delivery.status) == ("apply", "skipped")
        await check_invariants(world, view.id)


async def test_a_broken_check_goes_back_to_work() -> None:
    """A gate that is worse counts as a revision; with none left the run is rejected, code checks_failed."""
    node = FakeNode(TREE, checks={"test": lambda tree: 1 if tree.get("a.txt") == "new\n" else 0})
    mended = ("c2", "write_file", '{"relative_path": "a.txt", "content": "fine\\n"}')
    async with run_world(
        *good_replies(),
        PoolReply(calls=[mended], finish="tool_calls"),
        PoolReply(text=WORK),
        PoolReply(text=PASS),
        node=node,
    ) as world:
        view = await world.drive()
        assert view.status is RunStatus.COMPLETED
        assert node.tree == {"a.txt": "fine\n"}
        assert [check.gate for check in view.checks] == ["pass"]
        await check_invariants(world, view.id)
    node = FakeNode(TREE, checks={"test": lambda tree: 1 if tree.get("a.txt") == "new\n" else 0})
    async with run_world(*good_replies(), node=node) as world:
        view = await world.drive(limits={"max_revisions": 0})
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("rejected", "checks_failed")
        assert [check.gate for check in view.checks] == ["worse"]
        assert node.tree == TREE
        await check_invariants(world, view.id)


async def test_a_void_pass_is_asked_again() -> None:
    """R83: a pass is bound to the content that was reviewed; when that changed, the review is asked again."""

    def meddle(request: object) -> PoolReply:
        return PoolReply(text=PASS)

    node = FakeNode(TREE)
    async with run_world(*good_replies()[:3], meddle, PoolReply(text=PASS), node=node) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        taken = node._snapshot
        snapshots = 0

        def snapshot(request: object) -> object:
            nonlocal snapshots
            snapshots += 1
            if snapshots == 3:  # before and after the review, then this one at finalizing
                node.edit(run_id, "a.txt", "slipped in\n")
            return taken(request)  # type: ignore[arg-type] - passed on as it came

        node._snapshot = snapshot  # type: ignore[method-assign,assignment] - a stand-in
        view = await world.supervise(supervisor)
        assert view.status is RunStatus.COMPLETED
        events = await world.events(view.id)
        assert types(events).count("review.decided") == 2
        assert node.tree == {"a.txt": "slipped in\n"}
        await check_invariants(world, view.id)


async def test_cancelled_while_a_tool_blocks() -> None:
    """S52, S57, S83, R1: the call is stopped on the node, the receipt names it, nothing is delivered."""
    async with run_world(PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls")) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await world.node.blocked.wait()
            assert world.cancel(run_id)
            assert not world.cancel(run_id)
            view = await driving
        assert view.terminal is not None
        assert (view.terminal.kind, view.terminal.class_, view.terminal.code) == (
            "cancelled",
            "cancelled",
            "caller",
        )
        assert view.cancel is not None
        assert view.cancel.complete
        tools = [item for item in view.cancel.items if item.kind == "tool"]
        assert [(item.how, item.pids) for item in tools] == [("term", (7,))]
        assert {"run", "stage"} <= {item.kind for item in view.cancel.items} | {"run"}
        assert world.node.tree == TREE
        assert view.cancel_requested
        events = types(await world.events(run_id))
        assert "run.cancel_requested" in events
        assert events.index("run.cancel_requested") < events.index("run.settling")
        await check_invariants(world, view.id)


async def test_cancelled_while_a_model_thinks() -> None:
    """S57: the attempt is closed as interrupted, and the bill says that it isn't whole."""
    gate = asyncio.Event()
    async with run_world(PoolReply(text=PLAN, gate=gate)) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        assert isinstance(world.pool, FakePool)
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await world.pool.begun.wait()
            world.cancel(run_id, by="operator")
            view = await driving
        assert view.terminal is not None
        assert view.terminal.code == "operator"
        assert view.usage is not None
        assert not view.usage.complete
        assert view.usage.coverage.interrupted == 1
        assert view.cost_usd is None
        assert world.node.opened == 0
        await check_invariants(world, view.id)


async def test_cancelled_while_queued() -> None:
    """R7: a queued run that is cancelled never gets a workspace or a model call, and costs 0."""
    async with run_world() as world:
        world.permits = type(world.permits)(max_running=1, max_queued=10)
        world.permits.ask("somebody else")
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await asyncio.sleep(0.01)
            world.cancel(run_id)
            view = await driving
        assert view.status is RunStatus.CANCELLED
        assert view.started_at is None
        assert view.usage is not None
        assert view.usage.total_tokens == 0
        assert view.cost_usd == 0
        assert world.node.requests == []
        assert world.permits.queued == 0
        await check_invariants(world, view.id)


async def test_cancelled_before_anybody_took_it_up() -> None:
    """R7: a cancel that comes before the run is driven lets nothing begin: no node is asked, no model."""
    async with run_world() as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        world.cancel(run_id)
        view = await world.supervise(supervisor)
        assert view.status is RunStatus.CANCELLED
        assert view.started_at is None
        assert world.node.requests == []
        types = [event.type for event in await world.events(run_id)]
        assert "run.cancel_requested" in types
        assert "work.registered" not in types
        await check_invariants(world, view.id)


async def test_the_queue_has_an_end() -> None:
    """A run that waits longer than max_queue_ms ends failed/budget, code queue, usage 0."""
    async with run_world() as world:
        world.permits = type(world.permits)(max_running=1, max_queued=10)
        world.permits.ask("somebody else")
        view = await world.drive(limits={"max_queue_ms": 20})
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("budget", "queue")
        settling = next(event for event in await world.events(view.id) if event.type == "run.settling")
        assert settling.data["detail"] == "the host had no place for it yet"
        assert view.terminal.limit is not None
        assert view.terminal.limit.cap == 20
        assert view.usage is not None
        assert view.usage.total_tokens == 0
        await check_invariants(world, view.id)


@pytest.mark.parametrize("_time", range(20))
async def test_equal_limits_end_as_budget(_time: int) -> None:
    """S42, S62, S63, S65, S76: 10 ms and 10 ms: budget, one call, one terminal, no cleanup."""
    async with run_world(PoolReply(text=PLAN, gate=asyncio.Event())) as world:
        view = await world.drive(limits={"wall_clock_ms": 10, "stage_timeout_ms": 10})
        assert view.terminal is not None
        assert (view.terminal.kind, view.terminal.class_) == ("failed", "budget")
        assert isinstance(world.pool, FakePool)
        assert len(world.pool.requests) == 1
        assert "tool" not in world.node.kinds()
        assert "cleanup" not in world.node.kinds()
        await check_invariants(world, view.id)


async def test_a_stage_timeout_is_a_timeout() -> None:
    """S43, S64: 10 ms of 1000 ms: timeout, code plan, one terminal; nobody waits for the request's."""
    for wall_clock_ms in (1_000, 3_600_000):
        async with run_world(PoolReply(text=PLAN, gate=asyncio.Event())) as world:
            view = await world.drive(limits={"wall_clock_ms": wall_clock_ms, "stage_timeout_ms": 10})
            assert view.terminal is not None
            ended = (view.terminal.class_, view.terminal.code, view.terminal.stage)
            assert ended == ("timeout", "plan", "plan")
            await check_invariants(world, view.id)


async def test_a_deadline_stops_a_blocked_tool() -> None:
    """R33, R55: the wall clock ends a run inside a tool call, and the call with it."""
    async with run_world(PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls")) as world:
        view = await world.drive(limits={"wall_clock_ms": 100})
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("budget", "wall_clock")
        assert "cancel" in world.node.kinds()
        await check_invariants(world, view.id)


@pytest.mark.parametrize(
    ("reply", "class_", "code"),
    [
        (ProviderError("no", reason="auth"), "provider", "auth"),
        (ProviderError("no", reason="context_length"), "provider", "context_length"),
        (ZeroDivisionError("oops"), "internal", "invariant"),
    ],
)
async def test_failures_of_the_first_call(reply: Exception, class_: str, code: str) -> None:
    """S14, S53, S72, R11, R14: one terminal, waiters 0, nothing opened; upstream text isn't in it."""
    async with run_world(reply) as world:
        view = await world.drive()
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == (class_, code)
        assert "oops" not in (view.terminal.message or "")
        assert world.node.opened == 0
        await check_invariants(world, view.id)


async def test_an_open_that_fails() -> None:
    """S66: a checkout that can't be opened is class workspace; its cleanup is owed all the same."""
    node = FakeNode(TREE)
    node.failures["open"] = NodeFailure(run_id="x", reason="storage_full", message="full")
    async with run_world(PoolReply(text=PLAN), node=node) as world:
        view = await world.drive()
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("workspace", "storage_full")
        assert world.node.kinds().count("cleanup") == 1


async def test_a_preparation_that_fails() -> None:
    """Preparation happens while queued: it ends the run failed/workspace with usage 0 and nothing opened."""
    node = FakeNode(TREE)
    node.failures["prepare"] = NodeFailure(run_id="x", reason="refused", message="home folder")
    async with run_world(node=node) as world:
        view = await world.drive()
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("workspace", "refused")
        assert "home folder" not in (view.terminal.message or "")
        settling = next(event for event in await world.events(view.id) if event.type == "run.settling")
        assert settling.data["detail"] == "home folder", "what the node said is on record"
        assert view.started_at is None
        assert view.usage is not None
        assert view.usage.total_tokens == 0
        await check_invariants(world, view.id)


async def test_a_tree_that_moved_is_a_conflict() -> None:
    """A touched path without its base bytes: nothing is applied; output, review and patch are kept."""
    async with run_world(*good_replies()[:3], lambda _: _move(world)) as world:
        view = await world.drive()
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("workspace", "delivery_conflict")
        assert view.output == "a.txt is right now."
        assert view.delivery is not None
        assert view.delivery.status == "conflict"
        assert world.node.tree == {"a.txt": "moved\n"}
        assert await _settling_detail(world, view.id) == "changed since the run's base: a.txt"
        await check_invariants(world, view.id)


def _move(world: RunWorld) -> PoolReply:
    world.node.tree["a.txt"] = "moved\n"
    return PoolReply(text=PASS)


async def _settling_detail(world: RunWorld, run_id: str) -> str | None:
    events = await world.store.read_events(run_id)
    (settling,) = [event for event in events if event.type == "run.settling"]
    return settling.data["detail"]


async def test_protected_paths() -> None:
    """An apply that touches a protected path is refused before its intent, unless it is allowed."""
    for allowed in (False, True):
        node = FakeNode(TREE, protected=("a.txt",))
        binding = Binding(
            name="reviewed", workspace="tree", delivery="apply", allow_override=("allow_protected",)
        )
        async with run_world(*good_replies(), node=node) as world:
            view = await world.drive(binding=binding, allow_protected=allowed)
            assert view.terminal is not None
            if allowed:
                assert view.terminal.kind == "completed"
                assert node.tree == {"a.txt": "new\n"}
            else:
                assert (view.terminal.class_, view.terminal.code) == ("workspace", "delivery_refused")
                assert node.tree == TREE
                assert "deliver" not in node.kinds()
                said = await _settling_detail(world, view.id)
                assert said is not None
                assert "protected paths: a.txt" in said
            assert view.patch is not None
            await check_invariants(world, view.id)


async def test_an_acknowledgement_is_waited_for() -> None:
    """S12, S77: completion waits for the answer; refused or none is delivery_refused."""
    for answer in (True, False, None):
        times = RunTimes(link_grace_ms=0, acknowledge_ms=50 if answer is None else 5_000)
        async with run_world(*good_replies(), times=times) as world:
            supervisor = await world.admit(acknowledge="required")
            run_id = next(iter(world.controls))
            control = world.controls[run_id]
            async with asyncio.TaskGroup() as group:
                driving = group.create_task(world.supervise(supervisor))
                while answer is not None and not driving.done() and not control.acknowledge(answer):
                    await asyncio.sleep(0.001)
                assert not control.acknowledge(not answer), "a second one, or one before it is asked for"
                view = await driving
            assert not control.acknowledge(True)
            assert view.terminal is not None
            assert (view.terminal.kind == "completed") == (answer is True)
            assert world.node.tree == ({"a.txt": "new\n"} if answer else TREE)
            await check_invariants(world, view.id)


async def test_direct_is_work_only() -> None:
    """Profile direct: no plan, no review, the same gate; its patch isn't reviewed."""
    binding = Binding(name="reviewed", workspace="tree", profile="direct")
    replies = (PoolReply(calls=[WRITE], finish="tool_calls"), PoolReply(text=WORK))
    async with run_world(*replies) as world:
        view = await world.drive(binding=binding)
        assert view.status is RunStatus.COMPLETED
        assert view.output == "Changed a.txt."
        assert view.review is None
        assert view.patch is not None
        assert not view.patch.reviewed
        assert view.delivery is not None
        assert (view.delivery.mode, view.delivery.status) == ("patch", "delivered")
        assert world.node.tree == TREE
        assert await world.store.read_artifact(view.id, "patch") is not None
        await check_invariants(world, view.id)


async def test_nothing_changed_is_skipped() -> None:
    """An empty patch is skipped, and the run completes."""
    read = ("c1", "read_file", '{"relative_path": "a.txt"}')
    async with run_world(
        PoolReply(text=PLAN),
        PoolReply(calls=[read], finish="tool_calls"),
        PoolReply(text=WORK),
        PoolReply(text=PASS),
    ) as world:
        view = await world.drive()
        assert view.status is RunStatus.COMPLETED
        assert view.delivery is not None
        assert view.delivery.status == "skipped"
        assert view.patch is not None
        assert view.patch.files == 0
        await check_invariants(world, view.id)


async def test_a_cancel_after_the_intent_changes_nothing() -> None:
    """R5: from the delivery intent on a cancel is answered, and the run ends by its own result."""
    node = FakeNode(TREE)
    node.gates["deliver"] = asyncio.Event()
    async with run_world(*good_replies(), node=node) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            while "deliver" not in node.kinds():
                await asyncio.sleep(0.001)
            assert not world.cancel(run_id)
            node.gates["deliver"].set()
            view = await driving
        assert view.status is RunStatus.COMPLETED
        assert node.tree == {"a.txt": "new\n"}
        assert view.cancel is None
        await check_invariants(world, view.id)


async def test_usage_can_be_required() -> None:
    """An incomplete bill ends indeterminate/usage only where the request says so."""
    for required in (None, "required"):
        gate = asyncio.Event()
        async with run_world(PoolReply(text=PLAN, gate=gate)) as world:
            view = await world.drive(usage=required, limits={"wall_clock_ms": 30})
            assert view.terminal is not None
            if required:
                assert (view.terminal.kind, view.terminal.code) == ("indeterminate", "missing_attempt_usage")
            else:
                assert (view.terminal.kind, view.terminal.class_) == ("failed", "budget")
            await check_invariants(world, view.id)


async def test_runs_side_by_side_do_not_mix() -> None:
    """S45, S49, S50, S75: equal call ids in parallel runs; one is cancelled, its peer completes."""
    node = FakeNode(TREE)
    async with run_world(node=node) as world:
        world.pool = FakePool(PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls"))
        blocked = await world.admit()
        first = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(blocked))
            await node.blocked.wait()
            world.pool = FakePool(*good_replies())
            peer = await world.drive()
            assert peer.status is RunStatus.COMPLETED
            world.cancel(first)
            view = await driving
        assert view.status is RunStatus.CANCELLED
        await check_invariants(world, peer.id)
        await check_invariants(world, view.id)


async def test_a_run_that_is_still_being_stopped_holds_up_nobody() -> None:
    """S50: another run of the same workspace starts and completes while a cancelled one isn't ended yet."""
    node, stopping = FakeNode(TREE), asyncio.Event()
    node.gates["cancel"] = stopping
    async with run_world(node=node) as world:
        world.pool = FakePool(PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls"))
        blocked = await world.admit()
        first = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(blocked))
            await node.blocked.wait()
            assert world.cancel(first)
            world.pool = FakePool(*good_replies())
            peer = await world.drive()
            assert peer.status is RunStatus.COMPLETED
            assert not driving.done(), "its tool call was still blocked"
            stopping.set()
            view = await driving
        assert view.status is RunStatus.CANCELLED
        await check_invariants(world, peer.id)
        await check_invariants(world, view.id)


async def test_an_operator_who_stops_a_stage_ends_the_run() -> None:
    """A stage that is cancelled by its work id ends the run cancelled, code operator."""
    async with run_world(PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls")) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await world.node.blocked.wait()
            assert world.registry.cancel(run_id, f"{run_id}.work-1")
            view = await driving
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("cancelled", "operator")
        await check_invariants(world, view.id)


async def test_an_operator_who_stops_a_tool_call_stops_that_call() -> None:
    """R33: a cancelled tool call is that call's result, and the run goes on."""
    async with run_world(
        PoolReply(text=PLAN),
        PoolReply(calls=[BLOCK], finish="tool_calls"),
        PoolReply(calls=[("c2", *WRITE[1:])], finish="tool_calls"),
        PoolReply(text=WORK),
        PoolReply(text=PASS),
    ) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await world.node.blocked.wait()
            assert world.registry.cancel(run_id, f"{run_id}.work-1.c1")
            view = await driving
        assert view.status is RunStatus.COMPLETED
        await check_invariants(world, view.id)


async def test_working_time_is_a_limit() -> None:
    """R54, R55: so much work ends the run in class budget, code working_time; waits don't count."""
    async with run_world(PoolReply(text=PLAN, gate=asyncio.Event())) as world:
        view = await world.drive(limits={"working_limit_ms": 30})
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("budget", "working_time")
        assert view.terminal.limit is not None
        assert view.terminal.limit.kind == "working_limit_ms"
        assert "stage.failed" in types(await world.events(view.id))
        await check_invariants(world, view.id)
    async with run_world(pool=_WaitingPool(*good_replies())) as world:
        view = await world.drive(limits={"working_limit_ms": 150})
        assert view.status is RunStatus.COMPLETED
        await check_invariants(world, view.id)


class _WaitingPool(FakePool):
    """Waits for a rate limit before each request."""

    async def request(self, request: Any, *, ledger: Any, **more: Any) -> Any:
        with ledger.waiting():
            await asyncio.sleep(0.06)
        return await super().request(request, ledger=ledger, **more)


async def test_what_a_review_changed_is_named_however_it_did() -> None:
    """S24: repairs are the paths that differ over the review: by a file tool, by a command, by anything."""
    node = FakeNode({"a.txt": "old\n", "b.txt": "old\n"})
    async with run_world(*good_replies()[:3], lambda _: _repair(world), node=node) as world:
        view = await world.drive()
        assert view.review is not None
        assert view.review.repairs == ("b.txt",)
        await check_invariants(world, view.id)


def _repair(world: RunWorld) -> PoolReply:
    world.node.edit(next(iter(world.controls)), "b.txt", "changed by a command\n")
    return PoolReply(text=PASS)


@pytest.mark.parametrize("answers", [True, False])
async def test_a_preparation_that_the_node_cannot_end_is_named(answers: bool) -> None:
    """R1, S57: what a cancel couldn't end while the run was queued is `abandoned`, and the end says so."""
    node = FakeNode(TREE)
    node.gates["prepare"] = asyncio.Event()
    if answers:
        node.failures["cancel"] = NodeFailure(run_id="x", reason="unavailable", message="it hangs")
    else:
        node.gates["cancel"] = asyncio.Event()
    times = RunTimes(link_grace_ms=20, drain_slack_ms=20)
    async with run_world(node=node, times=times) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            while not any(request.kind == "prepare" for request in node.requests):
                await asyncio.sleep(0)
            world.cancel(run_id)
            view = await driving
        assert view.terminal is not None
        assert (view.terminal.kind, view.terminal.code) == ("indeterminate", "not_stopped")
        said = "it hangs" if answers else "the node didn't answer in time"
        assert [work.label for work in view.abandoned] == [f"prepare: {said}"]
        assert view.cancel is not None
        assert not view.cancel.complete
        assert [item.how for item in view.cancel.items if item.label == "prepare"] == ["abandoned"]
