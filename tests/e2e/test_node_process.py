"""A host whose node is a process of its own: the same runs; and what happens when one of the two dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from test_serve_process import BODY, exit_of, serving, wait_for_tool

from door_kit import PLAN, REVIEW, REVIEWED, WORK, DoorWorld
from remit.contract import Cancelled, CancelRequest, CleanupRequest, OpenRequest, PrepareRequest, ToolRequest
from remit.errors import MisuseError, NodeError
from remit.host import Host
from remit.node_agent import NodeProcess, NodeState, NodeTimes, _child, setup_of
from remit.primitives import SystemClock
from remit.testing import route_by_stage
from remit.workspaces import WorkspaceSettings
from whole_kit import (
    KEY_VARIABLE,
    MEND,
    NO_CHECKS,
    Ended,
    World,
    alive,
    descendants_of,
    differing,
    gone_within,
    look_closely,
    nonce,
    planned,
    processes_with,
    reviewed,
    shell,
)

DAEMONS = (
    "(setsid bash -c 'trap \"\" TERM HUP; exec -a {nonce}-d sleep 600' >/dev/null 2>&1 &);"
    " trap '' TERM; bash -c 'exec -a {nonce}-c sleep 600' & exec -a {nonce} sleep 600"
)


@asynccontextmanager
async def host_of(world: World) -> AsyncGenerator[Host]:
    """A host over this world, with its node beside it."""
    async with Host(world.config()[0], door_delivery="apply", node_process=True) as host:
        yield host


async def until(there: object, *, within_s: float = 60) -> None:
    """Wait for something that another process does."""
    assert callable(there)
    async with asyncio.timeout(within_s):
        while not there():
            await asyncio.sleep(0.01)


async def until_told(host: Host, wanted: Callable[[set[int]], bool]) -> None:
    """Wait until the node says that a call has such processes: they come and go while it begins."""
    async with asyncio.timeout(60):
        while True:
            calls = await host.local_node.running_calls()
            if any(wanted(set(call.pids)) for call in calls):
                return
            await asyncio.sleep(0.01)


# ---- a host and its node


async def test_a_run_and_then_its_node_dies_in_the_next_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """R11, R57: kill -9 of the node ends its runs for the true cause, and all they had; the host goes on."""
    world.workspace = dict(NO_CHECKS)
    word = nonce()
    caplog.set_level(logging.WARNING, logger="remit.node")
    async with host_of(world) as host:
        with pytest.raises(MisuseError):
            host.node  # noqa: B018 - it raises
        first_pid = host.local_node.pid
        assert first_pid is not None
        assert first_pid != os.getpid()
        for file in ("cmdline", "environ"):
            assert world.fake.api_key.encode() not in Path(f"/proc/{first_pid}/{file}").read_bytes()
        before = look_closely(world.root)

        world.fake.script(*route_by_stage(plan=[planned()], work=[MEND, shell(DAEMONS.format(nonce=word))]))
        run = await host.start(world.request())
        await until(lambda: len(processes_with(word)) >= 3)
        await until_told(host, lambda pids: len(pids) >= 3 and pids <= set(processes_with(word)))
        os.kill(first_pid, signal.SIGKILL)
        assert await host.local_node.running_calls() == ()
        lost = await Ended.of(host, run)

        assert lost.ending == ("failed", "workspace", "lost")
        lost.check_story()
        completed = lost.of_type("tool.completed")
        assert [data["status"] for data in completed] == ["success", "outcome_unknown"]
        assert gone_within(word, 0), "the next node isn't begun before all that hung on the last one is gone"
        assert lost.view.patch is not None, "what the checkout held is read by the next node"
        assert (lost.view.patch.files, lost.view.patch.reviewed) == (1, False)
        assert look_closely(world.root) == before
        assert dict(host.residencies) == {}

        world.fake.script(*reviewed(MEND))
        ended = await Ended.of(host, await host.start(world.request()))
        assert ended.ending == ("completed", None, None)
        ended.check_story()
        assert host.local_node.state is NodeState.READY
        second_pid = host.local_node.pid
        assert second_pid not in (None, first_pid)
        below = {second_pid, *descendants_of(second_pid or 0)}
    assert differing(before, look_closely(world.root)) == {"calc/__init__.py"}
    assert alive(below) == set()
    said = [record.getMessage() for record in caplog.records if record.name == "remit.node"]
    assert any("killed by SIGKILL" in line for line in said)
    assert f"the node is back (pid {second_pid})" in said


async def test_a_cancel_s_receipt_names_the_processes(world: World) -> None:
    """R57: the receipt of a run in a tool says over the socket, too, how and which processes were ended."""
    world.workspace = dict(NO_CHECKS)
    word = nonce()
    world.fake.script(*route_by_stage(plan=[planned()], work=[shell(DAEMONS.format(nonce=word))]))
    async with host_of(world) as host:
        run = await host.start(world.request())
        await until(lambda: len(processes_with(word)) >= 3)
        ours = set(processes_with(word))
        outcome = await run.cancel(reason="enough")
        assert gone_within(word, 0), "the answer comes when they are gone"
        ended = await Ended.of(host, run)
        ended.check_story()
        assert ended.ending == ("cancelled", "cancelled", "caller")
        receipt = outcome.run.cancel
        assert receipt is not None
        (item,) = [item for item in receipt.items if item.kind == "tool"]
        assert item.how == "kill"
        assert item.pids
        assert receipt.complete
        assert ours & set(item.pids)


async def test_the_node_sees_no_key_that_no_workspace_names(world: World) -> None:
    """R77: a provider's key stays with the host, unless a workspace asks for that very variable."""
    config, _ = world.config()
    assert config.environment[KEY_VARIABLE] == world.fake.api_key
    assert KEY_VARIABLE not in config.node_environment()
    assert "PATH" in config.node_environment()
    world.workspace = {"environment_allowlist": [KEY_VARIABLE]}
    assert world.config()[0].node_environment()[KEY_VARIABLE] == world.fake.api_key


