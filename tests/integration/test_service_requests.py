"""Every request of the protocol, on a real node: keeper, sandbox, git, receipts."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from git_repository import git, look, make_repository, write
from keeper_places import processes_with
from remit.contract import (
    ArtifactRequest,
    ArtifactStored,
    Cancelled,
    CancelRequest,
    ChecksDone,
    ChecksRequest,
    CleanupRequest,
    NodeFailure,
    OpenRequest,
    PrepareRequest,
    SnapshotRequest,
    ToolResponse,
)
from remit.workspaces._settings import CommandDefinition
from service_kit import FILES, Node, node_of, until


def nap(number: int) -> str:
    """A length of sleep that no other process's tests ask for, so that it is known by it."""
    return str(9_000_000 + os.getpid() * 10 + number)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo", FILES)


@pytest.mark.parametrize("isolation", ["overlay", "copy"])
async def test_a_whole_run(tmp_path: Path, root: Path, isolation: str) -> None:
    """S37, S44, S48: from prepare to cleanup; the user's tree changes at delivery only."""
    async with node_of(tmp_path, root, isolation=isolation) as node:
        prepared = await node.prepare()
        assert prepared.isolation == isolation
        (check,) = prepared.checks
        assert (check.id, check.base_exit, check.problem) == ("unittest", 1, None)
        assert "Be brief." in prepared.brief
        assert "on the base: exits 1" in prepared.brief
        assert {spec.name for spec in prepared.tools} >= {"read_file", "edit_file", "run_shell"}
        opened = await node.open()
        assert opened.root == str(root)
        stored = await node.ask(ArtifactRequest(run_id="run_1", name="plan", text="fix add"), ArtifactStored)
        assert stored.name == "plan"
        before = look(root, skip=())
        shown = await node.tool("read_file", relative_path="app.py")
        assert "return a - b" in shown.content
        edited = await node.tool("edit_file", relative_path="app.py", old="a - b", new="a + b")
        assert (edited.status, edited.changed) == ("success", ("app.py",))
        ran = await node.tool("run_shell", command="pwd && python3 -m unittest -q && git status --porcelain")
        assert ran.exit_code == 0, ran.content
        assert f"{root}\n" in ran.content
        assert " M app.py" in ran.content
        snapshot = await node.snapshot(end_leftovers=True)
        assert [(path.path, path.change, path.insertions) for path in snapshot.paths] == [
            ("app.py", "modified", 1)
        ]
        assert snapshot.files == 1
        assert snapshot.ignored_changed > 0
        assert "+    return a + b" in snapshot.patch
        done = await node.ask(ChecksRequest(run_id="run_1", remaining_ms=60_000), ChecksDone)
        assert [(c.id, c.base_exit, c.exit, c.gate) for c in done.checks] == [("unittest", 1, 0, "pass")]
        assert (await node.snapshot()).content_hash == snapshot.content_hash
        assert look(root, skip=()) == before
        delivered = await node.deliver(snapshot)
        assert (delivered.status, delivered.paths) == ("delivered", ("app.py",))
        assert "a + b" in (root / "app.py").read_text()
        assert git(root, "status", "--porcelain") == "M app.py"
        assert (await node.deliver(snapshot)).repeated
        cleaned = await node.cleanup()
        assert (cleaned.kept, cleaned.abandoned) == (False, ())
        assert (node.service.opened_count, node.service.cleaned_up_count) == (1, 1)
        assert list((tmp_path / "data/checkouts").iterdir()) == []
        undone = node.service.deliveries.undo("run_1", snapshot.content_hash)
        assert undone.status == "undone"
        assert look(root, skip=()) == before


async def test_preparing_again_uses_what_is_known(tmp_path: Path, root: Path) -> None:
    """S76: facts of an unchanged base are read, not made again; the brief has the same bytes."""
    async with node_of(tmp_path, root) as node:
        first = await node.prepare("run_1")
        second = await node.prepare("run_2")
        assert (first.cached, second.cached) == (False, True)
        assert second.brief == first.brief
        assert second.checks == first.checks
        write(root, {"app.py": "def add(a, b):\n    return a + b\n"})
        third = await node.prepare("run_3")
        assert not third.cached
        assert third.checks[0].base_exit == 0
        assert third.base != first.base


