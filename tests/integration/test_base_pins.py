"""The base pin: its id, what it holds, and the git folder that a checkout gets."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from git_repository import git, look, make_repository, write
from remit.errors import NodeError
from remit.workspaces._base import BasePin
from remit.workspaces._failures import WorkspaceRefused
from remit.workspaces._pinning import Bases, find_workspace_root
from remit.workspaces._private_git import HISTORY_DEPTH
from remit.workspaces.keeper._git_folder import copy_private_git

FILES = {
    "README.md": "hello\n",
    "src/app.py": "print('x')\n",
    "run.sh": "#!/bin/sh\n",
    ".gitignore": "build/\n",
}


@pytest.fixture
def bases(tmp_path: Path) -> Bases:
    return Bases(tmp_path / "data", environment={"HOME": str(tmp_path / "home")})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository", FILES)


def enter(pin: BasePin, place: Path) -> Path:
    """A copy of the base with its own git folder, as a checkout in `copy` would be."""
    shutil.copytree(pin.lower, place, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    assert pin.private_git
    copy_private_git(Path(pin.private_git), place / ".git")
    return place


async def test_a_clean_tree_is_its_commit(bases: Bases, repository: Path) -> None:
    """Without uncommitted work the id names the commit alone."""
    pin = await bases.pin(repository)
    head = git(repository, "rev-parse", "HEAD")
    assert pin.id == f"git:{head[:12]}"
    assert (pin.commit, pin.branch, pin.uncommitted) == (head, "refs/heads/main", ())
    assert pin.recent == (f"{head[:8]} first",)
    assert set(await bases.list_base(pin)) == set(FILES)


async def test_uncommitted_work_is_part_of_the_base(bases: Bases, repository: Path) -> None:
    """The id changes with the content of uncommitted and untracked files, and only with it."""
    clean = await bases.pin(repository)
    write(repository, {"src/app.py": "print('y')\n", "notes.txt": "n\n", "build/out": "ignored"})
    (repository / "run.sh").unlink()
    dirty = await bases.pin(repository)
    assert dirty.id.startswith(clean.id + "+")
    assert {(entry.path, entry.state) for entry in dirty.uncommitted} == {
        ("src/app.py", "modified"),
        ("notes.txt", "untracked"),
        ("run.sh", "deleted"),
    }
    assert set(await bases.list_base(dirty)) == {"README.md", "src/app.py", ".gitignore", "notes.txt"}
    assert dirty.ignored_folders == ("build",)
    os.utime(repository / "notes.txt", (5, 5))
    write(repository, {"build/out": "other"})
    assert (await bases.pin(repository)).id == dirty.id
    write(repository, {"notes.txt": "m\n"})
    assert (await bases.pin(repository)).id not in (dirty.id, clean.id)


@pytest.mark.parametrize("dirty", [False, True])
async def test_git_works_inside_a_checkout(
    bases: Bases, repository: Path, tmp_path: Path, dirty: bool
) -> None:
    """The private git starts clean on the base, and status, diff, log, add and commit work in it."""
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    if dirty:
        write(repository, {"src/app.py": "print('y')\n", "notes.txt": "n\n"})
    inside = enter(await bases.pin(repository), tmp_path / "inside")
    assert git(inside, "status", "--porcelain") == ""
    assert git(inside, "branch", "--show-current") == "main"
    assert ("Base of this checkout" in git(inside, "log", "--format=%s")) is dirty
    assert git(inside, "log", "--format=%s").splitlines()[-2:] == ["second", "first"]
    write(inside, {"src/app.py": "print('z')\n", "new.py": ""})
    assert git(inside, "diff", "--stat").count("|") == 1
    git(inside, "add", "-A")
    git(inside, "commit", "-q", "-m", "mine")
    assert git(inside, "show", "--stat", "--format=%s").startswith("mine")
    assert git(inside, "fsck", "--full") == ""


async def test_git_inside_a_checkout_knows_the_authors_nothing_else(
    bases: Bases, repository: Path, tmp_path: Path
) -> None:
    """R36: no remote, credential, hook, other branch, stash or dropped commit reaches the sandbox."""
    git(repository, "remote", "add", "origin", "https://user:secret@example.invalid/x.git")
    git(repository, "checkout", "-q", "-b", "other")
    write(repository, {"secret.txt": "branch secret\n"})
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "secret")
    secret = git(repository, "rev-parse", "HEAD:secret.txt")
    git(repository, "checkout", "-q", "main")
    write(repository, {"README.md": "stashed\n"})
    git(repository, "stash", "-q")
    stash = git(repository, "rev-parse", "stash@{0}")
    pin = await bases.pin(repository)
    inside = enter(pin, tmp_path / "inside")
    objects = git(inside, "cat-file", "--batch-all-objects", "--batch-check")
    assert secret not in objects
    assert stash not in objects
    assert git(inside, "for-each-ref", "--format=%(refname)").splitlines() == ["refs/heads/main"]
    assert git(inside, "remote") == ""
    assert "secret" not in (inside / ".git/config").read_text()
    assert not (inside / ".git/hooks").exists()
    assert not any(str(repository) in store for store in pin.object_stores)


async def test_history_is_cut_like_a_shallow_clone(bases: Bases, repository: Path, tmp_path: Path) -> None:
    """The nearest ancestors come along whole; git ends cleanly where the rest is cut off."""
    for number in range(HISTORY_DEPTH + 20):
        write(repository, {"README.md": f"{number}\n"})
        git(repository, "commit", "-qam", f"change {number}")
    write(repository, {"README.md": "dirty\n"})
    inside = enter(await bases.pin(repository), tmp_path / "inside")
    subjects = git(inside, "log", "--format=%s").splitlines()
    assert subjects[1] == f"change {HISTORY_DEPTH + 19}"
    assert len(subjects) == HISTORY_DEPTH + 2
    assert "dirty" in git(inside, "log", "-p", "-1")
    assert git(inside, "blame", "src/app.py").startswith("^")
    assert git(inside, "fsck", "--full") == ""
    assert git(inside, "status", "--porcelain") == ""


async def test_a_commit_is_laid_out_apart_from_the_tree(
    bases: Bases, repository: Path, tmp_path: Path
) -> None:
    """Base `head` or a revision: the commit's own bytes, whatever lies in the working tree; laid out once."""
    (repository / "link").symlink_to("README.md")
    (repository / "run.sh").chmod(0o755)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "second")
    write(repository, {"README.md": "dirty\n", "build/out": "", "untracked": ""})
    pin = await bases.pin(repository, wanted="head")
    assert pin.id == f"git:{git(repository, 'rev-parse', 'HEAD')[:12]}"
    assert pin.kind == "commit"
    assert pin.ignored_folders == ("build",)
    laid_out = look(Path(pin.lower))
    assert set(laid_out) == {*FILES, "src", "link"}
    assert laid_out["README.md"][1] == b"hello\n"
    assert laid_out["link"] == ("link", b"README.md")
    assert laid_out["run.sh"][0].startswith("file 7")
    inside = enter(pin, tmp_path / "inside")
    assert git(inside, "status", "--porcelain") == ""
    older = await bases.pin(repository, wanted="HEAD~1")
    assert "link" not in look(Path(older.lower))
    again = await bases.pin(repository, wanted="main~1")
    assert again.lower == older.lower
    for wrong in ("nowhere", "--output=x", "HEAD:README.md", ""):
        with pytest.raises(NodeError, match="names no commit"):
            await bases.pin(repository, wanted=wrong)