# ---- `remit serve`

_SECRET = "sk-of-the-host-alone"


class _Keyed(DoorWorld):
    """A host that is started with a provider's key among its variables."""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "SOME_API_KEY": _SECRET}


@pytest.mark.parametrize("stuck", [False, True], ids=["well", "stuck"])
async def test_kill_9_of_the_host(tmp_path: Path, stuck: bool) -> None:
    """R57, R58: nothing outlives the host: not its node, were it stuck, nor what ran there."""
    word = nonce()
    tool = {
        "stage": "work",
        "tool_calls": [{"name": "run_shell", "arguments": {"command": DAEMONS.format(nonce=word)}}],
    }
    world = DoorWorld(home=tmp_path, replies=(PLAN, tool, WORK, REVIEW))
    async with serving(world) as served, served.client() as client:
        (node,) = (await client.get("/api/v1/nodes")).json()["data"]
        assert (node["state"], node["connected"]) == ("ready", True)
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        await until(lambda: len(processes_with(word)) >= 3)
        below = descendants_of(served.process.pid)
        assert node["pid"] in below
        if stuck:
            os.kill(node["pid"], signal.SIGSTOP)
        served.process.kill()
        await until(lambda: not alive(below) and not processes_with(word), within_s=30)
    async with serving(world) as again, again.client() as client:
        terminal = (await client.get(f"/api/v1/runs/{run_id}")).json()["terminal"]
        assert (terminal["kind"], terminal["class"]) == ("indeterminate", "lost")
        again.process.send_signal(signal.SIGTERM)
        code, said = await exit_of(again.process)
        assert code == 0
        assert "node local: process" in said