async def test_runs_that_come_together_share_the_preparation(tmp_path: Path, root: Path) -> None:
    """Runs that come together share one look at the tree, made after each of them asked."""
    async with node_of(tmp_path, root) as node:
        looked: list[str] = []
        pin = node.service._parts.bases.pin

        async def counting(*arguments: Any, **options: Any) -> Any:
            looked.append((root / "app.py").read_text())
            return await pin(*arguments, **options)

        node.service._parts.bases.pin = counting
        async with asyncio.TaskGroup() as group:
            first = group.create_task(node.prepare("run_first"))
            await until(lambda: bool(looked))
            write(root, {"app.py": "changed = 1\n"})
            rest = [group.create_task(node.prepare(f"run_{n}")) for n in range(20)]
        bases = {task.result().base for task in rest}
        assert len(looked) == 2
        assert len(bases) == 1
        assert "+" in bases.pop()
        assert first.result().checks[0].id == "unittest"


async def test_in_place(tmp_path: Path, root: Path) -> None:
    """In place the tree itself is worked on; what changed is still told against the base."""
    async with node_of(tmp_path, root) as node:
        opened = await node.open(isolation="in_place")
        assert opened.isolation == "in_place"
        await node.tool("write_file", relative_path="app.py", content="in place\n")
        await node.tool("run_shell", command="git status --porcelain; rm sub/inner.txt")
        assert (root / "app.py").read_text() == "in place\n"
        snapshot = await node.snapshot()
        assert {(path.path, path.change) for path in snapshot.paths} == {
            ("app.py", "modified"),
            ("sub/inner.txt", "deleted"),
        }
        assert "-    return a - b" in snapshot.patch
        await node.cleanup()
        assert (root / "app.py").read_text() == "in place\n"


async def test_the_base_is_the_one_that_was_pinned(tmp_path: Path, root: Path) -> None:
    """`open` uses the pin; a user who edits meanwhile gets a conflict, and keeps the edit."""
    async with node_of(tmp_path, root) as node:
        await node.open()
        write(root, {"app.py": "mine\n"})
        await node.tool("write_file", relative_path="app.py", content="theirs\n")
        await node.tool("write_file", relative_path="new.txt", content="n\n")
        snapshot = await node.snapshot()
        assert "moved:app.py" in snapshot.flags
        assert "-    return a - b" in snapshot.patch
        delivered = await node.deliver(snapshot)
        assert (delivered.status, delivered.paths) == ("conflict", ("app.py",))
        assert (root / "app.py").read_text() == "mine\n"
        assert not (root / "new.txt").exists()


async def test_a_tool_call_is_done_once(tmp_path: Path, root: Path) -> None:
    """R58: the same call again is answered from its receipt."""
    async with node_of(tmp_path, root) as node:
        await node.open()
        first = await node.tool("run_shell", call_id="c1", command="echo x >> log.txt; wc -l < log.txt")
        again = await node.tool("run_shell", call_id="c1", command="echo x >> log.txt; wc -l < log.txt")
        assert again.content == first.content
        assert again.receipt_id == first.receipt_id
        assert "1" in (await node.tool("run_shell", command="wc -l < log.txt")).content


async def test_cancel_of_one_call(tmp_path: Path, root: Path) -> None:
    """R1, S67: the answer comes when the processes are gone, with how and how fast; other calls go on."""
    async with node_of(tmp_path, root) as node, asyncio.TaskGroup() as group:
        await node.open()
        slow = node.tool_request("run_shell", command=f"echo begun > begun; sleep {nap(3)}", call_id="slow")
        other = node.tool_request("run_shell", command="sleep 2; echo still here", call_id="other")
        slow_task = group.create_task(node.ask(slow, ToolResponse))
        other_task = group.create_task(node.ask(other, ToolResponse))
        await until(lambda: bool(processes_with(nap(3))))
        began = time.monotonic()
        answer = await node.ask(
            CancelRequest(run_id="run_1", stage_id="work-1", tool_call_id="slow"), Cancelled
        )
        assert not processes_with(nap(3))
        assert time.monotonic() - began < 5
        (item,) = answer.items
        assert (item.tool_call_id, item.how) == ("slow", "term")
        assert item.pids
        assert answer.complete
        assert (await slow_task).status == "cancelled"
        done = await other_task
        assert "still here" in done.content
        ended = await node.ask(
            CancelRequest(run_id="run_1", stage_id="work-1", tool_call_id="slow"), Cancelled
        )
        assert ended.items[0].how == "already_ended"


