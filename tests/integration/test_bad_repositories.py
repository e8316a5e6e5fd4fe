"""Repositories as they are found: each just works, or says in one clear sentence why not."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from git_repository import git, look, make_repository, write
from remit.contract import NodeFailure, PrepareRequest
from service_kit import node_of

FILES = {"a.txt": "one\ntwo\n", "sub/b.txt": "b\n"}


def plain(folder: Path) -> Path:
    return make_repository(folder / "app", FILES)


def with_submodule(folder: Path) -> Path:
    other = make_repository(folder / "other", {"inner.txt": "inner\n"})
    root = plain(folder)
    git(root, "submodule", "add", "-q", str(other), "module")
    git(root, "commit", "-q", "-m", "a submodule")
    return root


def with_lfs_pointers(folder: Path) -> Path:
    root = plain(folder)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 12345\n"
    write(root, {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "big.bin": pointer})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "pointers")
    git(root, "config", "filter.lfs.clean", "false")
    git(root, "config", "filter.lfs.smudge", "false")
    git(root, "config", "filter.lfs.required", "true")
    return root


def with_link_loops(folder: Path) -> Path:
    root = plain(folder)
    (root / "loop").symlink_to("loop")
    (root / "sub/up").symlink_to("..")
    (root / "first").symlink_to("second")
    (root / "second").symlink_to("first")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "loops")
    return root


def with_fifos(folder: Path) -> Path:
    root = plain(folder)
    os.mkfifo(root / "pipe")
    os.mkfifo(root / "sub/pipe")
    return root


def with_two_gigabytes(folder: Path) -> Path:
    root = plain(folder)
    for name in ("disk.img", "sub/disk.img"):
        with (root / name).open("wb") as file:
            file.truncate(2 << 30)
    return root


def with_colliding_cases(folder: Path) -> Path:
    return make_repository(folder / "app", FILES | {"A.TXT": "another\n", "Sub/b.txt": "other\n"})


def with_odd_names(folder: Path) -> Path:
    root = plain(folder)
    for name in (
        b"caf\xe9.txt",
        b"new\nline.txt",
        b"tab\t.txt",
        b'quo"te.txt',
        b" blank ",
        b"-dash",
        b"\xff\xfe",
    ):
        Path(os.fsdecode(os.path.join(os.fsencode(root), name))).write_text("odd\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "odd names")
    return root


def with_read_only_files(folder: Path) -> Path:
    root = plain(folder)
    (root / "a.txt").chmod(0o444)
    (root / "sub/b.txt").chmod(0o400)
    return root


def with_inner_repositories(folder: Path) -> Path:
    root = plain(folder)
    make_repository(root / "vendor/inner", {"x.txt": "x\n"})
    make_repository(root / "empty", {})
    return root


def with_line_ends(folder: Path) -> Path:
    root = plain(folder)
    write(
        root,
        {".gitattributes": "* text=auto eol=crlf\n", "win.txt": "one\r\ntwo\r\n", "a.txt": "one\r\ntwo\r\n"},
    )
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "line ends")
    git(root, "config", "core.autocrlf", "true")
    return root


def without_commits(folder: Path) -> Path:
    root = folder / "app"
    root.mkdir()
    git(root, "init", "-q")
    write(root, FILES)
    return root


def as_linked_worktree(folder: Path) -> Path:
    main = make_repository(folder / "main", FILES)
    git(main, "worktree", "add", "-q", str(folder / "app"))
    return folder / "app"


def as_shallow_clone(folder: Path) -> Path:
    source = make_repository(folder / "source", FILES)
    git(source, "commit", "-q", "--allow-empty", "-m", "second")
    git(folder, "clone", "-q", "--depth", "1", f"file://{source}", "app")
    return folder / "app"


def with_a_detached_head(folder: Path) -> Path:
    root = plain(folder)
    git(root, "checkout", "-q", "--detach")
    return root


def in_the_middle_of_a_rebase(folder: Path) -> Path:
    root = plain(folder)
    git(root, "checkout", "-q", "-b", "topic")
    write(root, {"c.txt": "topic\n"})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "topic")
    git(root, "checkout", "-q", "main")
    write(root, {"c.txt": "main\n"})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "main")
    git(root, "checkout", "-q", "topic")
    with pytest.raises(AssertionError):
        git(root, "rebase", "-q", "main")
    assert (root / ".git/rebase-merge").is_dir()
    return root


WORKING: list[Callable[[Path], Path]] = [
    with_submodule,
    with_lfs_pointers,
    with_link_loops,
    with_fifos,
    with_two_gigabytes,
    with_colliding_cases,
    with_odd_names,
    with_read_only_files,
    with_inner_repositories,
    with_line_ends,
    without_commits,
    as_linked_worktree,
    as_shallow_clone,
    with_a_detached_head,
    in_the_middle_of_a_rebase,
]


def whole(root: Path) -> Mapping[str, object]:
    """Everything in a tree but the contents of huge files; git's folders only by their index and HEAD."""
    huge = {path: path.stat().st_size for path in root.rglob("*.img")}
    for path in huge:
        path.rename(path.with_suffix(".aside"))
    aside = [path.with_suffix(".aside") for path in huge]
    moved = [path.rename(root.parent / f"aside-{number}") for number, path in enumerate(aside)]
    try:
        return dict(look(root)) | {str(path): size for path, size in huge.items()}
    finally:
        for path, target in zip(moved, huge, strict=True):
            path.rename(target)


