"""Delivery to a new branch: a commit of the reviewed bytes, and nothing else of the repository changes."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from delivery_bench import make_order
from git_repository import git, look, write
from remit.errors import InvalidRequest, NodeError
from remit.requests import check_branch_name, default_branch
from remit.workspaces import _branching as branching
from remit.workspaces._branching import Branches, BranchOrder, recover_branches
from remit.workspaces._continuing import save_root
from remit.workspaces._delivery import DeliveryOrder, Outcome
from remit.workspaces._pinning import Bases
from remit.workspaces._snapshot import RunFolder
from tree_model import Tree

BASE: Tree = {
    "edit.txt": ("100644", b"one\n"),
    "drop.txt": ("100644", b"drop\n"),
    "run.sh": ("100644", b"#!/bin/sh\n"),
    "link": ("120000", b"edit.txt"),
    "folder": ("100644", b"a file\n"),
    "keep.txt": ("100644", b"kept\n"),
}
RESULT: Tree = {
    "edit.txt": ("100644", b"one\ntwo\n"),
    "run.sh": ("100755", b"#!/bin/sh\n"),
    "new/deep/file.txt": ("100644", b"new\n"),
    "link": ("120000", b"keep.txt"),
    "folder/inside.txt": ("100644", b"now a folder\n"),
    "keep.txt": ("100644", b"kept\n"),
}
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
MESSAGE = "Fix it\n\nRemit-Run: run_1\n"


class Bench:
    """A repository, a run's kept changes to it, and branches made of them."""

    def __init__(
        self, folder: Path, base: Tree = BASE, result: Tree = RESULT, *, commit: bool = True
    ) -> None:
        self.folder = folder
        self.order: DeliveryOrder = make_order(folder, base, result)
        self.root = self.order.root
        git(self.root, "init", "-q", "-b", "main")
        if commit:
            git(self.root, "add", "-A")
            git(self.root, "commit", "-q", "-m", "first")
        (folder / "home").mkdir()
        environment = {"HOME": str(folder / "home")}
        self.bases = Bases(folder / "data", environment=environment)

    async def pin(self) -> None:
        pin = await self.bases.pin(self.root)
        save_root(RunFolder.of(self.folder / "data", "run_1").folder, pin, "app")

    async def branches(self) -> Branches:
        return Branches(self.folder / "data", git=self.bases.git, user=await self.bases.user_settings())

    async def deliver(self, branch: str = "fix/it") -> Outcome:
        wanted = BranchOrder(order=self.order, branch=branch, message=MESSAGE)
        return await (await self.branches()).deliver(wanted, now=NOW)

    def everything(self) -> dict[str, Any]:
        """The tree, and what git has of it, but for objects and references."""
        skip = ("objects", "refs")
        return look(self.root, skip=skip) | {"head": git(self.root, "rev-parse", "HEAD")}


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    await made.pin()
    return made


async def test_the_commit_is_the_patch_and_nothing_else_changes(bench: Bench) -> None:
    """One commit on HEAD whose tree is the result; working tree, index, HEAD and settings as they were."""
    before = bench.everything()
    outcome = await bench.deliver()
    assert (outcome.status, outcome.ref) == ("delivered", "fix/it")
    assert bench.everything() == before
    assert git(bench.root, "rev-parse", "fix/it^") == git(bench.root, "rev-parse", "main")
    listed = git(bench.root, "ls-tree", "-r", "fix/it").split("\n")
    shown = {line.split("\t")[1]: line.split()[0] for line in listed}
    assert shown == {path: mode for path, (mode, _) in RESULT.items()}
    for path, (_, data) in RESULT.items():
        assert git(bench.root, "cat-file", "blob", f"fix/it:{path}").encode() == data.strip()
    assert git(
        bench.root, "log", "-1", "--format=%an <%ae>|%cn|%s|%(trailers:key=Remit-Run,valueonly)", "fix/it"
    ) == ("Remit <remit@localhost>|Remit|Fix it|run_1")
    assert git(bench.root, "fsck", "--strict", "--no-dangling") == ""
    assert git(bench.root, "status", "--porcelain") == ""


