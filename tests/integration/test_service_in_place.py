"""Runs in place: the tree itself is worked on, and can be taken back as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from git_repository import git, look, make_repository, write
from remit.contract import NodeFailure, OpenRequest, PrepareRequest
from remit.workspaces.keeper._landlock import landlock_version
from service_kit import FILES, Node, node_of

WORK = (
    "echo changed > app.py; rm sub/inner.txt sub/private; mkdir new; echo new > new/file; "
    "chmod +x test_app.py; ln -s app.py link; echo ignored > out.log; "
    "git commit -qam x; echo hook > .git/hooks/post-checkout; true"
)


@pytest.fixture(params=["git", "folder"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A repository with uncommitted work, or a folder without one."""
    folder = tmp_path / "repo"
    if request.param == "git":
        make_repository(folder, {**FILES, ".gitignore": "*.log\n", "sub/private": "mine\n"})
        write(folder, {"AGENTS.md": "Edited, not committed.\n", "draft.txt": "untracked\n"})
    else:
        write(folder, {**FILES, "draft.txt": "kept\n", "sub/private": "mine\n"})
    (folder / "sub/private").chmod(0o600)
    return folder


async def work(node: Node) -> None:
    prepared = await node.prepare(isolation="in_place")
    assert prepared.isolation == "in_place"
    assert any("promise 4 is off" in note for note in prepared.notes)
    opened = await node.ask_open(prepared.base)
    assert (opened.isolation, opened.root) == ("in_place", str(node.root))
    answer = await node.tool("run_shell", command=WORK)
    assert answer.status == "success", answer


async def test_the_tree_itself_is_changed_and_taken_back(tmp_path: Path, root: Path) -> None:
    """The patch tells what was done; undo puts back content, modes and removed files."""
    before = look(root)
    async with node_of(tmp_path, root, checks=[]) as node:
        await work(node)
        assert (root / "app.py").read_text() == "changed\n"
        snapshot = await node.snapshot()
        paths = {path.path: path.change for path in snapshot.paths}
        assert paths | {"out.log": "added"} == {
            "app.py": "modified",
            "sub/inner.txt": "deleted",
            "sub/private": "deleted",
            "new/file": "added",
            "test_app.py": "mode",
            "link": "added",
            "out.log": "added",
        }
        assert not any(flag.startswith("moved:") for flag in snapshot.flags)
        cleaned = await node.cleanup(keep=True)
        assert not cleaned.kept
        deliveries = node.service.deliveries
        (content_hash,) = deliveries.find_delivered("run_1")
        outcome = deliveries.undo("run_1", content_hash)
        assert outcome.status == "undone"
        after = look(root)
        after.pop("out.log", None)
        assert after == before
        assert deliveries.find_delivered("run_1") == ()
        assert not (tmp_path / "data/runs/run_1/before").exists()
    if (root / ".git").exists():
        assert git(root, "log", "--oneline").count("\n") <= 1
        assert not (root / ".git/hooks/post-checkout").exists()


async def test_what_a_cancelled_run_did_can_be_taken_back_too(tmp_path: Path, root: Path) -> None:
    """Nobody took a snapshot: the end of the checkout does."""
    before = look(root)
    async with node_of(tmp_path, root, checks=[]) as node:
        await work(node)
        await node.cleanup()
        deliveries = node.service.deliveries
        (content_hash,) = deliveries.find_delivered("run_1")
        assert deliveries.undo("run_1", content_hash).status == "undone"
    after = look(root)
    after.pop("out.log", None)
    assert after == before


async def test_what_was_changed_since_isnt_taken_back(tmp_path: Path, root: Path) -> None:
    """All or nothing: a file that somebody has touched afterwards stops the undo."""
    async with node_of(tmp_path, root, checks=[]) as node:
        await work(node)
        await node.cleanup()
        (root / "new/file").write_text("mine now\n")
        deliveries = node.service.deliveries
        (content_hash,) = deliveries.find_delivered("run_1")
        assert deliveries.undo("run_1", content_hash).status == "conflict"
    assert (root / "app.py").read_text() == "changed\n"


async def test_a_run_in_place_that_changes_nothing_leaves_nothing_to_undo(tmp_path: Path, root: Path) -> None:
    """And none can start from it."""
    async with node_of(tmp_path, root, checks=[]) as node:
        prepared = await node.prepare(isolation="in_place")
        await node.ask_open(prepared.base)
        await node.cleanup()
        assert node.service.deliveries.find_delivered("run_1") == ()
        request = OpenRequest(run_id="run_2", workspace_ref="app", base=prepared.base)
        assert isinstance(await node.service.handle(request), NodeFailure)


@pytest.mark.skipif(landlock_version() < 3, reason="this kernel has no Landlock")
async def test_git_of_the_user_is_out_of_reach_or_there_is_no_run(tmp_path: Path) -> None:
    """R35: what a command could plant in the user's own `.git` would run outside of any sandbox."""
    root = make_repository(tmp_path / "app", FILES)
    make_repository(root / "vendored", {"v.txt": "v\n"})
    before = look(root / ".git")
    async with node_of(tmp_path, root, checks=[], sandbox="landlock") as node:
        asked = PrepareRequest(run_id="run_1", workspace_ref="app", isolation="in_place")
        failed = await node.ask(asked, NodeFailure)
        assert "a run in place needs bubblewrap" in failed.message
    async with node_of(tmp_path, root, checks=[]) as node:
        prepared = await node.prepare(isolation="in_place")
        assert any("`.git` is read-only" in note for note in prepared.notes)
        await node.ask_open(prepared.base)
        plant = "echo x > .git/hooks/post-checkout; echo x >> .git/config; mv .git away; rm -rf .git; "
        await node.tool("run_shell", command=f"{plant} git init -q made; echo x >> vendored/v.txt")
        assert look(root / ".git") == before
        flags = (await node.snapshot()).flags
        assert "skipped:made/.git (git's own name)" in flags
        assert not any("vendored/.git" in flag for flag in flags)


async def test_without_a_sandbox_nothing_is_said_to_be_protected(tmp_path: Path) -> None:
    """R35: at the level `external` the run says that `.git` is open to commands."""
    root = make_repository(tmp_path / "app", FILES)
    async with node_of(tmp_path, root, checks=[], sandbox="external") as node:
        prepared = await node.prepare(isolation="in_place")
        assert any("`.git` isn't protected from them" in note for note in prepared.notes)