async def test_cancel_of_everything(tmp_path: Path, root: Path) -> None:
    """R2, R33: all calls of a run end, those that ignore TERM too; the checkout stays usable."""
    async with node_of(tmp_path, root) as node, asyncio.TaskGroup() as group:
        await node.open()
        stubborn = f"trap '' TERM; (trap '' TERM; setsid sleep {nap(4)}) & sleep {nap(4)}; sleep {nap(4)}"
        calls = [
            node.tool_request("run_shell", command=text)
            for text in (f"sleep {nap(4)}", stubborn, "python3 -c 'while True: pass'")
        ]
        tasks = [group.create_task(node.ask(call, ToolResponse)) for call in calls]
        await until(lambda: len(processes_with(nap(4))) >= 3)
        answer = await node.ask(CancelRequest(run_id="run_1", grace_ms=300), Cancelled)
        assert answer.complete
        assert not processes_with(nap(4))
        assert {item.how for item in answer.items} == {"term", "kill"}
        assert [(await task).status for task in tasks] == ["cancelled"] * 3
        assert (await node.tool("run_shell", command="echo ok")).exit_code == 0


async def test_cancel_of_a_file_operation(tmp_path: Path, root: Path) -> None:
    """R55: a search that goes on is ended by a cancel like a command."""
    write(root, {"long.txt": "a" * 60 + "!\n"})
    async with node_of(tmp_path, root) as node, asyncio.TaskGroup() as group:
        await node.open()
        request = node.tool_request("search", pattern="(a|aa)+$", call_id="slow")
        task = group.create_task(node.ask(request, ToolResponse))
        await asyncio.sleep(0.5)
        assert not task.done()
        began = time.monotonic()
        answer = await node.ask(CancelRequest(run_id="run_1", tool_call_id="slow"), Cancelled)
        assert time.monotonic() - began < 5
        assert answer.items[0].how == "closed"
        assert (await task).status == "cancelled"
        assert (await node.tool("read_file", relative_path="app.py")).status == "success"


async def test_a_keeper_that_died_is_started_anew(tmp_path: Path, root: Path) -> None:
    """R57: what ran in it is lost and said so; the next run works."""
    async with node_of(tmp_path, root) as node, asyncio.TaskGroup() as group:
        await node.open()
        request = node.tool_request("run_shell", command=f"sleep {nap(7)}")
        task = group.create_task(node.service.handle(request))
        await until(lambda: bool(processes_with(nap(7))))
        keeper = await node.service.get_keeper()
        os.kill(keeper.pid, signal.SIGKILL)
        answer = await task
        assert isinstance(answer, NodeFailure)
        assert answer.reason == "lost"
        await until(lambda: not processes_with(nap(7)))
        assert (await node.cleanup()).kept is False
        await node.open("run_2")
        assert (await node.tool("run_shell", "run_2", command="echo ok")).exit_code == 0
        await node.cleanup("run_2")
        assert node.service.opened_count == node.service.cleaned_up_count == 2


async def test_git_in_a_repository_full_of_traps(tmp_path: Path, root: Path) -> None:
    """R35: a whole run on a repository whose config and attributes would run something: nothing does."""
    marker = tmp_path / "marker"
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\necho trapped >> {marker}\ncat\n")
    trap.chmod(0o755)
    for name in ("core.fsmonitor", "diff.external", "filter.t.clean", "filter.t.smudge", "diff.t.textconv"):
        git(root, "config", name, str(trap))
    git(root, "config", "core.hooksPath", str(tmp_path))
    (root / ".gitattributes").write_text("*.py filter=t diff=t\n")
    (root / "app.py").write_text("changed\n")
    async with node_of(tmp_path, root) as node:
        await node.open()
        await node.tool("write_file", relative_path="app.py", content="more\n")
        ran = await node.tool("run_shell", command="git add -A && git commit -qm x && git diff HEAD~1 --stat")
        assert ran.exit_code == 0
        snapshot = await node.snapshot()
        assert [path.path for path in snapshot.paths] == ["app.py"]
        assert (await node.deliver(snapshot)).status == "delivered"
        await node.cleanup()
    assert not marker.exists()