async def test_the_first_node_shares_memory_and_no_variables(tmp_path: Path) -> None:
    """R77: forked from its host, it has what both load, but not what the host was started with."""
    world = _Keyed(home=tmp_path, replies=REVIEWED)
    async with serving(world) as served, served.client() as client:
        (first,) = (await client.get("/api/v1/nodes")).json()["data"]
        process = Path("/proc", str(first["pid"]))
        assert process.joinpath("cmdline").read_bytes().startswith(b"remit: node of ")
        variables = process.joinpath("environ").read_bytes()
        assert _SECRET.encode() not in variables
        assert _SECRET.encode() in Path(f"/proc/{served.process.pid}/environ").read_bytes()
        shared = re.search(r"Shared_Dirty: +(\d+) kB", process.joinpath("smaps_rollup").read_text())
        assert shared is not None
        assert int(shared[1]) > 8_000, "a fresh interpreter shares nothing that was written"
        opened = {os.readlink(handle) for handle in process.joinpath("fd").iterdir()}
        assert not {name for name in opened if "api-key" in name or "serve.lock" in name}

        os.kill(first["pid"], signal.SIGKILL)
        run = await client.post("/api/v1/runs", json=BODY, params={"wait_ms": 60_000})
        assert run.json()["status"] == "completed", "the next node is there in time"
        (second,) = (await client.get("/api/v1/nodes")).json()["data"]
        assert second["pid"] != first["pid"]
        assert b"remit.node_agent" in Path(f"/proc/{second['pid']}/cmdline").read_bytes()


_FORKS = """
import os, threading, time
from remit.node_agent._spare import forget_spare, fork_spare, take_spare

def children():
    return len(open(f"/proc/self/task/{os.getpid()}/children").read().split())

def stay(_):
    time.sleep(600)
    return 0

fork_spare(stay, keep=lambda _: True)
forked = children()
forget_spare()
left = children(), take_spare() is None
ended = threading.Event()
threading.Thread(target=ended.wait).start()
fork_spare(stay, keep=lambda _: True)
print(forked, *left, children())
ended.set()
"""


