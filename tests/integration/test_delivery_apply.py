"""Delivery into a user's tree: conflicts, owners and modes, links, protection, real kills, undo."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from delivery_bench import Fault, Killed, make_order
from git_repository import git, look
from remit.errors import NodeError
from remit.workspaces._delivery import Deliveries, DeliveryOrder
from remit.workspaces._snapshot import RunFolder
from tree_model import Tree, read_back

BASE: Tree = {
    "edit.txt": ("100644", b"one\n"),
    "drop.txt": ("100644", b"drop\n"),
    "run.sh": ("100644", b"#!/bin/sh\n"),
    "sub/only.txt": ("100644", b"only\n"),
    "link": ("120000", b"edit.txt"),
    "keep.txt": ("100644", b"kept\n"),
}
RESULT: Tree = {
    "edit.txt": ("100644", b"one\ntwo\n"),
    "run.sh": ("100755", b"#!/bin/sh\n"),
    "new/deep/file.txt": ("100644", b"new\n"),
    "new/tool": ("100755", b"tool\n"),
    "link": ("120000", b"keep.txt"),
    "keep.txt": ("100644", b"kept\n"),
}


@pytest.fixture
def order(tmp_path: Path) -> DeliveryOrder:
    return make_order(tmp_path, BASE, RESULT)


@pytest.fixture
def deliveries(tmp_path: Path) -> Deliveries:
    return Deliveries(tmp_path / "data")


def test_it_is_applied_once(order: DeliveryOrder, deliveries: Deliveries) -> None:
    """R58: a repeat finds the receipt and touches nothing, not even what the user has changed since."""
    outcome = deliveries.deliver(order)
    assert outcome.status == "delivered"
    assert set(outcome.paths) == {
        path for path in BASE.keys() | RESULT.keys() if BASE.get(path) != RESULT.get(path)
    }
    assert read_back(order.root) == RESULT
    assert not (order.root / "sub").exists()
    (order.root / "edit.txt").write_text("edited later\n")
    again = deliveries.deliver(order)
    assert (again.status, again.repeated) == ("delivered", True)
    assert (order.root / "edit.txt").read_text() == "edited later\n"


@pytest.mark.parametrize(
    ("disturb", "path"),
    [
        (lambda root: (root / "edit.txt").write_text("mine\n"), "edit.txt"),
        (lambda root: (root / "drop.txt").unlink(), "drop.txt"),
        (lambda root: (root / "run.sh").chmod(0o755), "run.sh"),
        (lambda root: ((root / "edit.txt").unlink(), (root / "edit.txt").symlink_to("keep.txt")), "edit.txt"),
        (lambda root: ((root / "link").unlink(), (root / "link").write_text("edit.txt")), "link"),
        (lambda root: (root / "new").write_text("in the way\n"), "new/deep/file.txt"),
        (lambda root: (root / "new").symlink_to("/tmp"), "new/tool"),
        (lambda root: ((root / "new/tool").mkdir(parents=True), (root / "new/tool/x").touch()), "new/tool"),
        (lambda root: os.mkfifo(root / "new"), "new/tool"),
        (lambda root: ((root / "edit.txt").unlink(), os.mkfifo(root / "edit.txt")), "edit.txt"),
    ],
)
def test_a_conflict_applies_nothing(order: DeliveryOrder, deliveries: Deliveries, disturb, path: str) -> None:
    """One path without its base bytes, type or mode, and nothing is applied; the path is named."""
    disturb(order.root)
    before = look(order.root)
    outcome = deliveries.deliver(order)
    assert outcome.status == "conflict"
    assert path in outcome.paths
    assert look(order.root) == before
    assert not list((order.root.parent / "data/deliveries").glob("*/*"))


def test_a_link_in_the_way_does_not_lead_out(
    order: DeliveryOrder, deliveries: Deliveries, tmp_path: Path
) -> None:
    """R34: a folder that became a link to elsewhere is a conflict; nothing is written behind it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "only.txt").write_text("only\n")
    (order.root / "sub/only.txt").unlink()
    (order.root / "sub").rmdir()
    (order.root / "sub").symlink_to(elsewhere)
    outcome = deliveries.deliver(order)
    assert (outcome.status, outcome.paths) == ("conflict", ("sub/only.txt",))
    assert (elsewhere / "only.txt").read_text() == "only\n"