async def test_a_repository_without_commits(bases: Bases, tmp_path: Path) -> None:
    """No commits yet: the tree is the base all the same, and git works inside."""
    folder = tmp_path / "fresh"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    write(folder, {"a.txt": "a\n"})
    pin = await bases.pin(folder)
    assert pin.id.startswith("git:unborn+")
    assert pin.commit is None
    inside = enter(pin, tmp_path / "inside")
    assert git(inside, "status", "--porcelain") == ""
    assert git(inside, "branch", "--show-current") == "trunk"
    with pytest.raises(NodeError, match="no commits yet"):
        await bases.pin(folder, wanted="head")


async def test_a_linked_worktree(bases: Bases, repository: Path, tmp_path: Path) -> None:
    """A linked worktree (`.git` is a file) is a workspace like any other, on its own branch."""
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", "-b", "topic", str(linked))
    git(linked, "commit", "-q", "--allow-empty", "-m", "on topic")
    write(linked, {"mine.txt": "m\n"})
    pin = await bases.pin(linked)
    assert pin.branch == "refs/heads/topic"
    assert pin.commit == git(linked, "rev-parse", "HEAD")
    assert [entry.path for entry in pin.uncommitted] == ["mine.txt"]
    inside = enter(pin, tmp_path / "inside")
    assert git(inside, "status", "--porcelain") == ""
    assert git(inside, "log", "-2", "--format=%s").splitlines()[1] == "on topic"


