"""A run that goes on where another one stopped, on a real node: base, kept checkout, patch, delivery."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from git_repository import git, look, make_repository, write
from remit.contract import NodeFailure, Opened, OpenRequest, Prepared, PrepareRequest
from remit.workspaces._kept import KeepLimits
from remit.workspaces._sweeping import RUN_FOLDERS_BYTES, sweep_node
from remit.workspaces.keeper._storage import remove_tree
from service_kit import FILES, Node, node_of, until

MORE: dict[str, str | bytes] = {
    "gone.txt": "gone\n",
    "deep/a.txt": "a\n",
    "deep/b.txt": "b\n",
    "tool.sh": "x\n",
}
_DAY_S = 24 * 3_600


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo", FILES | MORE | {".gitignore": "cache/\n"})


async def stop_early(node: Node, run_id: str = "run_1", *, keep: bool = True, **fields: Any) -> Prepared:
    """A run that changes a bit of everything and is put away."""
    opened = await node.open(run_id, **fields)
    assert opened.root == str(node.root)
    script = (
        "printf 'half\\n' > half.txt && rm gone.txt && rm -r deep && mkdir deep && echo c > deep/c.txt"
        " && chmod +x tool.sh && ln -s half.txt link && mkdir cache && echo kept > cache/x"
        " && printf 'def add(a, b):\\n    return a * b\\n' > app.py && touch -d '2001-01-01' half.txt"
        " && if [ -d .git ]; then git add half.txt && git commit -qm halfway; fi"
    )
    ran = await node.tool("run_shell", run_id, command=script)
    assert ran.exit_code == 0, ran.content
    await node.snapshot(run_id, end_leftovers=True)
    assert (await node.cleanup(run_id, keep=keep)).kept == keep
    return await node.prepare(run_id + "_again", **{k: v for k, v in fields.items() if k != "isolation"})


async def go_on(node: Node, earlier: str, run_id: str, **fields: Any) -> Prepared:
    prepared = await node.prepare(run_id, continues=earlier, **fields)
    asked = OpenRequest(run_id=run_id, workspace_ref="app", base=prepared.base, continues=earlier)
    await node.ask(asked, Opened)
    return prepared


async def refused(node: Node, earlier: str, run_id: str = "run_late", **fields: Any) -> NodeFailure:
    request = PrepareRequest(run_id=run_id, workspace_ref="app", continues=earlier, **fields)
    return await node.ask(request, NodeFailure)


def set_age(path: Path, moment: float) -> None:
    os.utime(path, (moment, moment))


CHANGED = {
    ("app.py", "modified"),
    ("deep/a.txt", "deleted"),
    ("deep/b.txt", "deleted"),
    ("deep/c.txt", "added"),
    ("gone.txt", "deleted"),
    ("half.txt", "added"),
    ("link", "added"),
    ("tool.sh", "mode"),
}


@pytest.mark.parametrize("isolation", ["overlay", "copy"])
async def test_a_run_goes_on_with_what_was_kept(tmp_path: Path, root: Path, isolation: str) -> None:
    """It starts with all that the earlier run did, and its patch over the same base holds both."""
    before = look(root, skip=())
    async with node_of(tmp_path, root, isolation=isolation) as node:
        first = await stop_early(node)
        second = await go_on(node, "run_1", "run_2")
        assert (second.base, second.isolation, second.brief_sha256) == (
            first.base,
            isolation,
            first.brief_sha256,
        )
        began = await node.snapshot("run_2")
        assert {(path.path, path.change) for path in began.paths} == CHANGED
        seen = await node.tool(
            "run_shell", "run_2", command="ls -A deep; cat cache/x; readlink link; git log -1 --format=%s"
        )
        assert seen.content.split()[:4] == ["c.txt", "kept", "half.txt", "halfway"], seen.content
        await node.tool("write_file", "run_2", relative_path="half.txt", content="whole\n")
        await node.tool("run_shell", "run_2", command="rm deep/c.txt && echo gone > gone.txt")
        snapshot = await node.snapshot("run_2", end_leftovers=True)
        changed = CHANGED - {("gone.txt", "deleted"), ("deep/c.txt", "added")}
        assert {(path.path, path.change) for path in snapshot.paths} == changed
        assert look(root, skip=()) == before
        assert (await node.deliver(snapshot, "run_2")).status == "delivered"
        assert (root / "half.txt").read_text() == "whole\n"
        assert "a * b" in (root / "app.py").read_text()
        assert not (root / "deep").exists()
        assert os.access(root / "tool.sh", os.X_OK)
        await node.cleanup("run_2")


@pytest.mark.parametrize("isolation", ["overlay", "copy"])
async def test_what_was_kept_is_never_shared(tmp_path: Path, root: Path, isolation: str) -> None:
    """Two runs go on from the same one at once, and a third from one of them; the first stays as it was."""
    async with node_of(tmp_path, root, isolation=isolation) as node:
        await stop_early(node)
        kept = tmp_path / "data/checkouts/run_1"
        layer = kept / ("upper" if isolation == "overlay" else "tree")
        before = look(layer)
        async with asyncio.TaskGroup() as group:
            for name in ("run_2", "run_3"):
                group.create_task(go_on(node, "run_1", name))
        for name in ("run_2", "run_3"):
            await node.tool("run_shell", name, command=f"echo {name} >> half.txt; echo {name} > deep/c.txt")
        content = (await node.tool("run_shell", "run_2", command="cat half.txt deep/c.txt")).content
        assert content.startswith("half\nrun_2\nrun_2\n")
        assert look(layer) == before
        await node.cleanup("run_2", keep=True)
        await go_on(node, "run_2", "run_4")
        content = (await node.tool("run_shell", "run_4", command="cat half.txt deep/c.txt")).content
        assert content.startswith("half\nrun_2\nrun_2\n")
        assert {(path.path, path.change) for path in (await node.snapshot("run_4")).paths} == CHANGED
        assert look(layer) == before
        for name in ("run_3", "run_4"):
            await node.cleanup(name)
        assert node.service.opened_count == node.service.cleaned_up_count == 4


@pytest.mark.parametrize("isolation", ["overlay", "copy"])
async def test_going_on_after_a_restart(tmp_path: Path, root: Path, isolation: str) -> None:
    """Base and checkout are found again by a later node, whatever its settings prefer now; old bases stay."""
    async with node_of(tmp_path, root, isolation=isolation) as node:
        first = await stop_early(node)
    for folder in [*(tmp_path / "data/bases").glob("*/*/*"), tmp_path / "data/runs/run_1"]:
        os.utime(folder, (1, 1))
    other = "copy" if isolation == "overlay" else "overlay"
    async with node_of(tmp_path, root, isolation=other) as node:
        second = await go_on(node, "run_1", "run_2")
        assert (second.base, second.isolation) == (first.base, isolation)
        assert {(path.path, path.change) for path in (await node.snapshot("run_2")).paths} == CHANGED


@pytest.mark.parametrize("isolation", ["overlay", "copy"])
@pytest.mark.parametrize("repository", [True, False])
async def test_a_tree_that_moved_is_a_conflict(tmp_path: Path, isolation: str, repository: bool) -> None:
    """The patch is against the earlier base; a user who edited since then keeps the edit."""
    root = tmp_path / "moving"
    write(root, FILES | MORE)
    if repository:
        make_repository(root, {})
    async with node_of(tmp_path, root, isolation=isolation) as node:
        first = await stop_early(node)
        write(root, {"app.py": "mine\n", "own.txt": "own\n"})
        second = await go_on(node, "run_1", "run_2")
        assert second.base == first.base
        snapshot = await node.snapshot("run_2")
        assert "moved:app.py" in snapshot.flags
        assert "own.txt" not in snapshot.patch
        before = look(root, skip=())
        delivered = await node.deliver(snapshot, "run_2")
        assert (delivered.status, delivered.paths) == ("conflict", ("app.py",))
        assert look(root, skip=()) == before


async def test_another_base_than_the_tree(tmp_path: Path, root: Path) -> None:
    """A base of the node's own is taken up too, and what was put into carried folders is there."""
    write(root, {"app.py": "uncommitted\n", ".venv/note.txt": "mine\n"})
    (root / ".git/info/exclude").write_text(".venv/\n")
    async with node_of(tmp_path, root, isolation="overlay") as node:
        await node.open("run_1", base="head")
        ran = await node.tool("run_shell", command="cat .venv/note.txt app.py; echo put > .venv/put.txt")
        assert ran.content.startswith("mine\ndef add"), ran.content
        await node.tool("write_file", relative_path="new.txt", content="n\n")
        await node.cleanup(keep=True)
        await go_on(node, "run_1", "run_2")
        ran = await node.tool("run_shell", "run_2", command="cat .venv/note.txt .venv/put.txt app.py new.txt")
        assert ran.content.startswith("mine\nput\ndef add"), ran.content
        assert [path.path for path in (await node.snapshot("run_2")).paths] == ["new.txt"]
        assert not (root / ".venv/put.txt").exists()