def test_a_node_that_no_host_took_is_gone() -> None:
    """A host that isn't opened after all leaves no process, nor a zombie; beside a thread none is forked."""
    done = subprocess.run(
        (sys.executable, "-c", _FORKS), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("1 0 True 0\n", "")


async def test_term_of_all_processes_of_the_service(tmp_path: Path) -> None:
    """R62: a manager that tells every process of the service at once doesn't cut off what may go on."""
    short = {"stage": "work", "tool_calls": [{"name": "run_shell", "arguments": {"command": "sleep 2"}}]}
    world = DoorWorld(home=tmp_path, replies=(PLAN, short, WORK, REVIEW))
    async with serving(world, "--drain", "60s") as served, served.client() as client:
        (node,) = (await client.get("/api/v1/nodes")).json()["data"]
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        await wait_for_tool(client, run_id)
        below = descendants_of(served.process.pid)
        for pid in (served.process.pid, node["pid"]):
            os.kill(pid, signal.SIGTERM)
        text = (await client.get(f"/api/v1/runs/{run_id}/events")).text
        assert "event: run.completed" in text
        code, _ = await exit_of(served.process, within_s=60)
        assert code == 0
        assert alive(below) == set()


# ---- the process by itself


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "app"
    made.mkdir()
    (made / "a.txt").write_text("old\n")
    return made


@asynccontextmanager
async def node_of(root: Path, times: NodeTimes | None = None) -> AsyncGenerator[NodeProcess]:
    """A node in its process, with one workspace."""
    workspace = WorkspaceSettings(ref="app", root=root, shell=True, checks=())
    setup = setup_of(
        {"app": workspace},
        data=root.parent / "data",
        environment={"PATH": os.environ["PATH"], "HOME": str(root.parent), "ODD": "\udcff"},
    )
    async with NodeProcess(setup, clock=SystemClock(), times=times) as node:
        await node.wait_ready()
        yield node


def tool(name: str, call_id: str, arguments: str = "{}") -> ToolRequest:
    return ToolRequest(
        run_id="run_1",
        stage_id="work-1",
        tool_call_id=call_id,
        name=name,
        arguments=arguments,
        timeout_ms=600_000,
        remaining_ms=600_000,
    )


async def test_twenty_tools_at_once_with_one_blocked(root: Path) -> None:
    """S51, R57: a blocked tool delays no other; its cancel says how, when and who, all gone by then."""
    word = nonce()
    async with asyncio.timeout(110), node_of(root) as node:
        link = node.link
        prepared = await link.prepare(PrepareRequest(run_id="run_1", workspace_ref="app"))
        await link.open(OpenRequest(run_id="run_1", workspace_ref="app", base=prepared.base))
        command = f'{{"command": "trap \\"\\" TERM; exec -a {word} sleep 600"}}'
        async with asyncio.TaskGroup() as group:
            blocked = group.create_task(link.tool(tool("run_shell", "blocked", command)))
            await until(lambda: processes_with(word))
            others = [group.create_task(link.tool(tool("list_files", f"c{number}"))) for number in range(20)]
            await asyncio.wait(others)
            assert {task.result().content for task in others} == {"a.txt\n"}
            assert not blocked.done()
            stop = CancelRequest(run_id="run_1", stage_id="work-1", tool_call_id="blocked", grace_ms=50)
            stopped = await link.cancel(stop)
            assert not processes_with(word)
        assert isinstance(stopped, Cancelled)
        (item,) = stopped.items
        assert (stopped.complete, item.how, item.tool_call_id) == (True, "kill", "blocked")
        assert item.ms >= 50
        assert item.pids
        assert blocked.result().status == "cancelled"
        again = await link.tool(tool("run_shell", "blocked", command))
        assert again.receipt_id == blocked.result().receipt_id, "a repeat gets the stored result"
        assert (await link.cleanup(CleanupRequest(run_id="run_1"))).abandoned == ()
        assert link.waiters.dropped == 0


async def test_a_stuck_node_is_killed_and_followed_by_another(root: Path) -> None:
    """A node that says nothing for long is killed, whatever it was asked, and another one is started."""
    times = NodeTimes(beat_s=0.1, silent_beats=4, ready_within_s=60)
    async with asyncio.timeout(110), node_of(root, times) as node:
        first = node.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        await until(lambda: node.restarts == 1)
        assert (await node.link.cancel(CancelRequest(run_id="run_1"))).complete
        assert (node.state, node.pid != first) == (NodeState.READY, True)
        assert alive({first}) == set()


async def test_a_node_that_cannot_start(tmp_path: Path, root: Path) -> None:
    """What hinders it is told to who opens the host; nothing is left of it, and no other is tried."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "node").write_text("in the way")
    with pytest.raises(NodeError, match="the node doesn't start: ") as caught:
        async with node_of(root):
            pytest.fail("it came up")
    assert caught.value.reason == "unavailable"
    assert len(caught.value.message) > len("the node doesn't start: ")


async def test_an_end_while_it_starts(root: Path) -> None:
    """Closed before it was ever ready, it is gone at once, with no word of a failure."""
    setup = setup_of({}, data=root.parent / "data", environment={})
    begun = time.monotonic()
    async with asyncio.timeout(60), NodeProcess(setup, clock=SystemClock()) as node:
        await until(lambda: node.pid is not None)
        pid = node.pid
        assert pid is not None
    assert time.monotonic() - begun < 30
    assert alive({pid}) == set()
    with pytest.raises(NodeError) as caught:
        await node.wait_ready()
    assert caught.value.reason == "lost"


async def test_a_pipe_that_others_hold_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a dead node had started may have its stderr: it is waited for a while, not for ever."""
    monkeypatch.setattr(_child, "_LAST_WORDS_S", 0.2)
    with contextlib.ExitStack() as stack:
        async with asyncio.timeout(60), _child.NodeChild() as child:
            held = stack.enter_context(Path(f"/proc/{child.pid}/fd/2").open("wb"))
        assert not held.closed
        assert alive({child.pid}) == set()
