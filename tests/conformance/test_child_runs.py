"""Child runs, from the host's side: one call, one run, one budget, one bill, one way to stop it all."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from remit.admission import Binding
from remit.contract import RunStatus, RunView, ToolRequest
from remit.models import ModelRequest
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import FakePool, PoolReply
from remit.testing._run_world import BLOCK, PASS, PLAN, WORK, RunWorld, run_world
from remit.work import WorkId

DELEGATING = Binding(name="reviewed", workspace="tree", delivery="apply", delegate=True)
REVISE = '{"decision": "revise", "output": "", "summary": "Once more."}'
REJECT = '{"decision": "reject", "output": "", "summary": "Not this."}'


def say(text: str) -> PoolReply:
    return PoolReply(text=text)


def use(name: str, call_id: str = "c1", **arguments: Any) -> PoolReply:
    return PoolReply(calls=[(call_id, name, json.dumps(arguments))], finish="tool_calls")


def write(path: str, content: str, call_id: str = "c1") -> PoolReply:
    return use("write_file", call_id, relative_path=path, content=content)


def delegate(prompt: str = "Write b.txt.", call_id: str = "d1", **more: Any) -> PoolReply:
    return use("delegate", call_id, prompt=prompt, **more)


def child(*work: PoolReply, verdict: str = PASS) -> list[PoolReply]:
    """The replies of a whole child run whose work stage takes these before it reports."""
    return [say(PLAN), *work, say(WORK), say(verdict)]


def parent(*work: PoolReply) -> list[PoolReply]:
    return [say(PLAN), *work, say(WORK), say(PASS)]


async def children_of(world: RunWorld, run_id: str) -> list[RunView]:
    """Every run below this one, oldest first."""
    runs, _ = await world.store.list_runs(limit=100)
    below = [run.view for run in reversed(runs) if run.view.root_run_id == run_id and run.view.id != run_id]
    return sorted(below, key=lambda view: view.created_at)


def results_of(world: RunWorld, stage_id: str, run_id: str) -> list[dict[str, Any]]:
    """What the model was shown of its last round's calls, in the last request of a stage."""
    assert isinstance(world.pool, FakePool)
    shown: dict[str, dict[str, Any]] = {}
    for request in world.pool.requests:
        if (request.run_id, request.stage_id) != (run_id, stage_id):
            continue
        for message in request.messages:
            for result in getattr(message, "results", ()):
                shown[result.tool_call_id] = {"status": result.status, "content": result.content}
    return list(shown.values())


async def drive(world: RunWorld, **request: Any) -> RunView:
    return await world.drive(binding=DELEGATING, **request)


async def test_a_child_is_a_run_of_its_own_whose_changes_land_in_its_parents() -> None:
    """A child has its own session, log and terminal; what its review passed is in the parent's checkout."""
    replies = parent(write("a.txt", "new\n"), delegate(), use("read_file", "c3", relative_path="b.txt"))
    replies[3:3] = child(use("read_file", relative_path="a.txt"), write("b.txt", "by the child\n", "c2"))
    async with run_world(*replies) as world:
        view = await drive(world)
        assert view.status is RunStatus.COMPLETED
        assert world.node.tree == {"a.txt": "new\n", "b.txt": "by the child\n"}
        (below,) = await children_of(world, view.id)
        assert (below.session_id, below.parent_run_id, below.root_run_id) == (below.id, view.id, view.id)
        assert (below.profile, below.status) == ("reviewed", RunStatus.COMPLETED)
        assert below.patch is not None
        assert below.patch.files == 1
        events = [event.type for event in await world.events(below.id)]
        assert events[0] == "run.queued"
        assert events[-1] == "run.completed"
        assert events.count("run.settling") == 1
        assert results_of(world, "work-1", below.id)[0]["content"] == "new\n"
        told = json.loads(results_of(world, "work-1", view.id)[1]["content"])
        assert told == {
            "run_id": below.id,
            "status": "completed",
            "output": "a.txt is right now.",
            "applied": ["b.txt"],
        }
        assert results_of(world, "work-1", view.id)[2]["content"] == "by the child\n"
        calls = [event for event in await world.events(view.id) if event.type.startswith("tool.")]
        names = [(event.type, event.data["name"]) for event in calls]
        assert ("tool.started", "delegate") in names
        assert ("tool.completed", "delegate") in names
        link = [
            (event.type, event.work_id, event.data.get("how"))
            for event in await world.events(view.id)
            if event.parent_work_id == f"{view.id}.work-1.d1"
        ]
        assert link == [("work.registered", below.id, None), ("work.finished", below.id, "closed")]
        assert world.node.opened == world.node.cleaned == 2
        assert world.registry.active_count() == 0