async def test_an_open_checkout_is_waited_for(tmp_path: Path, root: Path) -> None:
    """A kept checkout may be put away only after its run's terminal: who is faster waits for it."""
    async with node_of(tmp_path, root) as node, asyncio.TaskGroup() as group:
        await node.open("run_1")
        await node.tool("write_file", relative_path="half.txt", content="half\n")
        going_on = group.create_task(go_on(node, "run_1", "run_2"))
        await asyncio.sleep(0.3)
        assert not going_on.done()
        await node.cleanup("run_1", keep=True)
        await going_on
        assert (await node.tool("read_file", "run_2", relative_path="half.txt")).status == "success"


async def test_nothing_to_go_on_with(tmp_path: Path, root: Path) -> None:
    """Each way in which there is none is told in its own words, before anything is opened."""
    other = make_repository(tmp_path / "other", FILES)
    async with node_of(tmp_path, root) as node:
        assert (await refused(node, "run_never")).reason == "refused"
        await stop_early(node, "run_removed", keep=False)
        assert "keeps no checkout" in (await refused(node, "run_removed")).message
        assert (await refused(node, "../etc")).reason == "refused"
        await stop_early(node)
        in_place = await refused(node, "run_1", isolation="in_place")
        assert "in place" in in_place.message
        prepared = await node.prepare("run_plain")
        asked = OpenRequest(run_id="run_plain", workspace_ref="app", base=prepared.base, continues="run_1")
        assert (await node.ask(asked, NodeFailure)).reason == "refused"
        opened = node.service.opened_count
        assert opened == node.service.cleaned_up_count
    async with node_of(tmp_path, other) as node:
        elsewhere = await refused(node, "run_1")
        assert elsewhere.reason == "refused"
        assert str(root) in elsewhere.message
        assert str(other) in elsewhere.message
    shutil.rmtree(tmp_path / "data/bases")
    async with node_of(tmp_path, root) as node:
        gone = await refused(node, "run_1")
        assert (gone.reason, "base" in gone.message) == ("lost", True)
    remove_tree(tmp_path / "data/checkouts/run_1")
    async with node_of(tmp_path, root) as node:
        assert "keeps no checkout" in (await refused(node, "run_1")).message