async def test_the_workspace_of_a_sub_folder_is_the_git_root(repository: Path, tmp_path: Path) -> None:
    """A folder inside a repository works at the repository's root, and keeps its place."""
    found = find_workspace_root(repository / "src")
    assert (found.root, found.subdir) == (repository, "src")
    link = tmp_path / "link"
    link.symlink_to(repository / "src")
    assert find_workspace_root(link) == found
    plain = tmp_path / "plain"
    plain.mkdir()
    assert find_workspace_root(plain).root == plain


async def test_submodules_and_inner_repositories_stay_as_they_are(
    bases: Bases, repository: Path, tmp_path: Path
) -> None:
    """Submodules aren't part of the base; it is said, and git in the checkout isn't upset by them."""
    inner = make_repository(tmp_path / "inner", {"inside.txt": "x\n"})
    git(repository, "submodule", "--quiet", "add", str(inner), "sub")
    git(repository, "commit", "-qm", "submodule")
    make_repository(repository / "vendored", {"v.txt": "v\n"})
    pin = await bases.pin(repository)
    assert {(left.path, left.why) for left in pin.left_out} == {
        ("sub", "submodule"),
        ("vendored", "another repository"),
    }
    assert any("sub stays as it is" in note for note in pin.notes)
    assert pin.id == f"git:{git(repository, 'rev-parse', 'HEAD')[:12]}"
    inside = tmp_path / "inside"
    shutil.copytree(
        repository, inside, ignore=lambda folder, _: [".git"] if folder == str(repository) else []
    )
    copy_private_git(Path(pin.private_git or ""), inside / ".git")
    assert git(inside, "status", "--porcelain") == ""
    write(inside, {"new.txt": "n\n"})
    git(inside, "add", "-A")
    git(inside, "commit", "-q", "-m", "mine")
    assert git(inside, "show", "--name-only", "--format=").splitlines() == ["new.txt"]


async def test_files_laid_out_otherwise_than_stored(bases: Bases, repository: Path, tmp_path: Path) -> None:
    """The base's bytes are those in the tree: CRLF that git would turn into LF, and what a filter made."""
    write(repository, {".gitattributes": "*.txt text eol=crlf\n*.up filter=upper\n"})
    git(repository, "config", "filter.upper.clean", "tr A-Z a-z")
    git(repository, "config", "filter.upper.smudge", "tr a-z A-Z")
    write(repository, {"crlf.txt": "one\r\ntwo\r\n", "shout.up": "LOUD\n", "plain.md": "x\n"})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "converted")
    assert git(repository, "status", "--porcelain") == ""
    pin = await bases.pin(repository)
    assert pin.id == f"git:{git(repository, 'rev-parse', 'HEAD')[:12]}"
    inside = enter(pin, tmp_path / "inside")
    for name in ("crlf.txt", "shout.up"):
        os.utime(inside / name)
    assert git(inside, "status", "--porcelain") == ""
    (inside / "crlf.txt").write_bytes(b"one\r\nTWO\r\n")
    assert git(inside, "diff", "--numstat").split()[:2] == ["1", "1"]