async def test_the_bill_of_the_root_is_every_call_once() -> None:
    """R25: plan, work with two children (one of them nested in the other), a review that sends back once."""
    nested = child(write("c.txt", "3\n"))
    first = [say(PLAN), delegate("Write c.txt."), *nested, write("b.txt", "2\n", "c2"), say(WORK), say(PASS)]
    replies = [
        say(PLAN),
        delegate("Write b.txt."),
        *first,
        say(WORK),
        say(REVISE),
        write("a.txt", "1\n", "c9"),
        say(WORK),
        say(PASS),
    ]
    async with run_world(*replies) as world:
        view = await drive(world)
        assert view.status is RunStatus.COMPLETED
        assert world.node.tree == {"a.txt": "1\n", "b.txt": "2\n", "c.txt": "3\n"}
        outer, inner = await children_of(world, view.id)
        assert (outer.parent_run_id, inner.parent_run_id) == (view.id, outer.id)
        assert isinstance(world.pool, FakePool)
        calls = {run.id: sum(r.run_id == run.id for r in world.pool.requests) for run in (view, outer, inner)}
        below = {view.id: sum(calls.values()), outer.id: calls[outer.id] + calls[inner.id]}
        for run in (view, outer, inner):
            assert run.usage is not None
            assert run.usage.own.input_tokens == 10 * calls[run.id]
            assert run.usage.own.output_tokens == 5 * calls[run.id]
            all_calls = below.get(run.id, calls[run.id])
            assert run.usage.subtree.total_tokens == 15 * all_calls
            assert run.usage.total_tokens == 15 * all_calls
            assert run.usage.coverage.attempts == all_calls
            assert run.usage.complete
        assert sum(calls.values()) == world.pool.sent == len(replies)


async def test_a_cancel_of_the_root_reaches_every_descendant() -> None:
    """R1, R3: a cancel goes down to a nested child's last process; each has its terminal and receipt."""
    replies = [
        say(PLAN),
        delegate(),
        say(PLAN),
        delegate(),
        say(PLAN),
        PoolReply(calls=[BLOCK], finish="tool_calls"),
    ]
    async with run_world(*replies) as world:
        supervisor = await world.admit(binding=DELEGATING)
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await world.node.blocked.wait()
            world.cancel(run_id, by="operator")
            view = await driving
        outer, inner = await children_of(world, run_id)
        for run in (view, outer, inner):
            assert run.terminal is not None
            assert (run.terminal.kind, run.terminal.code) == ("cancelled", "operator")
            ends = [event.type for event in await world.events(run.id)]
            assert ends.count("run.cancelled") == 1
            assert ends[-1] == "run.cancelled"
            assert run.cancel is not None
            assert run.cancel.complete
            told = {item.work_id: item.how for item in run.cancel.items}
            assert told[f"{inner.id}.work-1.c1"] == "term", "each run of the tree names what was stopped"
        assert view.cancel is not None
        kinds = [item.work_id for item in view.cancel.items]
        assert inner.id in kinds
        assert world.registry.active_count() == 0
        assert world.node.opened == world.node.cleaned == 3
        assert world.link.pending_count() == 0


async def test_a_child_hangs_below_the_call_that_started_it() -> None:
    """B63-B66: the link names the parent's session; stopping the call's item stops the child alone."""
    replies = [
        say(PLAN),
        delegate(),
        say(PLAN),
        PoolReply(calls=[BLOCK], finish="tool_calls"),
        write("a.txt", "after\n", "c2"),
        say(WORK),
        say(PASS),
    ]
    async with run_world(*replies) as world:
        supervisor = await world.admit(binding=DELEGATING)
        run_id = next(iter(world.controls))
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await world.node.blocked.wait()
            (below,) = await children_of(world, run_id)
            flagged = world.registry.cancel(run_id, f"{run_id}.work-1.d1")
            assert WorkId(below.id, below.id) in flagged
            view = await driving
        assert view.status is RunStatus.COMPLETED
        (ended,) = await children_of(world, run_id)
        assert ended.terminal is not None
        assert ended.cancel is not None
        assert (ended.terminal.kind, ended.terminal.code) == ("cancelled", "operator")
        assert ended.cancel.reason == "the call that started it was stopped"
        assert f"{below.id}.work-1.c1" in {item.work_id for item in ended.cancel.items}
        assert results_of(world, "work-1", run_id)[0]["status"] == "cancelled"
        assert world.node.tree == {"a.txt": "after\n"}