async def test_cancel_while_preparing(tmp_path: Path, root: Path) -> None:
    """R3: what runs on the base before the run has begun is ended by a cancel too."""
    command = CommandDefinition(id="slow", executable="sleep", args=(nap(5),))
    async with node_of(tmp_path, root, commands=(command,), checks=("slow",)) as node:
        request = PrepareRequest(run_id="run_1", workspace_ref="app")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(node.ask(request, NodeFailure))
            await until(lambda: bool(processes_with(nap(5))))
            answer = await node.ask(CancelRequest(run_id="run_1", grace_ms=300), Cancelled)
            assert answer.complete
        assert task.result().message == "it was cancelled"
        assert not processes_with(nap(5))
        assert list((tmp_path / "data/checkouts").iterdir()) == []


async def test_cancel_while_opening(tmp_path: Path, root: Path) -> None:
    """R3, R57: wherever an opening is broken off, nothing of its checkout is left."""
    folder = tmp_path / "data/checkouts"
    async with node_of(tmp_path, root) as node:
        for number in range(60):
            run_id = f"run_{number}"
            base = (await node.prepare(run_id)).base
            async with asyncio.TaskGroup() as group:
                request = OpenRequest(run_id=run_id, workspace_ref="app", base=base)
                task = group.create_task(node.service.handle(request))
                await asyncio.sleep(number % 30 / 1000)
                await node.ask(CancelRequest(run_id=run_id, grace_ms=0), Cancelled)
            assert task.result() is not None
            await node.cleanup(run_id)
            assert list(folder.iterdir()) == [], number
        await asyncio.sleep(0.5)
        assert list(folder.iterdir()) == []
        assert node.service.opened_count == node.service.cleaned_up_count


async def test_checks_that_are_worse(tmp_path: Path, root: Path) -> None:
    """A check that passed on the base and fails now is worse, and the end of its output is told."""
    write(root, {"app.py": "def add(a, b):\n    return a + b\n"})
    async with node_of(tmp_path, root) as node:
        await node.open()
        await node.tool("write_file", relative_path="app.py", content="def add(a, b):\n    return 0\n")
        done = await node.ask(ChecksRequest(run_id="run_1", remaining_ms=60_000), ChecksDone)
        assert [(c.base_exit, c.exit, c.gate) for c in done.checks] == [(0, 1, "worse")]
        assert "AssertionError: 0 != 3" in done.broken[0]


async def test_what_cannot_be_started_is_said_first(tmp_path: Path, root: Path) -> None:
    """R11: a missing program is named before any model is asked; it isn't kept as a fact."""
    commands = (CommandDefinition(id="test", executable="no-such-program"),)
    async with node_of(tmp_path, root, commands=commands, checks=("test",)) as node:
        prepared = await node.prepare()
        assert any("no-such-program" in note for note in prepared.notes)
        assert "no-such-program" in (prepared.checks[0].problem or "")
        assert prepared.checks[0].base_exit is None
        assert not (await node.prepare("run_2")).cached


async def test_stale_generations_are_refused(tmp_path: Path, root: Path) -> None:
    """R61: once a later owner is known, the earlier one changes nothing, also after a restart."""
    async with node_of(tmp_path, root) as node:
        await node.open()
        newer = node.tool_request("write_file", relative_path="a", content="new").model_copy(
            update={"generation": 2}
        )
        assert (await node.ask(newer, ToolResponse)).status == "success"
        older = node.tool_request("write_file", relative_path="a", content="old")
        assert (await node.ask(older, NodeFailure)).reason == "stale_generation"
        for request in (
            SnapshotRequest(run_id="run_1"),
            CleanupRequest(run_id="run_1"),
            CancelRequest(run_id="run_1"),
            ChecksRequest(run_id="run_1", remaining_ms=1000),
        ):
            assert (await node.ask(request, NodeFailure)).reason == "stale_generation"
    async with node_of(tmp_path, root) as node:
        request = PrepareRequest(run_id="run_1", workspace_ref="app")
        assert (await node.ask(request, NodeFailure)).reason == "stale_generation"


