"""Commits of a run's changes, built in a git folder of the node's own from the bytes that were reviewed.

Nothing of the user's repository is touched but, at the end, its store of objects: each appears whole or not
at all.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from remit.errors import NodeError
from remit.workspaces._changes import Blobs, Change, Content
from remit.workspaces._git import Git
from remit.workspaces._pinning import UserSettings
from remit.workspaces._repository import Repository, read_settings, shadow_repository
from remit.workspaces.keeper._tree import show_path

__all__ = ["CommitBuilder", "copy_objects", "find_identity"]

_EMPTY_TREE = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
_NO_FILTER = {b"unspecified", b"unset", b"set"}
_FOUND_SUBJECT = "Uncommitted work, as run {run} found it"
REMIT = ("Remit", "remit@localhost")
"""Who commits where the user's settings name nobody."""


class CommitBuilder:
    """Builds trees and commits in a git folder of the node's own, as `git add` would have them."""

    def __init__(
        self,
        git: Git,
        repository: Repository,
        blobs: Blobs,
        scratch: Path,
        user: UserSettings,
        base: str | None,
    ) -> None:
        self._git = git
        self._repository = replace(repository, head=base)
        self._blobs = blobs
        self._scratch = scratch
        self._user = user
        self._base = base
        self.git_dir = scratch / "git"

    async def begin(self) -> None:
        """Stand at the base commit, with the user's line ends and attributes in force, and no filter."""
        repository = self._repository
        own = repository.common_dir / "info/attributes"
        line_ends = dict(self._user.line_ends) | dict(repository.line_ends)
        settings = line_ends | {"core.safecrlf": "false", "core.filemode": "true", "core.symlinks": "true"}
        text = own.read_text("utf-8", "surrogateescape") if own.is_file() else ""
        await asyncio.to_thread(
            shadow_repository, repository, self.git_dir, attributes=text, settings=settings
        )
        if self._base is not None:
            await self._run("read-tree", self._base)

    async def find_filtered(self, changes: Sequence[Change]) -> tuple[str, ...]:
        """The changed paths that git would have a filter work on."""
        stdin = b"".join(os.fsencode(change.path) + b"\0" for change in changes)
        answered = await self._run("check-attr", "--cached", "-z", "--stdin", "filter", stdin=stdin)
        fields = answered.split(b"\0")
        entries = zip(fields[::3], fields[2::3], strict=False)
        return tuple(show_path(os.fsdecode(path)) for path, value in entries if value not in _NO_FILTER)

    async def commit(
        self, changes: Sequence[Change], *, run_id: str, message: str, identity: tuple[str, str], at_s: int
    ) -> str:
        """The commit that holds the changes; below it, where it is needed, one with what was uncommitted."""
        repository, parent = self._repository, self._base
        before = _EMPTY_TREE[repository.object_format]
        if parent is not None:
            before = (await self._run("rev-parse", f"{parent}^{{tree}}")).decode().split()[-1]
        found = await self._tree({change.path: change.base for change in changes}, "found")
        if found != before:
            subject = _FOUND_SUBJECT.format(run=run_id)
            parent = await self._commit(found, parent, f"{subject}\n", identity, at_s)
        result = await self._tree({change.path: change.result for change in changes}, "result")
        return await self._commit(result, parent, message, identity, at_s)

    async def _tree(self, sides: Mapping[str, Content | None], name: str) -> str:
        """The tree with these contents at their paths."""
        laid_out = self._scratch / name
        gone = [path for path, content in sides.items() if content is None]
        there = [path for path, content in sides.items() if content is not None]
        await asyncio.to_thread(_lay_out, laid_out, sides, self._blobs)
        if gone:
            await self._update_index(gone, laid_out, "--force-remove")
        if there:
            await self._update_index(there, laid_out, "--add", "--replace")
        return (await self._run("write-tree", "--missing-ok")).decode().strip()

    async def _update_index(self, paths: Sequence[str], laid_out: Path, *options: str) -> None:
        stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
        await self._git.run(
            "update-index",
            *options,
            "-z",
            "--stdin",
            git_dir=self.git_dir,
            work_tree=laid_out,
            stdin=stdin,
        )

    async def _commit(
        self, tree: str, parent: str | None, message: str, identity: tuple[str, str], at_s: int
    ) -> str:
        date = f"@{at_s} +0000"
        extra = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (("NAME", identity[0]), ("EMAIL", identity[1]), ("DATE", date))
        }
        parents = ["-p", parent] if parent is not None else []
        stdin = message.encode("utf-8", "replace")
        made = await self._git.run(
            "commit-tree", tree, *parents, git_dir=self.git_dir, stdin=stdin, extra=extra
        )
        return made.decode().strip()

    async def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return await self._git.run(*arguments, git_dir=self.git_dir, work_tree=self._scratch, stdin=stdin)


def _lay_out(folder: Path, sides: Mapping[str, Content | None], blobs: Blobs) -> None:
    """The contents as files, in a folder of the node's own."""
    folder.mkdir(mode=0o700)
    for path, content in sides.items():
        if content is None:
            continue
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        data = blobs.read(content)
        if hashlib.sha256(data).hexdigest() != content.sha256:
            raise NodeError("the bytes kept for this run are damaged", reason="lost")
        if content.mode == "120000":
            os.symlink(data, os.fsencode(target))
            continue
        target.write_bytes(data)
        target.chmod(0o755 if content.mode == "100755" else 0o644)


async def find_identity(git: Git, repository: Repository, user: UserSettings) -> tuple[str, str]:
    """Who commits: as the repository's own settings say, else the user's, else Remit."""
    own = await read_settings(git, repository.common_dir / "config")
    name, email = (own.get(key) or user.settings.get(key) for key in ("user.name", "user.email"))
    if not name or not email:
        return REMIT
    cleaned = tuple(
        "".join(char for char in text if char.isprintable() and char not in "<>") for text in (name, email)
    )
    return (cleaned[0].strip(), cleaned[1].strip()) if all(text.strip() for text in cleaned) else REMIT


def copy_objects(made: Path, store: Path) -> None:
    """Put loose objects into a store; each appears whole, under the name of its content."""
    owner = store.stat()
    for source in sorted(made.glob("[0-9a-f][0-9a-f]/*")):
        target = store / source.parent.name / source.name
        if target.exists():
            continue
        if not target.parent.is_dir():
            target.parent.mkdir(exist_ok=True)
            _give(target.parent, owner)
        unfinished = store / f"tmp_obj_remit_{secrets.token_hex(6)}"  # git's own clean-up removes such
        try:
            with unfinished.open("xb") as file:
                file.write(source.read_bytes())
                file.flush()
                os.fsync(file.fileno())
            unfinished.chmod(0o444)
            _give(unfinished, owner)
            os.rename(unfinished, target)
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()


def _give(path: Path, owner: os.stat_result) -> None:
    """The owner of the store, as far as this user may set it."""
    with suppress(PermissionError):
        os.chown(path, owner.st_uid, owner.st_gid)