async def test_what_was_applied_is_not_gone_on_with(tmp_path: Path, root: Path) -> None:
    """A patch over the old base could never be applied on top of itself; once it is undone it can be."""
    async with node_of(tmp_path, root) as node:
        await node.open("run_1")
        await node.tool("write_file", relative_path="half.txt", content="half\n")
        snapshot = await node.snapshot()
        await node.deliver(snapshot)
        await node.cleanup(keep=True)
        assert "half.txt" in (await refused(node, "run_1")).message
        node.service.deliveries.undo("run_1", snapshot.content_hash)
        await go_on(node, "run_1", "run_2")


async def test_a_cancel_while_it_is_copied(tmp_path: Path, root: Path, monkeypatch: Any) -> None:
    """R2: the copy ends, nothing of it is left, and the kept checkout can be gone on with later."""
    write(root, {f"many/{number}.txt": "x" * 100 for number in range(3_000)})
    async with node_of(tmp_path, root, isolation="copy") as node:
        await node.open("run_1")
        await node.cleanup(keep=True)
        prepared = await node.prepare("run_2", continues="run_1")
        asked = OpenRequest(run_id="run_2", workspace_ref="app", base=prepared.base, continues="run_1")
        opening = asyncio.get_running_loop().create_task(node.service.handle(asked))
        storage = tmp_path / "data/checkouts/run_2"
        await until(lambda: (storage / "taking-up/many").exists() or opening.done())
        assert not opening.done()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert not storage.exists()
        await go_on(node, "run_1", "run_2")


async def test_old_run_folders_are_collected(tmp_path: Path) -> None:
    """What the node kept of runs goes after 30 days, and earlier, oldest first, where it takes too much."""
    now = 1_000 * _DAY_S
    ages = {"run_old": 40, "run_new": 2, "run_kept": 40, "run_undoable": 40, "run_big": 20, "run_bigger": 10}
    for name, days in ages.items():
        folder = tmp_path / "runs" / name
        write(folder, {"blobs/x": "x", "workspace.json": "{}"})
        if name == "run_undoable":
            write(folder, {"deliveries/aa.json": json.dumps({"status": "delivered"})})
        if name in ("run_big", "run_bigger", "run_kept"):
            with (folder / "blobs/x").open("r+b") as file:
                file.truncate(RUN_FOLDERS_BYTES * 2 // 3)
        for path in [*folder.rglob("*"), folder]:
            set_age(path, now - days * _DAY_S)
    set_age(tmp_path / "runs/run_undoable/deliveries/aa.json", now - 20 * _DAY_S)
    write(tmp_path / "checkouts/run_kept", {"kept": ""})
    os.utime(tmp_path / "checkouts/run_kept/kept", (now, now))
    sweep_node(tmp_path, now, keep=KeepLimits())
    left = {path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()}
    assert left == {"run_new", "run_kept", "run_undoable"}


async def test_a_run_of_another_node_is_left_alone(tmp_path: Path, root: Path) -> None:
    """Several processes share a data folder: one that starts doesn't collect what another one works on."""
    async with node_of(tmp_path, root) as node:
        await node.open("run_1")
        await node.tool("write_file", relative_path="half.txt", content="half\n")
        await node.snapshot()
        for path in [*(tmp_path / "data/runs/run_1").rglob("*"), tmp_path / "data/runs/run_1"]:
            os.utime(path, (1, 1))
        async with node_of(tmp_path, root):
            assert (tmp_path / "data/runs/run_1/blobs").is_dir()
        await node.snapshot()
        assert git(root, "status", "--porcelain") == ""