@pytest.mark.parametrize(("verdict", "code"), [(REJECT, "rejected"), (REVISE, "revisions_exhausted")])
async def test_what_did_not_pass_is_not_applied(verdict: str, code: str) -> None:
    """S37: a child whose review doesn't pass changes nothing; its parent is told why and goes on."""
    replies = parent(delegate(), write("a.txt", "mine\n", "c2"))
    tail = [] if verdict is REJECT else [write("b.txt", "again\n", "c5"), say(WORK), say(REVISE)]
    replies[2:2] = [*child(write("b.txt", "bad\n"), verdict=verdict), *tail]
    async with run_world(*replies) as world:
        view = await drive(world)
        assert view.status is RunStatus.COMPLETED
        assert world.node.tree == {"a.txt": "mine\n"}
        told = results_of(world, "work-1", view.id)[0]
        assert told["status"] == "failed"
        assert json.loads(told["content"])["code"] == code
        assert not [r for r in world.node.requests if isinstance(r, ToolRequest) and r.name == "delegate"]


async def test_a_conflict_is_typed_and_applies_nothing() -> None:
    """What moved in the parent's checkout meanwhile isn't overwritten: the call's status is `conflict`."""
    node = FakeNode({"a.txt": "old\n", "b.txt": "old\n"})

    def meddle(request: ModelRequest) -> PoolReply:
        node.edit(root[0], "b.txt", "meddled\n")
        return say(PASS)

    root: list[str] = []
    replies: list[Any] = parent(delegate(), write("a.txt", "mine\n", "c2"))
    replies[2:2] = [*child(write("b.txt", "child\n"))[:-1], meddle]
    async with run_world(*replies, node=node) as world:
        supervisor = await world.admit(binding=DELEGATING)
        root.append(next(iter(world.controls)))
        view = await world.supervise(supervisor)
        assert view.status is RunStatus.COMPLETED
        told = results_of(world, "work-1", view.id)[0]
        assert told["status"] == "conflict"
        assert json.loads(told["content"])["applied"] == []
        assert world.node.tree["b.txt"] == "meddled\n"


async def test_the_number_of_children_is_bounded_over_the_tree() -> None:
    """R55: `max_children` counts every run below the root; one more is refused, and nothing is started."""
    nested = child(write("c.txt", "3\n"))
    first = [
        say(PLAN),
        delegate(),
        *nested,
        delegate("More.", "d2"),
        write("b.txt", "2\n"),
        say(WORK),
        say(PASS),
    ]
    replies = [say(PLAN), delegate(), *first, delegate("More.", "d2"), say(WORK), say(PASS)]
    async with run_world(*replies) as world:
        view = await drive(world, limits={"max_children": 2})
        assert view.status is RunStatus.COMPLETED
        outer, inner = await children_of(world, view.id)
        assert (outer.limits.max_children, inner.limits.max_children) == (1, 0)
        assert results_of(world, "work-1", outer.id)[1]["status"] == "denied"
        first_result, refused = results_of(world, "work-1", view.id)
        assert first_result["content"].endswith("[2 of 2 child runs were started (max_children)]")
        warnings = [event.data for event in await world.events(view.id) if event.type == "limit.warning"]
        assert [(told["kind"], told["value"], told["cap"]) for told in warnings] == [("max_children", 2, 2)]
        assert refused["status"] == "denied"
        assert "max_children is 2" in refused["content"]


async def test_depth_is_two() -> None:
    """A child of a child gets no `delegate`; a call of it all the same is a tool that isn't there."""
    nested = [say(PLAN), delegate(), write("c.txt", "3\n"), say(WORK), say(PASS)]
    replies = parent(delegate())
    replies[2:2] = [say(PLAN), delegate(), *nested, say(WORK), say(PASS)]
    async with run_world(*replies) as world:
        view = await drive(world)
        assert view.status is RunStatus.COMPLETED
        outer, inner = await children_of(world, view.id)
        assert isinstance(world.pool, FakePool)
        told = {
            (request.run_id, request.stage_id): {spec.name for spec in request.tools}
            for request in world.pool.requests
        }
        assert "delegate" in told[view.id, "work-1"]
        assert "delegate" in told[outer.id, "work-1"]
        assert "delegate" not in told[inner.id, "work-1"]
        assert not any(
            "delegate" in told[run.id, stage] for run in (view, outer) for stage in ("plan", "review-1")
        )
        assert results_of(world, "work-1", inner.id)[0]["status"] == "not_found"


async def test_one_budget_over_the_tree() -> None:
    """A child spends from its parent's tokens: what it used is gone, and it can't pass what is left."""
    replies = parent(delegate(), write("a.txt", "mine\n", "c2"))
    replies[2:2] = [
        PoolReply(text=PLAN, input_tokens=3_000, output_tokens=2_000),
        *child(write("b.txt", "x\n"))[1:],
    ]
    async with run_world(*replies) as world:
        view = await drive(world, limits={"max_total_tokens": 12_000})
        (below,) = await children_of(world, view.id)
        left = below.limits.max_total_tokens
        assert left is not None
        assert left == 12_000 - 2 * 15
        assert below.status is RunStatus.COMPLETED
        assert view.status is RunStatus.COMPLETED
    replies = parent(delegate())
    replies[2:2] = [PoolReply(text=PLAN, input_tokens=9_000, output_tokens=2_000)]
    async with run_world(*replies[:3], say(WORK), say(WORK)) as world:
        view = await drive(world, limits={"max_total_tokens": 12_000})
        (below,) = await children_of(world, view.id)
        for run in (below, view):
            assert run.terminal is not None
            assert (run.terminal.class_, run.terminal.code) == ("budget", "tokens")


