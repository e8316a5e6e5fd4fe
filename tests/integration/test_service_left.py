"""What a dead process leaves of its runs: read, kept, collected; and what lives is never touched."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from git_repository import make_repository, write
from remit.contract import CleanedUp, CleanupRequest, NodeFailure, Snapshot, SnapshotRequest
from remit.workspaces._kept import KeepLimits, collect_kept, mark_kept
from remit.workspaces._owner import NodeOwner, note_owner
from remit.workspaces._setups_kept import collect_setups, setups_kept
from remit.workspaces._sweeping import sweep_node
from remit.workspaces.keeper import _processes
from remit.workspaces.keeper._storage import Storage, remove_unless_held
from service_kit import FILES, Node, node_of, until

_DAY_S = 24 * 3_600
_NOW = 1_000 * _DAY_S


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path.resolve() / "app", FILES)


async def kill_keeper(node: Node, storage: Path) -> None:
    """End the node's processes as a kill -9 of the node does: nothing is put away."""
    keeper = await node.service.get_keeper()
    os.kill(keeper.pid, signal.SIGKILL)

    def is_free() -> bool:
        try:
            os.close(Storage(storage).lock())
        except BlockingIOError:
            return False
        return True

    await until(is_free)


@pytest.mark.parametrize("isolation", ["overlay", "copy"])
@pytest.mark.parametrize("keep", [True, False])
async def test_the_checkout_of_a_dead_process_is_read(
    tmp_path: Path, root: Path, isolation: str, keep: bool
) -> None:
    """R57: patch is set however the run ended: the next process reads it, then keeps or removes it."""
    storage = tmp_path / "data/checkouts/run_1"
    async with node_of(tmp_path, root, isolation=isolation) as node:
        await node.open("run_1")
        await node.tool("write_file", relative_path="half.txt", content="half\n")
        expected = await node.snapshot()
        await kill_keeper(node, storage)
        async with node_of(tmp_path, root) as later:
            asked = SnapshotRequest(run_id="run_1", generation=2)
            seen = await later.ask(asked, Snapshot)
            assert (seen.patch, seen.content_hash) == (expected.patch, expected.content_hash)
            assert "+half" in seen.patch
            cleanup = CleanupRequest(run_id="run_1", generation=2, keep=keep)
            assert (await later.ask(cleanup, CleanedUp)).kept is keep
            assert storage.exists() is keep
            assert (storage / "kept").exists() is keep


async def test_a_workspace_that_keeps_nothing_keeps_nothing_of_the_dead(tmp_path: Path, root: Path) -> None:
    """The owner's `preserve = "never"` holds for what a dead process left, too."""
    storage = tmp_path / "data/checkouts/run_1"
    async with node_of(tmp_path, root) as node:
        await node.open("run_1")
        await node.tool("list_files")
        await kill_keeper(node, storage)
        async with node_of(tmp_path, root, preserve="never") as later:
            cleanup = CleanupRequest(run_id="run_1", generation=2, keep=True)
            assert not (await later.ask(cleanup, CleanedUp)).kept
            assert not storage.exists()


HALF_MADE = {
    "before anything": ("merged", "home"),
    "an overlay's layer": ("merged", "home", "scratch"),
    "a copy": ("merged", "tree.partial/app"),
    "what a copy holds": ("merged", "tree/app"),
}


@pytest.mark.parametrize("made", HALF_MADE)
@pytest.mark.parametrize("keep", [True, False])
async def test_a_checkout_whose_opening_was_killed_goes(
    tmp_path: Path, root: Path, made: str, keep: bool
) -> None:
    """R57, R58: nobody has worked in it, so there is nothing to read, nothing to keep, and nothing stays."""
    storage = tmp_path / "data/checkouts/run_1"
    async with node_of(tmp_path, root, isolation="copy") as node:
        await node.prepare("run_1")
        for folder in HALF_MADE[made]:
            (storage / folder).mkdir(parents=True)
        (storage / "lock").touch()
    async with node_of(tmp_path, root, isolation="copy") as later:
        answer = await later.ask(SnapshotRequest(run_id="run_1", generation=2), NodeFailure)
        assert answer.reason == "lost"
        assert not (await later.cleanup("run_1", generation=2, keep=keep)).kept
    assert not storage.exists()


