"""The single reviewed request: what the checklist says of it and no other test proves yet."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from remit.config import load_config
from remit.contract import (
    CancelRequest,
    CleanupRequest,
    NodeFailure,
    NodeRequest,
    NodeResponse,
    OpenRequest,
    RunEnded,
    RunStatus,
    RunView,
    ToolRequest,
    ToolResponse,
)
from remit.engine import EmbeddedEngine
from remit.errors import AlreadyDecided, NodeError
from remit.events import TERMINAL_TYPES, Event, NewEvent, terminal_type
from remit.nodes import InProcessLink, WaitKey
from remit.runs import Feed, RunControl, fold_event
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import FakePool, PoolReply
from remit.testing._run_world import BLOCK, PLAN, WRITE, good_replies, run_world
from remit.workspaces import CommandDefinition, WorkspaceSettings

TREE = {"a.txt": "old\n"}


async def test_one_executor_runs_requests_and_receives_continuations() -> None:
    """S1: the link that a run's requests go out on takes the tool answers in, each for its waiter."""
    async with run_world(*good_replies()) as world:
        view = await world.drive()
        assert view.status is RunStatus.COMPLETED
        assert [kind for kind in world.node.kinds() if kind == "tool"] == ["tool"]
        assert world.link.waiters.dropped == 0
        stray = ToolResponse(
            run_id=view.id, stage_id="work-1", tool_call_id="c1", status="success", receipt_id="r"
        )
        key = WaitKey(view.id, "tool", "work-1", "c1")
        assert not world.link.waiters.deliver(key, stray), "its waiter is gone"


async def test_a_call_reaches_the_node_under_the_models_own_id() -> None:
    """S44, S48: request id, stage id and the model's tool call id unchanged, its arguments too; once."""
    async with run_world(*good_replies()) as world:
        view = await world.drive()
        asked = [request for request in world.node.requests if isinstance(request, ToolRequest)]
        call_id, name, arguments = WRITE
        assert [(one.run_id, one.stage_id, one.tool_call_id, one.name, one.arguments) for one in asked] == [
            (view.id, "work-1", call_id, name, arguments)
        ]


