"""The git folder that a checkout shows as its `.git`: one base commit and its nearest ancestors.

A sandboxed command can read every object that this folder reaches, so it never reaches the user's own store:
other branches, stashes and what was dropped from history stay out. The base commit's history comes along to
a fixed depth, cut like a shallow clone (`git log`, `show` and `blame` then work and end cleanly). The objects
of a commit are packed once into a store of its own (deltas reused: 0.2 s for 50 000 files), which checkouts
read through `objects/info/alternates` and which is shown to them read-only.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from remit.workspaces._git import Git, GitError
from remit.workspaces._repository import Repository, shadow_repository
from remit.workspaces.keeper._git_folder import write_alternates

__all__ = [
    "HISTORY_DEPTH",
    "PRIVATE_SETTINGS",
    "build_commit_store",
    "finish_private_git",
    "publish_folder",
]

HISTORY_DEPTH = 50
"""How many generations of ancestors a checkout's `.git` holds."""

_WALKED_AT_MOST = 2_000
PRIVATE_SETTINGS = {
    # Files may be copies: their inode and change time differ from what the index says.
    "core.checkStat": "minimal",
    "core.trustctime": "false",
    "core.logallrefupdates": "false",
    "core.hooksPath": os.devnull,
    "diff.ignoreSubmodules": "all",
    "user.name": "Remit",
    "user.email": "remit@localhost",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
}


async def build_commit_store(git: Git, *, repository: Repository, commit: str, folder: Path) -> Path:
    """Pack a commit, its tree and its nearest ancestors into an object store; made once per commit.

    Args:
        git: The program.
        repository: Whose objects are read.
        commit: The commit.
        folder: Where the store goes: `folder/objects`, and `folder/shallow` with the commits it is cut at.

    Cancellation: nothing is left at `folder`.
    """
    if folder.is_dir():  # noqa: ASYNC240  one look, microseconds
        os.utime(folder)
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="store-", dir=folder.parent) as scratch:
        work = shadow_repository(repository, Path(scratch) / "git")
        cut = _shallow_commits(work)
        try:
            commits, boundary = await _nearest(git, work, commit, cut)
            await _pack(git, work, await list_tree_objects(git, work, commits))
        except GitError:  # a partial clone lacks what lies further back
            commits, boundary = [commit], [commit]
            await _pack(git, work, await _present(git, work, await list_tree_objects(git, work, commits)))
        (work / "shallow").write_text("".join(f"{name}\n" for name in boundary))
        write_alternates(work, [])
        publish_folder(work, folder)
    return folder


def publish_folder(made: Path, folder: Path) -> bool:
    """Put a finished folder at its place; False: another process was first, with the same content."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        made.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        return False
    return True


def _shallow_commits(git_dir: Path) -> set[str]:
    """The commits at which the user's own repository is cut."""
    shallow = git_dir / "shallow"
    return set(re.findall(r"[0-9a-f]{40,64}", shallow.read_text("ascii"))) if shallow.is_file() else set()


async def _nearest(git: Git, git_dir: Path, commit: str, cut: set[str]) -> tuple[list[str], list[str]]:
    """Commits within the depth, and those of them whose parents are left out."""
    listed = await git.run("rev-list", "--parents", f"--max-count={_WALKED_AT_MOST}", commit, git_dir=git_dir)
    parents = {line.split()[0]: line.split()[1:] for line in listed.decode("ascii").splitlines()}
    depths = {commit: 0}
    queue = [commit]
    for name in queue:
        if depths[name] < HISTORY_DEPTH:
            for parent in parents[name]:
                if parent in parents and parent not in depths:
                    depths[parent] = depths[name] + 1
                    queue.append(parent)
    boundary = [name for name in queue if name in cut or any(p not in depths for p in parents[name])]
    return queue, boundary


async def list_tree_objects(
    git: Git, git_dir: Path, commits: Sequence[str], *, without: Sequence[str] = ()
) -> bytes:
    """The ids of some commits and of all their trees and blobs, a line each, less those of `without`."""
    walk = ["--stdin"] if without else ["--no-walk=unsorted", "--stdin"]
    wanted = [*commits, *(f"^{name}" for name in without)]
    return await git.run(
        "rev-list",
        "--objects",
        "--no-object-names",
        *walk,
        git_dir=git_dir,
        stdin="".join(f"{name}\n" for name in wanted).encode(),
    )


async def _present(git: Git, git_dir: Path, objects: bytes) -> bytes:
    checked = await git.run("cat-file", "--batch-check=%(objectname)", git_dir=git_dir, stdin=objects)
    return b"".join(line + b"\n" for line in checked.split(b"\n") if line and not line.endswith(b" missing"))


async def _pack(git: Git, git_dir: Path, objects: bytes) -> None:
    """Write one pack; existing deltas are reused, none are looked for."""
    if objects:
        await git.run(
            "pack-objects",
            "-q",
            "--window=0",
            "--delta-base-offset",
            str(git_dir / "objects/pack/pack"),
            git_dir=git_dir,
            stdin=objects,
        )


async def finish_private_git(
    git: Git, *, git_dir: Path, commit: str, branch: str | None, known: str | None
) -> None:
    """Turn the git folder that a base was pinned with into one that a sandbox may see.

    Args:
        git: The program.
        git_dir: A git folder with the index of the base and with all objects that its commit store hasn't.
        commit: The base commit.
        branch: The name that HEAD shows; None: detached.
        known: The commit whose store it reads; None: there is none.
    """
    loose = [entry for entry in (git_dir / "objects").iterdir() if len(entry.name) == 2]
    if commit != known:
        without = [known] if known else []
        await _pack(git, git_dir, await list_tree_objects(git, git_dir, [commit], without=without))
    for folder in loose:
        shutil.rmtree(folder)
    if branch:
        (git_dir / "packed-refs").write_text(f"{commit} {branch}\n", "utf-8", "surrogateescape")
    head = f"ref: {branch}\n" if branch else f"{commit}\n"
    (git_dir / "HEAD").write_text(head, "utf-8", "surrogateescape")