async def test_the_checkout_of_a_living_process_is_left_alone(tmp_path: Path, root: Path) -> None:
    """R57: what another process has open is neither read nor removed."""
    async with node_of(tmp_path, root) as node, node_of(tmp_path, root) as other:
        await node.open("run_1")
        for asked in (SnapshotRequest(run_id="run_1"), CleanupRequest(run_id="run_1", keep=False)):
            answer = await other.ask(asked, NodeFailure)
            assert answer.reason == "unavailable"
            assert "open in another process" in answer.message
        assert (await node.tool("list_files")).status == "success"


async def test_nothing_left_is_said_so(tmp_path: Path, root: Path) -> None:
    """R57: a run that had no checkout is `lost` here, and asking leaves no trace."""
    async with node_of(tmp_path, root) as node:
        answer = await node.ask(SnapshotRequest(run_id="run_9"), NodeFailure)
        assert answer.reason == "lost"
        assert not (tmp_path / "data/runs/run_9").exists()


def test_a_held_checkout_is_never_removed(tmp_path: Path) -> None:
    """R58: whoever gives up on a checkout removes it only where no process holds it."""
    Storage(tmp_path / "c").make()
    handle = Storage(tmp_path / "c").lock()
    assert not remove_unless_held(tmp_path / "c")
    assert (tmp_path / "c/merged").is_dir()
    os.close(handle)
    assert remove_unless_held(tmp_path / "c")
    assert not (tmp_path / "c").exists()
    assert remove_unless_held(tmp_path / "c")


def test_scratch_checkouts_of_dead_owners_go_at_once(tmp_path: Path) -> None:
    """R58: what a killed preparation left goes at the next start; what a living one is just making stays."""
    living = NodeOwner.take(tmp_path, "node_living")
    for name, owner in (("scratch_1", "node_dead"), ("scratch_2", "node_living"), ("scratch_3", "node_held")):
        note_owner(tmp_path / "checkouts" / name, owner)
    for name in ("node_dead", "node_living"):
        write(tmp_path / "scratch" / name, {"x": "x"})
    held = Storage(tmp_path / "checkouts/scratch_3").lock()
    sweep_node(tmp_path, _NOW * 10, keep=KeepLimits())
    assert {path.name for path in (tmp_path / "checkouts").iterdir()} == {"scratch_2", "scratch_3"}
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["node_living"]
    os.close(held)
    living.release()
    sweep_node(tmp_path, _NOW * 10, keep=KeepLimits())
    assert list((tmp_path / "checkouts").iterdir()) == []
    assert list((tmp_path / "owners").iterdir()) == []


def test_what_a_killed_keeper_tried_out_goes_after_a_day(tmp_path: Path) -> None:
    """R58: the folder in which a keeper looks what the kernel can do is removed, but not under its hands."""
    for name, age_s in (("probe-old", 2 * _DAY_S), ("probe-new", 60)):
        write(tmp_path / name, {"upper/x": "x"})
        os.utime(tmp_path / name, (_NOW - age_s, _NOW - age_s))
    sweep_node(tmp_path, _NOW, keep=KeepLimits())
    assert [path.name for path in tmp_path.glob("probe-*")] == ["probe-new"]