def test_owners_and_modes_are_kept(order: DeliveryOrder, deliveries: Deliveries) -> None:
    """Files keep the owner and mode of what they replace; new ones get those of their folder."""
    root = order.root
    (root / "edit.txt").chmod(0o640)
    (root / "run.sh").chmod(0o604)
    root.chmod(0o750)
    if os.getuid() == 0:
        os.chown(root / "edit.txt", 1234, 2345)
        os.chown(root, 1111, 2222)
    assert deliveries.deliver(order).status == "delivered"
    modes = {
        name: stat.S_IMODE((root / name).lstat().st_mode)
        for name in ("edit.txt", "run.sh", "new", "new/tool", "new/deep/file.txt")
    }
    assert modes == {
        "edit.txt": 0o640,
        "run.sh": 0o705,
        "new": 0o750,
        "new/tool": 0o750,
        "new/deep/file.txt": 0o640,
    }
    if os.getuid() == 0:
        owners = {
            name: ((root / name).lstat().st_uid, (root / name).lstat().st_gid)
            for name in ("edit.txt", "new", "new/tool", "link")
        }
        assert owners == {
            "edit.txt": (1234, 2345),
            "new": (1111, 2222),
            "new/tool": (1111, 2222),
            "link": (0, 0),
        }
    deliveries.undo(order.run_id, order.content_hash)
    assert stat.S_IMODE((root / "edit.txt").stat().st_mode) == 0o640


def test_what_was_rolled_back_is_the_very_file(order: DeliveryOrder, tmp_path: Path) -> None:
    """R60: after a roll-back the old files are there with inode, time and extended attributes."""
    os.utime(order.root / "edit.txt", (1000, 1000))
    before = {
        path: (path.lstat().st_ino, path.lstat().st_mtime_ns)
        for path in order.root.rglob("*")
        if path.is_file()
    }
    steps = Fault()
    with pytest.raises(NodeError):
        Deliveries(tmp_path / "data", fault=_FailAt("sync", steps)).deliver(order)
    after = {
        path: (path.lstat().st_ino, path.lstat().st_mtime_ns)
        for path in order.root.rglob("*")
        if path.is_file()
    }
    assert after == before


class _FailAt:
    def __init__(self, name: str, inner: Fault) -> None:
        self.name = name
        self.inner = inner

    def __call__(self, step: str) -> None:
        self.inner(step)
        if step == self.name:
            raise OSError(28, "full")


def test_a_tree_that_may_not_be_written(order: DeliveryOrder, tmp_path: Path) -> None:
    """What the file system forbids is refused, by the path that it is about; all is as before."""
    before = read_back(order.root)
    is_free_of_modes = os.geteuid() == 0

    def forbid(step: str) -> None:
        if is_free_of_modes and step == "replace edit.txt":
            raise PermissionError(errno.EACCES, "Permission denied", "edit.txt")

    if not is_free_of_modes:
        order.root.chmod(0o555)
    with pytest.raises(NodeError) as refused:
        Deliveries(tmp_path / "data", fault=forbid).deliver(order)
    order.root.chmod(0o755)
    assert refused.value.reason == "refused"
    assert refused.value.message.startswith(f"nothing was applied to {order.root}: permission denied (")
    assert ".remit-" not in refused.value.message
    assert read_back(order.root) == before


def test_an_edit_in_the_middle_wins(order: DeliveryOrder, tmp_path: Path) -> None:
    """An editor that saves between check and replacement keeps its bytes; all else is as before."""

    def save(step: str) -> None:
        if step == "replace edit.txt":
            unfinished = order.root / "edit.tmp"
            unfinished.write_text("saved by an editor\n")
            unfinished.rename(order.root / "edit.txt")

    outcome = Deliveries(tmp_path / "data", fault=save).deliver(order)
    assert (outcome.status, outcome.paths) == ("conflict", ("edit.txt",))
    assert read_back(order.root) == BASE | {"edit.txt": ("100644", b"saved by an editor\n")}