COPIED = (with_two_gigabytes, with_fifos, with_colliding_cases, with_odd_names, with_read_only_files)


@pytest.mark.parametrize(
    ("made", "isolation"),
    [*((made, "auto") for made in WORKING), *((made, "copy") for made in COPIED)],
    ids=lambda value: getattr(value, "__name__", value),
)
async def test_it_just_works(tmp_path: Path, made: Callable[[Path], Path], isolation: str) -> None:
    """R45, R48: prepared, worked in, delivered, undone: what was asked changes, and nothing else does."""
    root = made(tmp_path)
    before, ends = whole(root), "\r\n" if made is with_line_ends else "\n"
    async with node_of(tmp_path, root, checks=[], isolation=isolation) as node:
        await node.open()
        edited = await node.tool("edit_file", relative_path="a.txt", old="one", new="1")
        assert edited.status == "success", edited.content
        await node.tool("write_file", relative_path="sub/new.txt", content="new\n")
        listed = await node.tool(
            "run_shell", command="git status --short && git log --oneline | head -3; ls -R | head"
        )
        assert listed.status == "success", listed.content
        snapshot = await node.snapshot()
        assert [path.path for path in snapshot.paths] == ["a.txt", "sub/new.txt"]
        delivered = await node.deliver(snapshot)
        assert delivered.status == "delivered", delivered
        after = whole(root)
        differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        assert differing == {"a.txt", "sub/new.txt"}
        assert (root / "a.txt").read_bytes() == f"1{ends}two{ends}".encode()
        await node.cleanup()
        undone = node.service.deliveries.undo("run_1", snapshot.content_hash)
        assert undone.status == "undone"
        assert whole(root) == before


def broken_git_file(folder: Path) -> Path:
    root = folder / "app"
    write(root, {"a.txt": "a\n", ".git": "not a git folder\n"})
    return root


def git_file_that_leads_nowhere(folder: Path) -> Path:
    root = folder / "app"
    write(root, {"a.txt": "a\n", ".git": "gitdir: ../gone\n"})
    return root


def empty_git_folder(folder: Path) -> Path:
    root = folder / "app"
    write(root, {"a.txt": "a\n"})
    (root / ".git").mkdir()
    return root


def garbage_head(folder: Path) -> Path:
    root = plain(folder)
    (root / ".git/HEAD").write_bytes(b"\xff\xfe garbage")
    return root


def garbage_index(folder: Path) -> Path:
    root = plain(folder)
    (root / ".git/index").write_bytes(b"DIRC" + b"\0" * 40)
    return root


def missing_objects(folder: Path) -> Path:
    root = plain(folder)
    for path in (root / ".git/objects").glob("[0-9a-f][0-9a-f]/*"):
        path.chmod(0o644)
        path.unlink()
    return root


def bare(folder: Path) -> Path:
    source = plain(folder / "source")
    git(folder, "clone", "-q", "--bare", str(source), "app")
    return folder / "app"


def the_git_folder_itself(folder: Path) -> Path:
    return plain(folder) / ".git"


BROKEN: list[tuple[Callable[[Path], Path], str]] = [
    (broken_git_file, "isn't a working repository"),
    (git_file_that_leads_nowhere, "isn't there"),
    (empty_git_folder, "isn't there"),
    (garbage_head, "isn't a working repository"),
    (garbage_index, "index"),
    (missing_objects, ""),
    (bare, "bare repository"),
    (the_git_folder_itself, "git's own folder"),
]


@pytest.mark.parametrize(("made", "why"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
async def test_it_says_why_not(tmp_path: Path, made: Callable[[Path], Path], why: str) -> None:
    """What can't be worked in is refused in the preparation, in a sentence, and nothing in it changes."""
    root = made(tmp_path)
    before = look(root, skip=())
    async with node_of(tmp_path, root, checks=[]) as node:
        answer = await node.service.handle(PrepareRequest(run_id="run_1", workspace_ref="app"))
    assert isinstance(answer, NodeFailure), answer
    assert answer.reason in ("unavailable", "refused")
    assert why in answer.message
    assert "Traceback" not in answer.message
    assert len(answer.message) < 700
    assert look(root, skip=()) == before