def test_kept_checkouts_are_collected_by_age_and_size(tmp_path: Path) -> None:
    """Architecture, decision 10: too old ones go, then the oldest of too many, but none open or recent."""
    ages = {"old": 15, "open": 15, "big": 9, "middle": 5, "small": 3, "recent": 0.5}
    for name, days in ages.items():
        folder = tmp_path / "checkouts" / name
        write(folder, {"upper/x": b"x" * (1_000_000 if name in ("big", "recent") else 100_000)})
        mark_kept(folder)
        os.utime(folder / "kept", (_NOW - days * _DAY_S, _NOW - days * _DAY_S))
    held = Storage(tmp_path / "checkouts/open").lock()
    limits = KeepLimits(max_age_s=14 * _DAY_S, max_bytes=2_200_000)
    collect_kept(tmp_path, _NOW, limits)
    assert {path.name for path in (tmp_path / "checkouts").iterdir()} == {"open", "middle", "small", "recent"}
    collect_kept(tmp_path, _NOW, KeepLimits(max_age_s=14 * _DAY_S, max_bytes=0))
    os.close(held)
    assert {path.name for path in (tmp_path / "checkouts").iterdir()} == {"open", "recent"}
    collect_kept(tmp_path, _NOW, KeepLimits(max_age_s=0))
    assert list((tmp_path / "checkouts").iterdir()) == []


def keep_setup(data: Path, name: str, days: float, *, root: Path, size: int = 100_000) -> None:
    folder = data / "setups" / name
    done = json.dumps({"root": str(root), "lines": [], "notes": []})
    write(folder, {"upper/x": b"x" * size, "done.json": done})
    os.utime(folder, (_NOW - days * _DAY_S, _NOW - days * _DAY_S))


def names_of_setups(data: Path) -> set[str]:
    return {path.name for path in (data / "setups").iterdir()}


def test_what_setup_made_is_collected_by_age_size_and_workspace(tmp_path: Path) -> None:
    """It costs only time to be made again; but a run of the last day may be at work on it."""
    gone = tmp_path / "gone"
    for name, days in {"old": 15, "big": 9, "middle": 5, "small": 3, "recent": 0.5}.items():
        keep_setup(
            tmp_path, name, days, root=tmp_path, size=1_000_000 if name in ("big", "recent") else 100_000
        )
    keep_setup(tmp_path, "orphan", 2, root=gone)
    keep_setup(tmp_path, "working", 0.5, root=gone)
    keep_setup(tmp_path, ".half.made", 2, root=tmp_path)
    (tmp_path / "setups/.half.made/done.json").unlink()
    os.utime(tmp_path / "setups/.half.made", (_NOW - 2 * _DAY_S, _NOW - 2 * _DAY_S))
    everything = setups_kept(tmp_path)
    assert everything.count == 8
    assert everything.size_bytes > 2_600_000
    plenty = KeepLimits(max_setups_bytes=1 << 40, min_free_bytes=0)
    collect_setups(tmp_path, _NOW, plenty)
    assert names_of_setups(tmp_path) == {"big", "middle", "small", "recent", "working"}
    collect_setups(tmp_path, _NOW, KeepLimits(max_setups_bytes=1_500_000, min_free_bytes=0))
    assert names_of_setups(tmp_path) == {"middle", "small", "recent", "working"}
    collect_setups(tmp_path, _NOW, KeepLimits(min_free_bytes=1 << 60))
    assert names_of_setups(tmp_path) == {"recent", "working"}
    collect_setups(tmp_path, _NOW + 15 * _DAY_S, plenty)
    assert names_of_setups(tmp_path) == set()


_MISSED = """
import os, signal, socket, sys, time
from remit.workspaces.keeper import _processes
from remit.workspaces.keeper._zygote import Zygote

seen, looks = _processes.children_of, []

def incomplete(pid):
    looks.append(pid)
    return () if len(looks) < 3 else seen(pid)

_processes.children_of = incomplete
child = os.fork()
if child == 0:
    time.sleep(600)
    os._exit(0)
Zygote(socket.socketpair()[0], {})._end_everything()
print(child, flush=True)
"""


async def test_the_zygote_ends_when_no_child_is_left_and_not_before() -> None:
    """R2: the kernel's list of children may lack one that came while it was read, so empty isn't none."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", _MISSED],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    process = _processes.read_process(int(done.stdout))
    assert process is None or process.ended


def test_an_owner_lets_go_once(tmp_path: Path) -> None:
    """R12: closing a node twice closes no file that somebody else has opened in between."""
    owner = NodeOwner.take(tmp_path, "node_1")
    owner.release()
    with (tmp_path / "other").open("w") as other:
        owner.release()
        other.write("still open")
        other.flush()