async def test_hooks_and_filters_do_not_run(bench: Bench) -> None:
    """R35: no hook of the repository and no filter of its settings runs; a filtered path is refused."""
    marker = bench.folder / "ran"
    hooks = bench.root / ".git/hooks"
    for name in ("reference-transaction", "post-commit", "pre-commit", "commit-msg", "post-update"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
        (hooks / name).chmod(0o755)
    git(bench.root, "config", "filter.evil.clean", f"touch {marker}; cat")
    git(bench.root, "config", "core.fsmonitor", f"touch {marker}; true")
    assert (await bench.deliver()).status == "delivered"
    assert not marker.exists()
    write(bench.root, {".git/info/attributes": "edit.txt filter=evil\n"})
    outcome = await bench.deliver("other")
    assert (outcome.status, outcome.paths) == ("refused", ("edit.txt",))
    assert outcome.why is not None
    assert "filter" in outcome.why
    assert not marker.exists()


async def test_uncommitted_work_has_a_commit_of_its_own(tmp_path: Path) -> None:
    """What was uncommitted in a changed file comes first; the last commit is the reviewed patch alone."""
    bench = Bench(tmp_path)
    git(bench.root, "rm", "-q", "--cached", "drop.txt")
    write(bench.root, {"edit.txt": "committed\n"})
    git(bench.root, "add", "edit.txt")
    git(bench.root, "commit", "-q", "-m", "second")
    write(bench.root, {"edit.txt": "one\n", "keep.txt": "mine alone\n", "secret.env": "k=v\n"})
    await bench.pin()
    assert (await bench.deliver()).status == "delivered"
    assert git(bench.root, "log", "--format=%s", "fix/it").split("\n") == [
        "Fix it",
        "Uncommitted work, as run run_1 found it",
        "second",
        "first",
    ]
    assert git(bench.root, "show", "--format=", "--name-status", "--no-renames", "fix/it^").split("\n") == [
        "A\tdrop.txt",
        "M\tedit.txt",
    ]
    changed = git(bench.root, "show", "--format=", "--name-only", "--no-renames", "fix/it").split("\n")
    assert set(changed) == {
        path for path in BASE.keys() | RESULT.keys() if BASE.get(path) != RESULT.get(path)
    }
    assert "secret.env" not in git(bench.root, "ls-tree", "-r", "--name-only", "fix/it")


async def test_a_repository_without_commits(tmp_path: Path) -> None:
    """Where there are no commits yet, the changed files' history begins with what was found."""
    bench = Bench(tmp_path, commit=False)
    await bench.pin()
    assert (await bench.deliver()).status == "delivered"
    assert len(git(bench.root, "log", "--format=%s", "fix/it").split("\n")) == 2
    assert "keep.txt" not in git(bench.root, "ls-tree", "-r", "--name-only", "fix/it")


async def test_line_ends_are_kept_as_git_add_would(tmp_path: Path) -> None:
    """R45: with `text=auto` a file laid out with CRLF is committed as git keeps it: one line differs."""
    base: Tree = {
        "a.txt": ("100644", b"one\r\ntwo\r\n"),
        ".gitattributes": ("100644", b"* text=auto eol=crlf\n"),
    }
    result: Tree = base | {"a.txt": ("100644", b"one\r\nTWO\r\n")}
    bench = Bench(tmp_path, base, result)
    await bench.pin()
    assert (await bench.deliver()).status == "delivered"
    assert git(bench.root, "diff", "--shortstat", "main", "fix/it").endswith("1 insertion(+), 1 deletion(-)")


async def test_it_is_made_once(bench: Bench) -> None:
    """R58: asked again, the branch stays as it is; another name is another branch of the same commit."""
    await bench.deliver()
    first = git(bench.root, "rev-parse", "fix/it")
    again = await bench.deliver()
    assert (again.status, again.repeated) == ("delivered", True)
    assert git(bench.root, "rev-parse", "fix/it") == first
    assert (await bench.deliver("other")).repeated is False
    assert git(bench.root, "rev-parse", "other") == first, "the same content at the same moment"


@pytest.mark.parametrize("died", ["copy_objects", "create_branch", "after"])
async def test_a_death_half_way_is_made_good(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, died: str
) -> None:
    """R58: wherever it died, asking again makes the one branch at the one commit."""

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    real = branching.create_branch

    def make_and_die(*arguments: Any) -> None:
        real(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        if died == "after":
            patched.setattr(branching, "create_branch", make_and_die)
        else:
            patched.setattr(branching, died, die)
        with pytest.raises(Killed):
            await bench.deliver()
    data = bench.folder / "data"
    recover_branches(data)
    assert list((data / "deliveries/branches").iterdir()) == []
    assert len((await bench.branches()).find("run_1")) == (died == "after"), "what was done is on record"
    outcome = await bench.deliver()
    assert outcome.status == "delivered"
    assert git(bench.root, "log", "--format=%s", "main..fix/it") == "Fix it"
    assert git(bench.root, "fsck", "--strict", "--no-dangling") == ""


async def test_a_stale_lock_of_its_own_is_taken_up(bench: Bench) -> None:
    """R58: a lock that this delivery left when it died is its own; one of somebody else's is a conflict."""
    lock = bench.root / ".git/refs/heads/fix/it.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("")
    outcome = await bench.deliver()
    assert outcome.status == "conflict"
    assert outcome.why is not None
    assert "locked" in outcome.why
    lock.unlink()
    await bench.deliver("other")
    lock.write_text(git(bench.root, "rev-parse", "other") + "\n")
    assert (await bench.deliver()).status == "delivered"


async def test_a_lock_that_a_dead_process_left_goes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """R58: what died between lock and branch leaves no lock to the next node; the living keep theirs."""
    heads = bench.root / ".git/refs/heads"

    class Killed(BaseException):
        pass

    def lock_and_die(repository: Any, branch: str, commit: str) -> None:
        (heads / "fix").mkdir()
        (heads / "fix/it.lock").write_text(f"{commit}\n")
        recover_branches(bench.folder / "data")
        assert (heads / "fix/it.lock").exists(), "this process is still at it"
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(branching, "create_branch", lock_and_die)
        with pytest.raises(Killed):
            await bench.deliver()
    recover_branches(bench.folder / "data")
    assert not (heads / "fix/it.lock").exists()
    git(bench.root, "branch", "fix/it")


@pytest.mark.parametrize(
    ("there", "asked"), [("fix/it", "fix/it"), ("fix", "fix/it"), ("fix/it/more", "fix/it")]
)
@pytest.mark.parametrize("packed", [False, True])
async def test_a_name_that_is_taken_is_a_conflict(bench: Bench, there: str, asked: str, packed: bool) -> None:
    """A branch of that name, or in the way of it, loose or packed: named, and nothing changes."""
    git(bench.root, "branch", there)
    if packed:
        git(bench.root, "pack-refs", "--all")
    before = git(bench.root, "for-each-ref")
    outcome = await bench.deliver(asked)
    assert (outcome.status, outcome.paths) == ("conflict", (asked,))
    assert outcome.why is not None
    assert there in outcome.why
    assert git(bench.root, "for-each-ref") == before
    with pytest.raises(NodeError):
        await (await bench.branches()).require_free(bench.root, asked)


@pytest.mark.parametrize("packed", [False, True])
async def test_undo_removes_the_branch(bench: Bench, packed: bool) -> None:
    """A branch that stands where the run left it goes; one that moved on, or is checked out, stays."""
    before = git(bench.root, "for-each-ref")
    await bench.deliver()
    if packed:
        git(bench.root, "pack-refs", "--all")
    branches = await bench.branches()
    git(bench.root, "checkout", "-q", "-f", "fix/it")
    undo = (bench.order.run_id, bench.order.content_hash, "fix/it")
    assert (await branches.undo(*undo)).why == "fix/it is checked out"
    git(bench.root, "commit", "-q", "--allow-empty", "-m", "more")
    git(bench.root, "checkout", "-q", "-f", "main")
    assert (await branches.undo(*undo)).why == "fix/it has moved on since"
    git(bench.root, "branch", "-f", "fix/it", "fix/it^")
    assert (await branches.undo(*undo)).status == "undone"
    assert git(bench.root, "for-each-ref") == before
    assert branches.find("run_1") == ()
    assert (await bench.deliver()).status == "delivered", "it can be made again"


async def test_a_linked_worktree_and_a_detached_head(tmp_path: Path) -> None:
    """The branch is made in the repository that a linked worktree belongs to, on the worktree's own HEAD."""
    main = tmp_path / "main"
    main.mkdir()
    git(main, "init", "-q", "-b", "main")
    write(main, {"a.txt": "a\n"})
    git(main, "add", "-A")
    git(main, "commit", "-q", "-m", "first")
    order = make_order(tmp_path / "w", {"a.txt": ("100644", b"a\n")}, {"a.txt": ("100644", b"b\n")})
    for path in order.root.iterdir():
        path.unlink()
    order.root.rmdir()
    git(main, "worktree", "add", "-q", "--detach", str(order.root))
    bases = Bases(tmp_path / "w/data", environment={"HOME": str(tmp_path)})
    save_root(RunFolder.of(tmp_path / "w/data", "run_1").folder, await bases.pin(order.root), "app")
    branches = Branches(tmp_path / "w/data", git=bases.git, user=await bases.user_settings())
    outcome = await branches.deliver(BranchOrder(order=order, branch="fix", message=MESSAGE), now=NOW)
    assert outcome.status == "delivered"
    assert git(main, "cat-file", "blob", "fix:a.txt") == "b"
    assert git(order.root, "status", "--porcelain") == ""


async def test_the_users_own_name(bench: Bench) -> None:
    """The commit is the user's where their settings name them, and no setting is run."""
    (bench.folder / "home/.gitconfig").write_text(
        "[user]\n\tname = Ann <b> Ö\n\temail = ann@example.invalid\n"
    )
    await bench.deliver()
    assert (
        git(bench.root, "log", "-1", "--format=%an|%ae|%cn", "fix/it")
        == "Ann b Ö|ann@example.invalid|Ann b Ö"
    )


async def test_a_planted_link_among_the_branches(bench: Bench) -> None:
    """R34: a link below `refs/heads` doesn't lead a branch's file out of the repository."""
    outside = bench.folder / "outside"
    outside.mkdir()
    (bench.root / ".git/refs/heads/fix").symlink_to(outside)
    for name in ("fix/it", "fix/deep/it"):
        outcome = await bench.deliver(name)
        assert outcome.status == "conflict"
    assert list(outside.iterdir()) == []


NAMES = [
    "-x",
    "a..b",
    "a b",
    "a~1",
    "x.lock",
    "a/.b",
    "@",
    "HEAD",
    "a//b",
    "/a",
    "a/",
    "a.",
    "refs/heads/a",
    "é\n",
]


@pytest.mark.parametrize("name", [*NAMES, "", "x" * 201, "a" * 40, "a@{1}", "a\x7f", "a\u202eb"])
def test_names_that_are_none(name: str) -> None:
    """What git wouldn't take, or would read as something else, is refused before anything starts."""
    with pytest.raises(InvalidRequest):
        check_branch_name(name)


@pytest.mark.parametrize("name", ["fix", "remit/run_01", "a.b-c/d", "ünïcode", default_branch("-x")])
def test_names_that_are_some(name: str) -> None:
    """Whatever passes, git takes, too."""
    assert check_branch_name(name) == name
    subprocess.run(
        ["git", "check-ref-format", "--branch", name], check=True, env=dict(os.environ), capture_output=True
    )