async def test_runs_do_not_see_each_other(tmp_path: Path, root: Path) -> None:
    """R38, S49, S81: four runs on one workspace at once, with the same call ids, don't meet."""
    before = look(root, skip=())

    async def one(node: Node, run_id: str) -> str:
        await node.open(run_id)
        written = await node.tool("write_file", run_id, "same", relative_path="note.txt", content=run_id)
        assert written.status == "success"
        command = "git add -A && git commit -qm mine && sleep 1 && cat note.txt && git log --oneline | wc -l"
        ran = await node.tool("run_shell", run_id, "same2", command=command)
        snapshot = await node.snapshot(run_id)
        assert [path.path for path in snapshot.paths] == ["note.txt"]
        await node.cleanup(run_id)
        return ran.content

    async with node_of(tmp_path, root) as node:
        async with asyncio.TaskGroup() as group:
            tasks = {f"run_{n}": group.create_task(one(node, f"run_{n}")) for n in range(4)}
        for run_id, task in tasks.items():
            assert task.result().startswith(f"{run_id}2\n"), task.result()
        assert node.service.opened_count == node.service.cleaned_up_count == 4
    assert look(root, skip=()) == before


async def test_protected_and_frozen_paths(tmp_path: Path, root: Path) -> None:
    """A patch that touches them is flagged; delivery refuses it, frozen ones whatever was allowed."""
    async with node_of(tmp_path, root, freeze=("sub/**",)) as node:
        await node.open()
        await node.tool("write_file", relative_path="AGENTS.md", content="obey\n")
        snapshot = await node.snapshot()
        assert snapshot.protected == ("AGENTS.md",)
        refused = await node.deliver(snapshot)
        assert (refused.status, refused.refused, refused.paths) == ("skipped", True, ("AGENTS.md",))
        assert (await node.deliver(snapshot, allow_protected=True)).status == "delivered"
        await node.tool("write_file", relative_path="sub/inner.txt", content="x\n")
        second = await node.snapshot()
        assert second.frozen == ("sub/inner.txt",)
        assert (await node.deliver(second, allow_protected=True)).refused


async def test_a_kept_checkout(tmp_path: Path, root: Path) -> None:
    """The tree of a kept checkout can be looked at; it counts as cleaned up, and later sweeps leave it."""
    async with node_of(tmp_path, root) as node:
        await node.open()
        await node.tool("write_file", relative_path="kept.txt", content="kept\n")
        cleaned = await node.cleanup(keep=True)
        assert cleaned.kept
        assert cleaned.folder
        assert (Path(cleaned.folder) / "upper/kept.txt").read_text() == "kept\n"
        assert (node.service.opened_count, node.service.cleaned_up_count) == (1, 1)
    old = tmp_path / "data/checkouts/old"
    old.mkdir()
    for folder in (old, Path(cleaned.folder)):
        os.utime(folder, (1, 1))
    async with node_of(tmp_path, root):
        assert not old.exists()
        assert (Path(cleaned.folder) / "upper/kept.txt").exists()


async def test_a_workspace_that_keeps_nothing(tmp_path: Path, root: Path) -> None:
    """The node's owner has the last word: whatever a run asks for, its checkout is removed."""
    async with node_of(tmp_path, root, preserve="never") as node:
        opened = await node.open()
        assert opened is not None
        cleaned = await node.cleanup(keep=True)
        assert (cleaned.kept, cleaned.folder) == (False, None)
    assert not list((tmp_path / "data/checkouts").iterdir())