async def test_awkward_trees(bases: Bases, repository: Path, tmp_path: Path) -> None:
    """R48: pipes, sockets, large and odd files, replaced folders: all in one tree, none of them blocks."""
    write(
        repository,
        {
            "src/app.py": "changed\n",
            "caf\udce9".encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape"): "latin\n",
            'q"uo\te': "q\n",
            "uml\u00e4ut": "u\n",
        },
    )
    os.mkfifo(repository / "pipe")
    (repository / "run.sh").unlink()
    os.mkfifo(repository / "run.sh")
    (repository / "README.md").unlink()
    write(repository, {"README.md/inner": "now a folder\n"})
    with (repository / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(repository)
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        pin = await bases.pin(repository)
    assert {left.path for left in pin.left_out} >= {"huge"}
    listing = await bases.list_base(pin)
    assert {"caf\udce9", 'q"uo\te', "uml\u00e4ut", "README.md/inner", "src/app.py"} <= set(listing)
    assert not {"run.sh", "README.md", "pipe", "huge"} & set(listing)
    assert '"caf\\351"' in {entry.path for entry in pin.uncommitted}
    assert pin.id.count("+") == 1


async def test_staged_and_unmerged_work(bases: Bases, repository: Path, tmp_path: Path) -> None:
    """A merge in progress and staged work: the base is what lies in the files."""
    git(repository, "checkout", "-q", "-b", "other")
    write(repository, {"README.md": "theirs\n"})
    git(repository, "commit", "-qam", "theirs")
    git(repository, "checkout", "-q", "main")
    write(repository, {"README.md": "ours\n"})
    git(repository, "commit", "-qam", "ours")
    with pytest.raises(AssertionError):
        git(repository, "merge", "other")
    write(repository, {"staged.txt": "staged\n"})
    git(repository, "add", "staged.txt")
    write(repository, {"staged.txt": "and then changed\n"})
    pin = await bases.pin(repository)
    states = {entry.path: entry.state for entry in pin.uncommitted}
    assert states == {"README.md": "unmerged", "staged.txt": "added"}
    inside = enter(pin, tmp_path / "inside")
    assert git(inside, "status", "--porcelain") == ""
    assert git(inside, "show", "HEAD:staged.txt") == "and then changed"
    assert "<<<<<<<" in git(inside, "show", "HEAD:README.md")


async def test_user_and_repository_excludes(tmp_path: Path, repository: Path) -> None:
    """Ignored: what the user and the repository ignore privately, and what tools leave behind."""
    home = tmp_path / "home"
    write(home, {".gitconfig": "[core]\n\texcludesFile = ~/mine\n", "mine": "*.swp\n"})
    write(repository, {"a.swp": "", "b.private": "", "src/__pycache__/x.pyc": "", "c.txt": ""})
    with (repository / ".git/info/exclude").open("a") as file:
        file.write("*.private\n")
    pin = await Bases(tmp_path / "data", environment={"HOME": str(home)}).pin(repository)
    assert [entry.path for entry in pin.uncommitted] == ["c.txt"]


async def test_split_and_sparse_indexes(bases: Bases, repository: Path, tmp_path: Path) -> None:
    """An index in two files, and one that leaves files out of the tree, are read as git means them."""
    git(repository, "update-index", "--split-index")
    write(repository, {"README.md": "changed\n"})
    git(repository, "add", "README.md")
    pin = await bases.pin(repository)
    assert [(entry.path, entry.state) for entry in pin.uncommitted] == [("README.md", "modified")]
    assert git(enter(pin, tmp_path / "split"), "status", "--porcelain") == ""
    git(repository, "update-index", "--no-split-index")
    git(repository, "commit", "-qm", "second")
    git(repository, "sparse-checkout", "set", "--cone")
    assert not (repository / "src").exists()
    sparse = await bases.pin(repository)
    assert sparse.uncommitted == ()
    inside = enter(sparse, tmp_path / "sparse")
    assert git(inside, "status", "--porcelain") == ""
    assert not (inside / "src").exists()


async def test_a_sha256_repository(bases: Bases, tmp_path: Path) -> None:
    """Repositories with SHA-256 objects work the same."""
    folder = tmp_path / "modern"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main", "--object-format=sha256")
    write(folder, {"a.txt": "a\n"})
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    write(folder, {"a.txt": "b\n"})
    pin = await bases.pin(folder)
    assert len(pin.commit or "") == 64
    assert git(enter(pin, tmp_path / "inside"), "status", "--porcelain") == ""


async def test_a_shallow_clone(bases: Bases, repository: Path, tmp_path: Path) -> None:
    """A clone cut at one commit is pinned without looking for what it lacks."""
    write(repository, {"README.md": "second\n"})
    git(repository, "commit", "-qam", "second")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", str(clone))
    write(clone, {"README.md": "dirty\n"})
    inside = enter(await bases.pin(clone), tmp_path / "inside")
    assert git(inside, "status", "--porcelain") == ""
    assert git(inside, "log", "--format=%s").splitlines()[1:] == ["second"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("gitdir: /nowhere/at/all\n", "isn't there"),
        ("nonsense", "doesn't name a git folder"),
        (None, "HEAD isn't there"),
        ("HEAD: ref: refs/heads/../../x", "git wouldn't take"),
        ("HEAD: garbage", "neither a commit"),
    ],
)
async def test_a_broken_repository(bases: Bases, tmp_path: Path, content: str | None, why: str) -> None:
    """A broken `.git` is one clear error, not a guess."""
    folder = tmp_path / "broken"
    folder.mkdir()
    if content is None:
        (folder / ".git").mkdir()
    elif content.startswith("HEAD: "):
        git(folder, "init", "-q")
        (folder / ".git/HEAD").write_text(content.removeprefix("HEAD: ") + "\n")
    else:
        (folder / ".git").write_text(content)
    with pytest.raises(NodeError, match=why):
        await bases.pin(folder)