def test_an_edit_after_a_crash_is_left_alone(order: DeliveryOrder, tmp_path: Path) -> None:
    """R60: a file edited after a crash is left alone and named; the others are restored."""

    def die(step: str) -> None:
        if step == "sync":
            raise Killed

    with pytest.raises(Killed):
        Deliveries(tmp_path / "data", fault=die).deliver(order)
    (order.root / "edit.txt").write_text("mine now\n")
    (found,) = Deliveries(tmp_path / "data").recover()
    assert (found.how, found.left) == ("back", ("edit.txt",))
    assert read_back(order.root) == BASE | {"edit.txt": ("100644", b"mine now\n")}


@pytest.mark.parametrize(
    "path", ["AGENTS.md", ".github/workflows/ci.yml", "sub/.envrc", ".vscode/tasks.json"]
)
def test_protected_paths_need_leave(tmp_path: Path, path: str) -> None:
    """A patch that touches a protected path is refused whole, unless that was allowed."""
    order = make_order(tmp_path, {"a": ("100644", b"")}, {"a": ("100644", b"x"), path: ("100644", b"x")})
    deliveries = Deliveries(tmp_path / "data")
    outcome = deliveries.deliver(order)
    assert (outcome.status, outcome.paths) == ("refused", (path,))
    assert (order.root / "a").read_bytes() == b""
    assert deliveries.deliver(replace(order, allow_protected=True)).status == "delivered"


def test_frozen_and_git_paths_are_never_delivered(tmp_path: Path) -> None:
    """R35: frozen paths and git's own folder stay untouched even where protected paths are allowed."""
    for number, path in enumerate(("locked/file", ".git/hooks/pre-commit", "sub/.GIT/config")):
        order = make_order(tmp_path / str(number), {}, {path: ("100755", b"x")})
        order = replace(order, allow_protected=True, frozen=("locked",))
        outcome = Deliveries(tmp_path / str(number) / "data").deliver(order)
        assert (outcome.status, outcome.paths) == ("refused", (path,))
        assert read_back(order.root) == {}


def test_only_what_was_reviewed_is_delivered(
    order: DeliveryOrder, deliveries: Deliveries, tmp_path: Path
) -> None:
    """R83: another hash, kept changes that were tampered with, or damaged bytes: nothing is applied."""
    with pytest.raises(NodeError, match="isn't the one"):
        deliveries.deliver(replace(order, patch_sha256="0" * 64))
    with pytest.raises(NodeError, match="no such changes"):
        deliveries.deliver(replace(order, content_hash="0" * 64))
    for wrong in ("../../x", "a/b", ""):
        with pytest.raises(NodeError):
            deliveries.deliver(replace(order, content_hash=wrong))
        with pytest.raises(NodeError):
            deliveries.deliver(replace(order, run_id=wrong))
    run = RunFolder.of(tmp_path / "data", order.run_id)
    change = next(c for c in run.load(order.content_hash).changes.changes if c.path == "edit.txt")
    assert change.result
    blob = run.blobs.path(change.result.sha256)
    good = blob.read_bytes()
    blob.write_bytes(b"tampered")
    with pytest.raises(NodeError, match="damaged"):
        deliveries.deliver(order)
    assert read_back(order.root) == BASE
    blob.write_bytes(good)
    kept = run.bundle(order.content_hash) / "changes.json"
    kept.write_text(kept.read_text().replace("edit.txt", "evil.txt"))
    with pytest.raises(NodeError, match="aren't those"):
        deliveries.deliver(order)
    assert read_back(order.root) == BASE


def test_the_index_is_untouched(order: DeliveryOrder, deliveries: Deliveries) -> None:
    """The user's index and git folder stay as they are; git sees ordinary uncommitted work."""
    git(order.root, "init", "-q")
    git(order.root, "add", "-A")
    git(order.root, "commit", "-qm", "first")
    (order.root / ".gitignore").write_text("*.ignored\n")
    before = {path: path.stat().st_mtime_ns for path in (order.root / ".git").rglob("*")}
    assert deliveries.deliver(order).status == "delivered"
    assert {path: path.stat().st_mtime_ns for path in (order.root / ".git").rglob("*")} == before
    assert " M edit.txt" in git(order.root, "status", "--porcelain").splitlines()


