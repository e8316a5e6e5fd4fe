"""Runs in place whose process was killed: at every step the tree can be taken back as it was."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from git_repository import look, make_repository, write
from remit.contract import CleanedUp, CleanupRequest, OpenRequest, Snapshot, SnapshotRequest
from remit.errors import NodeError
from remit.workspaces import Deliveries, _delivery, _in_place, _in_place_record, settle_died
from remit.workspaces._in_place_record import RECORD
from remit.workspaces._kept import KeepLimits
from remit.workspaces._sweeping import sweep_node
from remit.workspaces.keeper._storage import Storage
from service_kit import FILES, Node, node_of, until

WORK = (
    "echo changed > app.py; rm sub/inner.txt; mkdir new; echo new > new/file; chmod +x test_app.py; "
    "ln -s app.py link; echo mine > draft.txt"
)
MORE = "echo again > app.py; echo late > late.txt; rm AGENTS.md"
STEPS = (
    "before the record",
    "with the record",
    "after a command",
    "while it is noted",
    "after it was noted, and more was done",
    "before the record goes",
    "while the record goes",
    "after all",
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(call: Callable[..., None], *, after: bool = False) -> Callable[..., None]:
    """The function, in a process that is killed right before or after it."""

    def called(*arguments: object, **named: object) -> None:
        if after:
            call(*arguments, **named)
        die()

    return called


async def run_until(step: str, folder: Path, root: Path) -> None:
    """One run in place, in this process, which is killed at a step."""
    async with node_of(folder, root, checks=[]) as node:
        prepared = await node.prepare(isolation="in_place")
        if step == "before the record":
            _in_place_record.write_synced = dying(_in_place_record.write_synced)
        elif step == "with the record":
            _in_place_record.write_synced = dying(_in_place_record.write_synced, after=True)
        await node.ask_open(prepared.base)
        assert (await node.tool("run_shell", command=WORK)).status == "success"
        if step == "after a command":
            die()
        if step == "while it is noted":
            _delivery.write_synced = dying(_delivery.write_synced)
        await node.snapshot()
        assert (await node.tool("run_shell", command=MORE)).status == "success"
        if step == "after it was noted, and more was done":
            die()
        if step == "before the record goes":
            _delivery.write_synced = dying(_delivery.write_synced, after=True)
        elif step == "while the record goes":
            _in_place_record.forget_tree = dying(_in_place.forget_tree)
        await node.cleanup()
        die()


@pytest.fixture(params=["git", "folder"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A repository with uncommitted work, or a folder without one."""
    return make_root(tmp_path, request.param)


def make_root(tmp_path: Path, kind: str) -> Path:
    folder = tmp_path.resolve() / "repo"
    if kind == "git":
        make_repository(folder, FILES)
        write(folder, {"app.py": "edited, not committed\n", "draft.txt": "untracked\n"})
    else:
        write(folder, {**FILES, "draft.txt": "kept\n"})
    return folder


def settle(tmp_path: Path) -> int | None:
    """What `undo` does first; how many files differ."""
    with tempfile.TemporaryDirectory() as scratch:
        home = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")}
        died = asyncio.run(settle_died(tmp_path / "data", "run_1", home, scratch=Path(scratch)))
    return None if died is None else died.files


