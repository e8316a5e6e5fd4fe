"""Makes and removes branches in a user's repository, by git's own locks and nothing else of git.

No hook runs and no setting is read, since no git does it. A reference appears or goes in one step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from remit.workspaces._repository import Repository, read_reference

__all__ = [
    "BranchInTheWay",
    "create_branch",
    "delete_branch",
    "find_branch",
    "find_clash",
    "where_checked_out",
]

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class BranchInTheWay(Exception):
    """A reference is there already, is another one's folder, or is locked by a git that runs."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def find_branch(repository: Repository, branch: str) -> str | None:
    """The commit at which a branch stands; None: there is none."""
    return read_reference(repository.common_dir, f"refs/heads/{branch}")


def find_clash(repository: Repository, branch: str) -> str | None:
    """The branch that keeps one of this name from being made, in words; None: there is none."""
    wanted = f"refs/heads/{branch}"
    for name in _all_branches(repository):
        if name == wanted:
            return f"there is a branch {branch} already"
        if name.startswith(f"{wanted}/") or wanted.startswith(f"{name}/"):
            return f"there is a branch {name.removeprefix('refs/heads/')}, so there can't be one {branch}"
    return None


def _all_branches(repository: Repository) -> Iterator[str]:
    heads = repository.common_dir / "refs/heads"
    for folder, _, names in os.walk(heads):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), repository.common_dir)
            if not name.endswith(".lock"):
                yield path
    packed = repository.common_dir / "packed-refs"
    if packed.is_file():
        for line in packed.read_text("utf-8", "surrogateescape").split("\n"):
            if not line.startswith(("#", "^")) and " refs/heads/" in line:
                yield line.partition(" ")[2]


def create_branch(repository: Repository, branch: str, commit: str) -> None:
    """Make a branch that isn't there; one that stands at this commit already is as good.

    Raises:
        BranchInTheWay: Something else has the name, or a part of it, or its lock.
        OSError: It can't be written.
    """
    path = repository.common_dir / "refs/heads" / branch
    if find_branch(repository, branch) == commit:
        return
    _require_free(repository, branch)
    _require_within(repository, next(folder for folder in path.parents if folder.exists()))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise BranchInTheWay(f"a branch has a part of the name {branch}") from None
    lock = path.with_name(f"{path.name}.lock")
    _take_lock(lock, branch, commit)
    try:
        _require_free(repository, branch)  # git can't make it any more while the lock is ours
        os.rename(lock, path)
    except BaseException:
        with suppress(OSError):
            lock.unlink()
        raise
    _sync(path.parent)


def _require_free(repository: Repository, branch: str) -> None:
    clash = find_clash(repository, branch)
    if clash is not None:
        raise BranchInTheWay(clash)


def _require_within(repository: Repository, folder: Path) -> None:
    """A planted link below `refs` mustn't lead a branch's file out of the repository."""
    if not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(repository.common_dir)):
        raise BranchInTheWay("the repository's folder of branches leads out of it")


def _take_lock(lock: Path, branch: str, commit: str) -> None:
    text = f"{commit}\n".encode()
    try:
        fd = os.open(lock, _CREATE, 0o666)
    except FileExistsError:
        # What this same delivery left behind when it died; the commit's name is made of its content.
        if _read(lock) == text:
            return
        raise BranchInTheWay(f"git has locked {branch}; if no git runs, remove {lock}") from None
    try:
        os.write(fd, text)
        os.fsync(fd)
    finally:
        os.close(fd)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def delete_branch(repository: Repository, branch: str, commit: str) -> bool:
    """Remove a branch that still stands at a commit. False: it is gone, or stands elsewhere.

    Raises:
        BranchInTheWay: A git that runs has locked it.
        OSError: It can't be written.
    """
    path = repository.common_dir / "refs/heads" / branch
    lock = path.with_name(f"{path.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    _take_lock(lock, branch, commit)
    try:
        if find_branch(repository, branch) != commit:
            return False
        _unpack(repository, branch)
        with suppress(FileNotFoundError):
            path.unlink()
        return True
    finally:
        with suppress(OSError):
            lock.unlink()
        _remove_empty(repository, path.parent)


def _unpack(repository: Repository, branch: str) -> None:
    """Take a branch out of the packed references, under their lock."""
    packed = repository.common_dir / "packed-refs"
    wanted = f" refs/heads/{branch}"
    text = packed.read_text("utf-8", "surrogateescape") if packed.is_file() else ""
    lines = text.split("\n")
    if not any(line.endswith(wanted) for line in lines):
        return
    lock = packed.with_name("packed-refs.lock")
    try:
        fd = os.open(lock, _CREATE, 0o666)
    except FileExistsError:
        raise BranchInTheWay("git has locked the repository's references") from None
    kept: list[str] = []
    for number, line in enumerate(lines):
        of_it = line.endswith(wanted) or (line.startswith("^") and lines[number - 1].endswith(wanted))
        kept += [] if of_it else [line]
    with os.fdopen(fd, "wb") as file:
        file.write("\n".join(kept).encode("utf-8", "surrogateescape"))
        file.flush()
        os.fsync(file.fileno())
    os.rename(lock, packed)


def _remove_empty(repository: Repository, folder: Path) -> None:
    heads = repository.common_dir / "refs/heads"
    while folder != heads and folder.is_relative_to(heads):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def where_checked_out(repository: Repository, branch: str) -> Path | None:
    """The git folder of a working tree that has the branch checked out; None: none has."""
    trees = repository.common_dir / "worktrees"
    folders = [repository.common_dir, *(sorted(trees.iterdir()) if trees.is_dir() else ())]
    for folder in folders:
        if _read(folder / "HEAD").decode("utf-8", "replace").strip() == f"ref: refs/heads/{branch}":
            return folder
    return None


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