@pytest.mark.parametrize("end", ["success", "stage failure", "cancel", "budget", "timeout"])
async def test_no_waiter_is_left_however_a_run_ends(end: str) -> None:
    """S53, S72: pending is 0 by the time that the wait has returned, read at once, without clearing."""
    blocked = (PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls"))
    limits = {"budget": {"wall_clock_ms": 150}, "timeout": {"stage_timeout_ms": 150}}.get(end)
    replies = good_replies() if end == "success" else blocked
    if end == "stage failure":
        replies = (PoolReply(text=PLAN), PoolReply(calls=[WRITE], finish="tool_calls"), PoolReply(text="No."))
    async with run_world(*replies) as world:
        supervisor = await world.admit(limits={"max_corrections": 1, **(limits or {})})
        run_id = next(iter(world.controls))
        if end == "stage failure":
            assert isinstance(world.pool, FakePool)
            world.pool._replies += [PoolReply(text="No."), PoolReply(text="No.")]
        async with asyncio.TaskGroup() as group:
            driven = group.create_task(world.supervise(supervisor))
            if end in ("cancel", "budget", "timeout"):
                await world.node.blocked.wait()
                assert world.link.pending_count() == 1
            if end == "cancel":
                world.cancel(run_id)
            view = await driven
            assert world.link.pending_count() == 0
        assert view.terminal is not None
        assert (
            view.terminal.class_
            == {
                "success": None,
                "stage failure": "invalid_output",
                "cancel": "cancelled",
                "budget": "budget",
                "timeout": "timeout",
            }[end]
        )


async def test_a_link_and_a_workspace_are_both_needed() -> None:
    """S6: a connected node without the workspace can't serve it, nor a workspace without a node."""
    node = FakeNode(TREE)
    node.failures["prepare"] = NodeFailure(run_id="x", reason="unavailable", message="no such workspace")
    async with run_world(node=node) as world:
        view = await world.drive()
        assert view.terminal is not None
        assert (view.terminal.class_, view.terminal.code) == ("workspace", "unavailable")
    closed = InProcessLink(FakeNode(TREE))
    with pytest.raises(NodeError) as caught:
        await closed.cancel(CancelRequest(run_id="run_1"))
    assert caught.value.reason == "lost"


async def test_the_host_knows_no_path_of_the_node() -> None:
    """S8: requests name a workspace by ref alone; its root is what the node says, in the node's own form."""
    node = FakeNode(TREE)
    opened = node._open

    def elsewhere(request: OpenRequest) -> Any:
        return opened(request).model_copy(update={"root": "C:\\work\\app"})

    node._open = elsewhere
    async with run_world(*good_replies(), node=node) as world:
        view = await world.drive()
        assert view.status is RunStatus.COMPLETED
        assert all("root" not in type(request).model_fields for request in node.requests)


def test_what_a_workspace_definition_holds() -> None:
    """S9: ref, root, operations, named commands, an environment allow-list and four limits."""
    workspace = WorkspaceSettings.model_validate(
        {
            "ref": "app",
            "root": "/srv/app",
            "operations": ["read", "command"],
            "commands": [{"id": "test", "executable": "pytest", "args": ["-q"]}],
            "environment_allowlist": ["LANG"],
            "max_read_bytes": 1,
            "max_write_bytes": 2,
            "max_output_bytes": 3,
            "max_command_timeout_ms": 4,
        }
    )
    assert workspace.get_command("test") == CommandDefinition(id="test", executable="pytest", args=("-q",))
    assert set(workspace.operations) == {"read", "command"}
    bounds = (workspace.max_read_bytes, workspace.max_write_bytes, workspace.max_output_bytes)
    assert (*bounds, workspace.max_command_timeout_ms) == (1, 2, 3, 4)
    with pytest.raises(ValidationError):
        WorkspaceSettings.model_validate({"ref": "app", "root": "/srv/app", "operations": ["delete"]})


# ---- starting and waiting


@pytest.mark.parametrize("trouble", ["blocks", "fails", "cancels"])
async def test_start_waits_for_nothing(trouble: str) -> None:
    """S10, S61: starting returns at once and without error; what goes wrong shows only to whoever waits."""
    replies: dict[str, Any] = {
        "blocks": PoolReply(text=PLAN, gate=asyncio.Event()),
        "fails": ZeroDivisionError("a model that breaks"),
        "cancels": asyncio.CancelledError(),
    }
    pool = FakePool(replies[trouble]) if trouble != "cancels" else _CancellingPool()
    async with run_world(pool=pool) as world:
        supervisor = await world.admit(limits={"wall_clock_ms": 300})
        context = supervisor._context
        run_id = context.stored.view.id
        engine = EmbeddedEngine(
            world.store,
            epoch=world.epoch,
            make_context=lambda stored, control: replace(context, stored=stored, control=control),
        )
        async with engine:
            control = engine.start(run_id)
            assert not control.ended.is_set()
            view = await control.wait()
        assert view.status is RunStatus.FAILED
        assert view.terminal is not None
        assert (
            view.terminal.class_ == {"blocks": "budget", "fails": "internal", "cancels": "provider"}[trouble]
        )


class _CancellingPool(FakePool):
    """A provider whose call is cancelled from below, while its run is alive."""

    async def request(self, request: Any, **more: Any) -> Any:
        raise asyncio.CancelledError


async def drain(feed: Feed, run_id: str) -> list[Event]:
    return [event async for event in feed.follow(run_id)]


async def test_progress_is_a_finite_stream() -> None:
    """S11, S15: it closes after its one terminal, also where the parent was cancelled."""
    for cancelled in (False, True):
        replies = (PoolReply(text=PLAN), PoolReply(calls=[BLOCK], finish="tool_calls"))
        async with run_world(*(replies if cancelled else good_replies())) as world:
            supervisor = await world.admit()
            run_id = next(iter(world.controls))
            feed = supervisor._context.feed
            async with asyncio.timeout(20), asyncio.TaskGroup() as group:
                watching = group.create_task(drain(feed, run_id))
                driving = group.create_task(world.supervise(supervisor))
                if cancelled:
                    await world.node.blocked.wait()
                    world.cancel(run_id)
                view = await driving
                events = await watching
            stored = [event for event in events if event.seq is not None]
            assert [event.seq for event in stored] == list(range(1, len(stored) + 1))
            ends = [event for event in stored if event.type in TERMINAL_TYPES]
            assert ends == [stored[-1]]
            assert ends[0].data == view.to_json()


async def test_a_viewer_who_never_reads_holds_up_nobody() -> None:
    """S16: a stream that is opened and not read delays neither its run nor a peer, and stays whole."""
    async with run_world() as world:
        world.pool = FakePool(*good_replies())
        first = await world.admit()
        feed = first._context.feed
        lazy = feed.follow(first._context.stored.view.id)
        await anext(lazy)
        view = await world.supervise(first)
        world.pool = FakePool(*good_replies())
        world.node.tree.update(TREE)
        peer = await world.drive()
        assert (view.status, peer.status) == (RunStatus.COMPLETED, RunStatus.COMPLETED)
        async with asyncio.timeout(10):
            late = [event async for event in lazy]
        assert late[-1].type in TERMINAL_TYPES


async def test_waiting_after_the_stream_tells_the_same() -> None:
    """S17: who waits after draining the progress gets the same outcome, as often as asked."""
    async with run_world(*good_replies()) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        view = await world.supervise(supervisor)
        events = await drain(supervisor._context.feed, run_id)
        control = world.controls[run_id]
        assert RunView.model_validate(events[-1].data) == view == await control.wait() == await control.wait()


# ---- ends


async def test_who_ran_the_stages_writes_no_terminal() -> None:
    """S59, S60, S68: with the parent cancelled the stages raise; the one terminal is the supervisor's."""
    async with run_world(PoolReply(text=PLAN, gate=asyncio.Event())) as world:
        supervisor = await world.admit()
        run_id = next(iter(world.controls))
        assert isinstance(world.pool, FakePool)
        async with asyncio.TaskGroup() as group:
            driving = group.create_task(world.supervise(supervisor))
            await world.pool.begun.wait()
            before = [event.type for event in await world.events(run_id)]
            world.cancel(run_id, by="deadline")
            view = await driving
        assert view.terminal is not None
        assert (view.terminal.kind, view.terminal.code) == ("cancelled", "deadline")
        events = await world.events(run_id)
        after = [event.type for event in events][len(before) :]
        failed = [event.data for event in events if event.type == "stage.failed"]
        assert [(data["class"], data["code"]) for data in failed] == [("cancelled", "deadline")]
        assert [kind for kind in after if kind.startswith("run.")] == [
            "run.cancel_requested",
            "run.settling",
            "run.cancelled",
        ]
        assert "stage.completed" not in after


async def test_the_first_terminal_wins() -> None:
    """S68: a second terminal is refused, whoever brings it."""
    async with run_world(*good_replies()) as world:
        view = await world.drive()
        stored = await world.store.find_run(view.id)
        assert stored is not None
        again = NewEvent(type=terminal_type("failed"), payload=RunEnded(run=view))
        with pytest.raises(AlreadyDecided):
            await world.store.finish(view.id, stored.generation, [again])
        assert (await world.store.find_run(view.id)) == stored


# ---- the node link


def test_each_side_understands_its_own_list_only() -> None:
    """S74: the host sends requests and reads responses, the node the reverse; neither parses the other's."""
    requests: TypeAdapter[Any] = TypeAdapter(NodeRequest)
    responses: TypeAdapter[Any] = TypeAdapter(NodeResponse)
    kinds = {"prepare", "open", "artifact", "tool", "cancel", "checks", "snapshot", "deliver", "cleanup"}
    schema = requests.json_schema()
    assert set(schema["discriminator"]["mapping"]) == kinds
    assert kinds.isdisjoint(responses.json_schema()["discriminator"]["mapping"])
    asked = CleanupRequest(run_id="run_1").to_json()
    answered = NodeFailure(run_id="run_1", reason="refused", message="no").to_json()
    assert requests.validate_python(asked) == CleanupRequest(run_id="run_1")
    assert responses.validate_python(answered).message == "no"
    for side, message in ((requests, answered), (responses, asked)):
        with pytest.raises(ValidationError):
            side.validate_python(message)


async def test_the_host_always_asks() -> None:
    """S74: over a whole run the node says nothing that it wasn't asked for: one answer a request."""
    async with run_world(*good_replies()) as world:
        answers = 0
        deliver = world.link.waiters.deliver

        def counting(*args: Any) -> bool:
            nonlocal answers
            answers += 1
            return deliver(*args)

        world.link.waiters.deliver = counting  # type: ignore[method-assign] - a spy of this test
        await world.drive()
        assert answers == len(world.node.requests)


async def test_an_execution_and_its_words() -> None:
    """S84: progress, wait, state and acknowledge; stage and state are one printable vocabulary.

    A progress item names the stage that is reached, and only the last one holds a terminal.
    """
    for offered in ("wait", "acknowledge", "ask"):
        assert callable(getattr(RunControl(), offered))
    assert callable(Feed.follow)
    words = [str(status) for status in RunStatus]
    assert words == [
        "queued",
        "planning",
        "working",
        "reviewing",
        "finalizing",
        "settling",
        "completed",
        "failed",
        "cancelled",
        "indeterminate",
    ]
    async with run_world(*good_replies()) as world:
        supervisor = await world.admit()
        (run_id,) = world.controls
        view = await world.supervise(supervisor)
        state: RunView | None = None
        reached: list[str] = []
        for event in await drain(supervisor._context.feed, run_id):
            if event.seq is None:
                continue
            state = fold_event(state, event)
            assert (state.terminal is None) == (event.type not in TERMINAL_TYPES)
            if event.type == "stage.started":
                assert event.data["status"] == str(state.status)
            if str(state.status) not in reached:
                reached.append(str(state.status))
        assert state == view
        assert reached == words[:7]


def test_a_nodes_record_holds_its_definitions(tmp_path: Path) -> None:
    """S6, S9: a configured node has an alias, a platform and any number of workspaces, each by its ref."""
    for name in ("app", "lib"):
        (tmp_path / name).mkdir()
    file = tmp_path / "remit.toml"
    file.write_text(
        f"""
        [nodes.local]
        alias = "builder"
        platform = "darwin"
        [[nodes.local.workspaces]]
        ref = "app"
        root = "{tmp_path / "app"}"
        operations = ["read"]
        [[nodes.local.workspaces]]
        ref = "lib"
        root = "{tmp_path / "lib"}"
        max_read_bytes = 7
        """
    )
    config = load_config(environment={"HOME": str(tmp_path)}, folder=tmp_path, named=file)
    assert set(config.workspaces) == {"app", "lib"}
    assert config.workspaces["app"].operations == ("read",)
    assert config.workspaces["lib"].max_read_bytes == 7
