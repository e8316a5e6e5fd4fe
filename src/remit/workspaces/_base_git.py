"""Pins a git base: the working tree as it lies there, or a commit laid out in a folder of the node's own.

The index of a pin holds every file of the base as it is laid out, with the facts by which git sees that a
file hasn't changed; its blobs are the base's bytes, whatever happens to the user's tree later.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from remit.errors import NodeError
from remit.workspaces._base import BasePin, LeftOut
from remit.workspaces._base_index import (
    Converting,
    TreeStatus,
    copy_index,
    find_converted,
    hash_uncommitted,
    leave_out,
    list_ignored_folders,
    list_index,
    may_convert,
    read_status,
    update_index,
)
from remit.workspaces._git import Git, GitError
from remit.workspaces._known_pins import KnownBases
from remit.workspaces._private_git import (
    PRIVATE_SETTINGS,
    build_commit_store,
    finish_private_git,
    publish_folder,
)
from remit.workspaces._repository import Repository, shadow_repository
from remit.workspaces.keeper._git_folder import write_alternates
from remit.workspaces.keeper._tree import show_path

__all__ = ["GENERATED", "GitBases"]

GENERATED = (
    "__pycache__/",
    "*.pyc",
    "*.pyo",
    ".pytest_cache/",
    ".mypy_cache/",
    ".ruff_cache/",
    ".hypothesis/",
    ".tox/",
    ".nox/",
    ".venv/",
    "node_modules/",
    ".DS_Store",
    ".remit-write-*",
)
"""What tools leave behind: ignored unless the repository tracks it or says otherwise."""

_RECENT = 20
_SHORT = 12
_IDENTITY = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "Remit"), ("EMAIL", "remit@localhost"))
}
_BASE_SUBJECT = b"Base of this checkout: the working tree as it was\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitBases:
    """Makes the pins of one repository."""

    git: Git
    known: KnownBases
    folder: Path
    """Where pins, commit stores and laid-out commits of this root are kept."""
    excludes: str = ""
    """Patterns of the user's own, as git's `info/exclude` has them."""
    line_ends: Mapping[str, str] = field(default_factory=dict[str, str])
    """How the user's own settings lay out line ends."""

    async def pin_worktree(self, repository: Repository) -> BasePin:
        """Pin the working tree as it lies there. The user's git folder is only read.

        Cancellation: nothing is left but complete commit stores.
        """
        root = repository.root
        store = await self._store(repository)
        async with self._scratch() as scratch:
            git_dir = scratch / "git"
            converting = await asyncio.to_thread(self._prepare_look, repository, scratch, store)
            status = await read_status(self.git, repository, converting, git_dir / "index")
            clean = not status.changed and not status.left_out
            key = self._key(repository, converting)
            known = self.known.find_clean(key) if clean else None
            if known is not None:
                return _again(known, git_dir, status)
            await asyncio.to_thread(self._shadow, repository, git_dir, store)
            write_alternates(converting.git_dir, [git_dir / "objects"])  # it reads what is written there now
            listing = await list_index(self.git, git_dir)
            converted = await find_converted(self.git, repository, listing, converting)
            await update_index(self.git, git_dir, root, {*status.changed, *converted})
            submodules = [path for path, entry in listing.items() if entry.mode == "160000"]
            await self._leave_out(git_dir, status, submodules)
            commit, tree = await self._commit(repository, git_dir)
            suffix = hash_uncommitted(root, tree, status)
            short = repository.head[:_SHORT] if repository.head else "unborn"
            pin = BasePin(
                id=f"git:{short}+{suffix}" if suffix else f"git:{short}",
                kind="worktree",
                root=str(root),
                lower=str(root),
                store="",
                uncommitted=tuple(status.changed[path] for path in sorted(status.changed)),
            )
            plain = clean and not submodules and not may_convert(repository, listing, converting)
            pin = await self._publish(repository, git_dir, commit, status, pin, store)
            if plain and commit == repository.head:
                self.known.keep_clean(key, pin)
            return pin

    def _prepare_look(self, repository: Repository, scratch: Path, store: Path | None) -> Converting:
        """The git folder in which the user's settings are in force, and the index to look with.

        The rest of the pin's own git folder is made once it is known to be needed: mostly it isn't, and each
        of the two is a dozen new files.
        """
        (scratch / "git").mkdir()
        copy_index(repository, scratch / "git")
        return self._converting(repository, scratch / "converting", store)

    def _key(self, repository: Repository, converting: Converting) -> tuple[object, ...]:
        """What makes one clean tree another base than the next: its commit, and all that isn't in it."""
        own = repository.common_dir / "info/exclude"
        return (
            (repository.root, repository.git_dir, repository.common_dir),
            (repository.branch, repository.head, repository.object_format),
            repr(sorted(repository.settings.items())),
            repr(sorted((*self.line_ends.items(), *repository.line_ends.items()))),
            converting.attributes,
            self.excludes,
            own.read_text("utf-8", "surrogateescape") if own.is_file() else "",
        )

    async def pin_commit(self, repository: Repository, revision: str) -> BasePin:
        """Pin a commit, laid out in a folder of the node's own; `head` is HEAD.

        Raises:
            NodeError: There is no such commit.
        """
        commit = repository.head if revision == "head" else await self._resolve(repository, revision)
        if commit is None:
            raise NodeError(f"{repository.root} has no commits yet; use its working tree as the base")
        at_commit = replace(repository, head=commit, branch=repository.branch if revision == "head" else None)
        store = await self._store(at_commit)
        laid_out = await self._lay_out(at_commit, commit)
        async with self._scratch() as scratch:
            git_dir = self._shadow(at_commit, scratch / "git", store)
            copy_index(repository, git_dir)
            status = TreeStatus(ignored_folders=await list_ignored_folders(self.git, repository, git_dir))
            shutil.copy2(laid_out / "index", git_dir / "index")
            listing = await list_index(self.git, git_dir)
            submodules = [path for path, entry in listing.items() if entry.mode == "160000"]
            await self._leave_out(git_dir, status, submodules)
            made, _ = await self._commit(at_commit, git_dir)
            lower = str(laid_out / "tree")
            pin = BasePin(
                id=f"git:{commit[:_SHORT]}", kind="commit", root=str(repository.root), lower=lower, store=""
            )
            return await self._publish(at_commit, git_dir, made, status, pin, store)

    async def _store(self, repository: Repository) -> Path | None:
        if repository.head is None:
            return None
        place = self.folder / "commits" / repository.head
        return await build_commit_store(self.git, repository=repository, commit=repository.head, folder=place)

    def _excludes(self, repository: Repository) -> str:
        own = repository.common_dir / "info/exclude"
        text = own.read_text("utf-8", "surrogateescape") if own.is_file() else ""
        return "\n".join((*GENERATED, self.excludes, text)) + "\n"

    def _shadow(self, repository: Repository, folder: Path, store: Path | None) -> Path:
        objects = [store / "objects"] if store else []
        git_dir = shadow_repository(
            repository,
            folder,
            objects=objects,
            excludes=self._excludes(repository),
            settings=PRIVATE_SETTINGS,
        )
        (git_dir / "shallow").unlink(missing_ok=True)
        if store and (store / "shallow").stat().st_size:
            shutil.copyfile(store / "shallow", git_dir / "shallow")
        return git_dir

    def _converting(self, repository: Repository, folder: Path, store: Path | None) -> Converting:
        """A second git folder, for what git makes of the user's own attributes and line ends."""
        own = repository.common_dir / "info/attributes"
        text = own.read_text("utf-8", "surrogateescape") if own.is_file() else ""
        line_ends = dict(self.line_ends) | dict(repository.line_ends)
        made = shadow_repository(
            repository,
            folder,
            objects=[store / "objects"] if store else [],
            excludes=self._excludes(repository),
            attributes=text,
            settings=line_ends | {"core.safecrlf": "false"},
        )
        return Converting(git_dir=made, attributes=text, line_ends=bool(line_ends))

    @asynccontextmanager
    async def _scratch(self) -> AsyncGenerator[Path]:
        """A scratch folder on the file system of the pins; a thread removes it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = Path(tempfile.mkdtemp(prefix="scratch-", dir=self.folder))
        try:
            yield made
        finally:
            await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)

    async def _leave_out(self, git_dir: Path, status: TreeStatus, submodules: list[str]) -> None:
        """Take submodules out of the base: their own git folders aren't there in a checkout."""
        for path in submodules:
            status.left_out[path] = LeftOut(path=show_path(path), why="submodule")
        if submodules:
            stdin = b"".join(os.fsencode(path) + b"\0" for path in submodules)
            command = ("update-index", "--force-remove", "-z", "--stdin")
            await self.git.run(*command, git_dir=git_dir, work_tree=git_dir, stdin=stdin)
        leave_out(git_dir, status)

    async def _commit(self, repository: Repository, git_dir: Path) -> tuple[str, str]:
        """The base commit and its tree; HEAD itself where the tree is HEAD's."""
        tree = (await self.git.run("write-tree", "--missing-ok", git_dir=git_dir)).decode().strip()
        parents: list[str] = []
        date = "@0 +0000"
        if repository.head:
            command = ("log", "-1", "--no-show-signature", "--format=%T %ct", repository.head)
            head_tree, seconds = (await self.git.run(*command, git_dir=git_dir)).decode().split()
            if head_tree == tree:
                return repository.head, tree
            parents = ["-p", repository.head]
            date = f"@{seconds} +0000"
        # The same tree on the same commit is the same base commit, on every day.
        extra = _IDENTITY | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        made = await self.git.run(
            "commit-tree", tree, *parents, git_dir=git_dir, stdin=_BASE_SUBJECT, extra=extra
        )
        return made.decode().strip(), tree

    async def _publish(
        self,
        repository: Repository,
        git_dir: Path,
        commit: str,
        status: TreeStatus,
        pin: BasePin,
        store: Path | None,
    ) -> BasePin:
        """Make the pin's folder complete and put it at its place."""
        recent = await self._recent(git_dir, repository.head) if repository.head else ()
        await finish_private_git(
            self.git,
            git_dir=git_dir,
            commit=commit,
            branch=repository.branch,
            known=repository.head,
        )
        name = f"{commit} {repository.branch}".encode("utf-8", "surrogateescape")
        key = hashlib.sha256(name).hexdigest()[:12]
        folder = self.folder / "pins" / f"{pin.kind}-{pin.id.removeprefix('git:')}-{key}"
        _place_pin(git_dir, folder)
        stores = [folder / "objects", *([store / "objects"] if store else [])]
        return pin.model_copy(
            update={
                "store": str(folder),
                "private_git": str(folder),
                "object_stores": tuple(str(objects) for objects in stores),
                "commit": repository.head,
                "branch": repository.branch and show_path(repository.branch),
                "ignored_folders": tuple(name for name in status.ignored_folders if show_path(name) == name),
                "left_out": tuple(status.left_out[path] for path in sorted(status.left_out)),
                "recent": recent,
                "notes": _notes(status),
            }
        )

    async def _recent(self, git_dir: Path, head: str) -> tuple[str, ...]:
        options = ("--no-show-signature", "-z", "--format=%h %s", "--abbrev=8", f"-n{_RECENT}")
        shown = await self.git.run("log", *options, head, git_dir=git_dir)
        return tuple(line.decode("utf-8", "replace")[:120] for line in shown.split(b"\0") if line)

    async def _resolve(self, repository: Repository, revision: str) -> str:
        """The commit that a revision names. References are read through links, and never written."""
        async with self._scratch() as scratch:
            git_dir = shadow_repository(repository, scratch / "git")
            shutil.rmtree(git_dir / "refs")
            for name in ("refs", "packed-refs"):
                if (repository.common_dir / name).exists():
                    (git_dir / name).symlink_to(repository.common_dir / name)
            command = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
            try:
                found = await self.git.run(*command, git_dir=git_dir)
            except GitError:
                raise NodeError(f"{revision!r} names no commit in {repository.root}") from None
        return found.decode().split()[-1]  # older gits print the separator too

    async def _lay_out(self, repository: Repository, commit: str) -> Path:
        """A commit's files as their blobs are, with an index that knows them."""
        folder = self.folder / "trees" / commit
        if folder.is_dir():
            os.utime(folder)
            return folder
        async with self._scratch() as scratch:
            git_dir = shadow_repository(repository, scratch / "git")
            made = scratch / "made"
            tree, index = made / "tree", made / "index"
            tree.mkdir(parents=True)
            await self.git.run("read-tree", commit, git_dir=git_dir, work_tree=tree, index=index)
            options = ("--all", "--force", "--index", "--quiet")
            await self.git.run("checkout-index", *options, git_dir=git_dir, work_tree=tree, index=index)
            publish_folder(made, folder)
        return folder


def _again(pin: BasePin, git_dir: Path, status: TreeStatus) -> BasePin:
    """A known pin, with what git has learned of the tree since it was made."""
    os.replace(git_dir / "index", Path(pin.store) / "index")
    os.utime(pin.store)
    ignored = tuple(name for name in status.ignored_folders if show_path(name) == name)
    return pin.model_copy(update={"ignored_folders": ignored})


def _place_pin(git_dir: Path, folder: Path) -> None:
    """Put a pin at its place; where one was before, only the index may know newer facts."""
    if not publish_folder(git_dir, folder):
        os.replace(git_dir / "index", folder / "index")
        os.utime(folder)


def _notes(status: TreeStatus) -> tuple[str, ...]:
    """What of the tree isn't in the base, in words."""
    return tuple(
        f"{left.path} stays as it is and no patch touches it: {left.why}"
        for _, left in sorted(status.left_out.items())
    )