async def test_a_folder_without_a_repository(bases: Bases, tmp_path: Path) -> None:
    """Without git the id is a hash over the tree's facts, and changes with any file."""
    folder = tmp_path / "plain"
    write(folder, {"a.txt": "a\n", "b/c.txt": "c\n"})
    os.mkfifo(folder / "pipe")
    first = await bases.pin(folder)
    assert first.id.startswith("tree:")
    assert first.private_git is None
    assert (await bases.pin(folder)).id == first.id
    listing = await bases.list_base(first)
    assert {"a.txt", "b/c.txt"} <= set(listing)
    write(folder, {"a.txt": "b\n"})
    assert (await bases.pin(folder)).id != first.id
    with pytest.raises(NodeError, match="isn't a git repository"):
        await bases.pin(folder, wanted="head")


async def test_what_cannot_be_a_workspace(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/`, home folders, a data folder inside, and folders too large to copy are refused before any work."""
    home = tmp_path / "someone"
    home.mkdir()
    bases = Bases(tmp_path / "data", environment={"HOME": str(home)})
    for folder in (Path("/"), home, tmp_path, Path("/home"), Path("/root")):
        if folder.is_dir() and (folder != Path("/home") or any(folder.iterdir())):
            with pytest.raises(WorkspaceRefused):
                await bases.pin(folder)
    with pytest.raises(WorkspaceRefused, match="lies inside"):
        await Bases(repository / "data", environment={"HOME": str(home)}).pin(repository)
    with pytest.raises(NodeError, match="isn't a folder"):
        await bases.pin(tmp_path / "absent")
    monkeypatch.setattr("remit.workspaces._pinning.MAX_FOLDER_FILES", 1)
    plain = tmp_path / "plain"
    write(plain, {"a": "", "b": ""})
    with pytest.raises(WorkspaceRefused, match="too much to copy"):
        await bases.pin(plain, copied=True)
    assert (await bases.pin(plain)).id.startswith("tree:")