@pytest.mark.parametrize(
    ("step", "kind"),
    [*((step, "git") for step in STEPS), (STEPS[2], "folder"), (STEPS[4], "folder"), (STEPS[6], "folder")],
)
def test_killed_at_every_step_and_undone(tmp_path: Path, step: str, kind: str) -> None:
    """R57: whenever host and node are killed, undo brings back every byte, mode and removed file."""
    root = make_root(tmp_path, kind)
    before = look(root)
    killed = subprocess.run(
        [sys.executable, __file__, step, str(tmp_path), str(root)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        check=False,
        capture_output=True,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    differs = look(root) != before
    assert differs is (step not in STEPS[:2])
    files = settle(tmp_path)
    assert files == {0: None, 1: 0, 6: None, 7: None}.get(STEPS.index(step), files)
    assert not (tmp_path / "data/runs/run_1" / RECORD).exists()
    deliveries = Deliveries(tmp_path / "data")
    for content_hash in deliveries.find_delivered("run_1"):
        assert deliveries.undo("run_1", content_hash).status == "undone"
    assert look(root) == before
    assert settle(tmp_path) is None


async def kill_keeper(node: Node, data: Path) -> None:
    keeper = await node.service.get_keeper()
    os.kill(keeper.pid, signal.SIGKILL)
    storage = Storage(data / "checkouts/run_1")

    def is_free() -> bool:
        try:
            os.close(storage.lock())
        except BlockingIOError:
            return False
        return True

    await until(is_free)


async def test_the_next_node_tells_what_a_dead_one_did_in_place(tmp_path: Path, root: Path) -> None:
    """R57: patch is set however the run ended: read by the node that comes after, and still to be undone."""
    before = look(root)
    async with node_of(tmp_path, root, checks=[]) as node:
        prepared = await node.prepare(isolation="in_place")
        await node.ask_open(prepared.base)
        await node.tool("run_shell", command=WORK)
        with pytest.raises(NodeError, match="still at work"):
            await settle_died(tmp_path / "data", "run_1", {}, scratch=tmp_path, within_s=0.1)
        expected = await node.snapshot()
        await kill_keeper(node, tmp_path / "data")
        async with node_of(tmp_path, root) as later:
            asked = SnapshotRequest(run_id="run_1", generation=2)
            for _ in range(2):  # its host may die before it has stored the answer
                seen = await later.ask(asked, Snapshot)
                assert (seen.patch, seen.content_hash) == (expected.patch, expected.content_hash)
            await later.ask(CleanupRequest(run_id="run_1", generation=2, keep=True), CleanedUp)
            deliveries = later.service.deliveries
            write(root, {"new/file": "mine now\n"})  # after the last look: not the run's
            (content_hash,) = deliveries.find_delivered("run_1")
            assert deliveries.undo("run_1", content_hash).status == "conflict"
            write(root, {"new/file": "new\n"})
            assert deliveries.undo("run_1", content_hash).status == "undone"
            assert look(root) == before


async def test_a_run_in_place_that_is_opened_again_goes_on_from_before(tmp_path: Path, root: Path) -> None:
    """R57: what it did before its node died counts as its own, in the patch and in the undo."""
    before = look(root)
    async with node_of(tmp_path, root, checks=[]) as node:
        prepared = await node.prepare(isolation="in_place")
        await node.ask_open(prepared.base)
        await node.tool("run_shell", command=WORK)
        await kill_keeper(node, tmp_path / "data")
        async with node_of(tmp_path, root, checks=[]) as later:
            again = await later.prepare(isolation="in_place", generation=2)
            opening = OpenRequest(run_id="run_1", workspace_ref="app", base=again.base, generation=2)
            await later.service.handle(opening)
            shelled = later.tool_request("run_shell", call_id="later", command=MORE).model_copy(
                update={"generation": 2}
            )
            await later.service.handle(shelled)
            paths = {path.path for path in (await later.snapshot(generation=2)).paths}
            assert paths >= {"late.txt", "new/file", "AGENTS.md", "app.py", "draft.txt"}
            await later.cleanup(generation=2)
            (content_hash,) = later.service.deliveries.find_delivered("run_1")
            assert later.service.deliveries.undo("run_1", content_hash).status == "undone"
    assert look(root) == before


async def test_what_an_undo_needs_is_kept_as_long_as_a_delivery(tmp_path: Path, root: Path) -> None:
    """Neither base nor record of a run in place that died is swept before what was applied is."""
    day_s = 24 * 3_600
    async with node_of(tmp_path, root, checks=[]) as node:
        prepared = await node.prepare(isolation="in_place")
        await node.ask_open(prepared.base)
        await node.tool("run_shell", command=WORK)
        await kill_keeper(node, tmp_path / "data")
        data = tmp_path / "data"
        now = (data / "runs/run_1" / RECORD).stat().st_mtime
        sweep_node(data, now + 20 * day_s, keep=KeepLimits())
        with tempfile.TemporaryDirectory() as scratch:
            assert await settle_died(data, "run_1", {}, scratch=Path(scratch))
        sweep_node(data, now + 40 * day_s, keep=KeepLimits())
        assert not (data / "runs/run_1").exists()


if __name__ == "__main__":
    asyncio.run(partial(run_until, sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))())