async def test_limits_of_a_child_are_the_narrower_ones() -> None:
    """Limits = min(own, what is left): a model narrows them, and never widens."""
    wide = {"max_tool_rounds": 500, "wall_clock_ms": 10**9}
    replies = parent(delegate(limits={"max_tool_rounds": 3}), delegate(call_id="d2", limits=wide))
    replies[3:3] = child(write("c.txt", "y\n"))
    replies[2:2] = child(write("b.txt", "x\n"))
    async with run_world(*replies) as world:
        view = await drive(world, limits={"wall_clock_ms": 60_000, "max_tool_rounds": 20})
        first, second = await children_of(world, view.id)
        assert first.limits.max_tool_rounds == 3
        assert second.limits.max_tool_rounds == 20
        assert 30_000 < second.limits.wall_clock_ms < 60_000


async def test_a_child_needs_no_place() -> None:
    """A host with one place drives a tree of runs: a child goes on in its parent's place."""
    replies = parent(delegate())
    replies[2:2] = child(write("b.txt", "x\n"))
    async with run_world(*replies) as world:
        world.permits = type(world.permits)(max_running=1, max_queued=0)
        view = await drive(world)
        assert view.status is RunStatus.COMPLETED
        assert world.permits.running == 0


@pytest.mark.parametrize(
    "arguments",
    [
        "{}",
        '{"prompt": " "}',
        '{"prompt": 3}',
        '{"prompt": "x", "y": 1}',
        "[1]",
        '{"prompt": "x", "limits": {"max_children": -1}}',
    ],
)
async def test_wrong_arguments_start_nothing(arguments: str) -> None:
    """R31: what can't be read is that call's refusal; no child is stored."""
    bad = PoolReply(calls=[("d1", "delegate", arguments)], finish="tool_calls")
    async with run_world(*parent(bad, write("a.txt", "mine\n", "c2"))) as world:
        view = await drive(world)
        assert view.status is RunStatus.COMPLETED
        assert await children_of(world, view.id) == []
        assert results_of(world, "work-1", view.id)[0]["status"] == "invalid_arguments"


async def test_without_leave_there_is_no_such_tool() -> None:
    """A binding that doesn't say `delegate = true` offers none."""
    async with run_world(*parent(delegate(), write("a.txt", "mine\n", "c2"))) as world:
        view = await world.drive()
        assert results_of(world, "work-1", view.id)[0]["status"] == "not_found"
        assert await children_of(world, view.id) == []


async def test_a_deadline_of_the_parent_ends_the_child_first() -> None:
    """S44: when the parent's time runs out its child has its terminal, and only then the parent ends."""
    replies = [say(PLAN), delegate(), say(PLAN), PoolReply(calls=[BLOCK], finish="tool_calls")]
    async with run_world(*replies) as world:
        view = await drive(world, limits={"wall_clock_ms": 600})
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("budget", "wall_clock")
        (below,) = await children_of(world, view.id)
        assert below.terminal is not None
        assert below.cancel is not None
        assert (below.terminal.kind, below.terminal.code) == ("cancelled", "deadline")
        assert below.cancel.reason == "the time of the run that started it ran out"
        assert below.ended_at is not None
        assert view.ended_at is not None
        assert below.ended_at <= view.ended_at
        assert world.registry.active_count() == 0
        assert world.node.opened == world.node.cleaned == 2


async def test_a_cancel_while_a_child_is_being_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """R11: a child that was stored when its parent's cancel came has its terminal, before its parent."""
    async with run_world(say(PLAN), delegate()) as world:
        supervisor = await world.admit(binding=DELEGATING)
        run_id = next(iter(world.controls))
        submit = world.store.submit

        async def cancelled_meanwhile(submission: Any) -> Any:
            stored = await submit(submission)
            world.cancel(run_id)
            await asyncio.sleep(0.05)
            return stored

        monkeypatch.setattr(world.store, "submit", cancelled_meanwhile)
        view = await world.supervise(supervisor)
        assert view.status is RunStatus.CANCELLED
        (below,) = await children_of(world, run_id)
        assert below.status is RunStatus.CANCELLED
        assert below.ended_at is not None
        assert view.ended_at is not None
        assert below.ended_at <= view.ended_at
        assert world.registry.active_count() == 0