def test_folders_with_something_left_stay(tmp_path: Path) -> None:
    """A folder goes only when nothing is left in it; one that a file replaces mustn't hold anything else."""
    order = make_order(
        tmp_path, {"a/x": ("100644", b""), "b/x": ("100644", b"")}, {"b": ("100644", b"now a file")}
    )
    deliveries = Deliveries(tmp_path / "data")
    (order.root / "b/untracked").write_text("mine")
    outcome = deliveries.deliver(order)
    assert (outcome.status, outcome.paths) == ("conflict", ("b",))
    (order.root / "b/untracked").unlink()
    (order.root / "b/empty/inner").mkdir(parents=True)
    (order.root / "a/untracked").write_text("mine")
    assert deliveries.deliver(order).status == "delivered"
    assert read_back(order.root) == {"a/untracked": ("100644", b"mine"), "b": ("100644", b"now a file")}


def test_undo_refuses_after_an_edit(order: DeliveryOrder, deliveries: Deliveries) -> None:
    """Undo only where every delivered path still holds what was delivered."""
    with pytest.raises(NodeError, match="never applied"):
        deliveries.undo(order.run_id, order.content_hash)
    deliveries.deliver(order)
    (order.root / "new/tool").write_text("edited\n")
    outcome = deliveries.undo(order.run_id, order.content_hash)
    assert (outcome.status, outcome.paths) == ("conflict", ("new/tool",))
    assert (order.root / "edit.txt").read_text() == "one\ntwo\n"


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from delivery_bench import make_order
from remit.workspaces._delivery import Deliveries, DeliveryOrder
def fault(step):
    if step.startswith(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
root, content_hash, patch = sys.argv[2].split("|")
order = DeliveryOrder(run_id="run_1", root=Path(root), content_hash=content_hash, patch_sha256=patch)
print(Deliveries(Path(sys.argv[1]), fault=fault).deliver(order).status)
"""


@pytest.mark.parametrize(
    "step",
    [
        "journal",
        "stage",
        "keep",
        "remove",
        "rmdir",
        "mkdir",
        "replace new",
        "sync",
        "receipt",
        "clean",
        "tidy",
    ],
)
def test_a_killed_process(order: DeliveryOrder, tmp_path: Path, step: str) -> None:
    """R57: a process killed for real in the middle; the next remit on that tree puts it right."""
    told = f"{order.root}|{order.content_hash}|{order.patch_sha256}"
    command = [
        sys.executable,
        "-c",
        KILLED,
        str(tmp_path / "data"),
        told,
        step,
        str(Path(__file__).parents[1]),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    Deliveries(tmp_path / "data").recover()
    assert read_back(order.root) == (RESULT if step in ("sync", "receipt", "clean", "tidy") else BASE)
    assert not list(order.root.rglob(".remit-*"))


def test_a_tree_in_use_is_passed_over(order: DeliveryOrder, tmp_path: Path) -> None:
    """R61: recovery leaves a delivery alone whose process is alive."""

    def die(step: str) -> None:
        if step == "sync":
            raise Killed

    with pytest.raises(Killed):
        Deliveries(tmp_path / "data", fault=die).deliver(order)
    (lock,) = (tmp_path / "data/deliveries").glob("*.lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        started = time.monotonic()
        assert Deliveries(tmp_path / "data").recover() == ()
        assert time.monotonic() - started < 5
    assert [found.how for found in Deliveries(tmp_path / "data").recover()] == ["forward"]


def test_new_content_runs_as_nobody_else(order: DeliveryOrder, deliveries: Deliveries) -> None:
    """R34: that a program ran as its owner was said of its old bytes, not of what a run made of them."""
    program = order.root / "run.sh"
    program.chmod(0o6644)
    (order.root / "drop.txt").chmod(0o2600)
    assert deliveries.deliver(order).status == "delivered"
    assert stat.S_IMODE(program.stat().st_mode) == 0o755
    assert deliveries.undo(order.run_id, order.content_hash).status == "undone"
    assert stat.S_IMODE((order.root / "drop.txt").stat().st_mode) == 0o2600