async def test_a_delivery_outlives_the_node(tmp_path: Path, root: Path) -> None:
    """S66: what was reviewed can be delivered after a restart, when the checkout is long gone."""
    async with node_of(tmp_path, root) as node:
        await node.open()
        await node.tool("write_file", relative_path="late.txt", content="late\n")
        snapshot = await node.snapshot()
        await node.cleanup()
    async with node_of(tmp_path, root) as node:
        assert (await node.deliver(snapshot)).status == "delivered"
        assert (root / "late.txt").read_text() == "late\n"


async def test_runs_that_nobody_asks_for_are_forgotten(tmp_path: Path, root: Path) -> None:
    """S66: a run that was prepared and never opened is owed no cleanup; the node doesn't keep it for ever."""
    async with node_of(tmp_path, root) as node:
        await node.prepare("run_quiet")
        await node.open("run_open")
        for run in node.service._parts.runs.values():
            run.seen_s -= 10_000
        await node.prepare("run_new")
        assert set(node.service._parts.runs) == {"run_open", "run_new"}
        await node.cleanup("run_open")


async def test_requests_out_of_order_are_clear_failures(tmp_path: Path, root: Path) -> None:
    """R11: a request that can't be carried out is answered, never left open."""
    async with node_of(tmp_path, root) as node:
        tool = node.tool_request("read_file", relative_path="app.py")
        assert (await node.ask(tool, NodeFailure)).reason == "lost"
        assert (await node.ask(SnapshotRequest(run_id="r"), NodeFailure)).reason == "lost"
        unknown = PrepareRequest(run_id="r", workspace_ref="nowhere")
        assert "nowhere" in (await node.ask(unknown, NodeFailure)).message
        wrong = PrepareRequest(run_id="r", workspace_ref="app", subdir="../..")
        assert (await node.ask(wrong, NodeFailure)).reason == "refused"
        absent = PrepareRequest(run_id="r", workspace_ref="app", subdir="absent")
        assert "absent" in (await node.ask(absent, NodeFailure)).message
        await node.prepare("r")
        other = OpenRequest(run_id="r", workspace_ref="app", base="git:000000000000")
        assert (await node.ask(other, NodeFailure)).reason == "refused"
        assert (await node.cleanup("r")).kept is False
        later = PrepareRequest(run_id="r2", workspace_ref="app", version=99)
        assert "version" in (await node.ask(later, NodeFailure)).message


async def test_a_sub_folder_is_the_working_folder(tmp_path: Path, root: Path) -> None:
    """Commands start in the working folder; paths and patch are relative to the git root."""
    async with node_of(tmp_path, root / "sub") as node:
        opened = await node.open()
        assert opened.root == str(root)
        ran = await node.tool("run_shell", command="pwd; echo x >> inner.txt")
        assert f"{root}/sub\n" in ran.content
        assert [path.path for path in (await node.snapshot()).paths] == ["sub/inner.txt"]


async def test_a_folder_without_git(tmp_path: Path) -> None:
    """No repository: the same work, and a patch of what isn't left behind by tools."""
    root = tmp_path / "plain"
    write(root, FILES)
    async with node_of(tmp_path, root) as node:
        prepared = await node.prepare()
        assert prepared.base.startswith("tree:")
        await node.open()
        await node.tool("run_shell", command="python3 -m unittest -q; sed -i s/-/+/ app.py; rm sub/inner.txt")
        snapshot = await node.snapshot()
        assert {(path.path, path.change) for path in snapshot.paths} == {
            ("app.py", "modified"),
            ("sub/inner.txt", "deleted"),
        }
        assert (await node.deliver(snapshot)).status == "delivered"
        assert not (root / "sub").exists()


async def test_closing_a_node_ends_everything(tmp_path: Path, root: Path) -> None:
    """R12: a node that goes away leaves no process and no checkout."""
    async with node_of(tmp_path, root) as node, asyncio.TaskGroup() as group:
        await node.open()
        request = node.tool_request("run_shell", command=f"sleep {nap(6)}")
        group.create_task(node.service.handle(request))
        await until(lambda: bool(processes_with(nap(6))))
        await node.service.aclose()
        assert not processes_with(nap(6))
        assert list((tmp_path / "data/checkouts").iterdir()) == []
