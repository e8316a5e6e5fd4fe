"""Puts a run's changes on a new branch of the user's repository: commits first, then the branch, in one step.

    plan     the changes are those that were reviewed; the name is free; nothing needs a filter
    build    trees and commits in a git folder of the node's own, from the bytes that were reviewed
    receipt  what is about to be made, with the commit's name
    objects  into the user's store, each whole or absent
    branch   appears in one step: from here on it is done

Working tree, index, HEAD and settings stay as they are; no hook and no filter runs. The commit stands on the
commit that the run's base was made of. Where a changed file held uncommitted work, a first commit holds that
file as the run found it, so that the last commit is the reviewed patch and nothing else.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from remit.errors import NodeError
from remit.workspaces._branch_commits import CommitBuilder, copy_objects, find_identity
from remit.workspaces._changes import Change, shown
from remit.workspaces._continuing import load_base_commit
from remit.workspaces._delivery import DeliveryOrder, Outcome, refused_paths
from remit.workspaces._git import Git
from remit.workspaces._journal import write_synced
from remit.workspaces._pinning import UserSettings
from remit.workspaces._references import (
    BranchInTheWay,
    create_branch,
    delete_branch,
    find_branch,
    find_clash,
    where_checked_out,
)
from remit.workspaces._repository import Repository, read_repository
from remit.workspaces._snapshot import Bundle, RunFolder

__all__ = ["BranchDelivery", "BranchOrder", "Branches", "has_branches", "recover_branches"]

_MARKS = "branches"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchOrder:
    """What is to be put on a branch, and on which."""

    order: DeliveryOrder
    branch: str
    message: str
    """The commit's message, whole."""


@dataclass(frozen=True, slots=True)
class BranchDelivery:
    """A receipt: what was, or is about to be, put on a branch."""

    status: Literal["begun", "delivered", "undone"]
    root: str
    branch: str
    commit: str
    at_s: int
    """The commit's date: made again, it is the same commit."""
    common_dir: str
    """Where the repository's references are."""


class Branches:
    """All deliveries to branches of a node.

    Args:
        data: The node's data folder.
        git: The program.
        user: What the user's own settings say.
    """

    def __init__(self, data: Path, *, git: Git, user: UserSettings) -> None:
        self._data = data
        self._git = git
        self._user = user

    async def deliver(self, wanted: BranchOrder, *, now: datetime) -> Outcome:
        """Make the branch. Asked again, it is made once.

        Args:
            wanted: What, and where.
            now: The commit's date.

        Raises:
            NodeError: The changes aren't kept, aren't those that were reviewed, there is no repository, or it
                can't be written.

        Cancellation: none; the caller shields it.
        """
        order = wanted.order
        bundle = await asyncio.to_thread(RunFolder.of(self._data, order.run_id).load, order.content_hash)
        if bundle.patch.sha256 != order.patch_sha256:
            raise NodeError("that patch isn't the one of these changes", reason="refused")
        changes = bundle.changes.changes
        refused = await asyncio.to_thread(refused_paths, replace(order, allow_protected=True), bundle)
        if refused:
            return Outcome(status="refused", paths=refused, why="they are frozen")
        if not changes:
            return Outcome(status="empty")
        if lost := [change for change in changes if change.base_lost]:
            return Outcome(status="conflict", paths=shown(lost))
        repository = await read_repository(self._git, order.root)
        receipt = self._read(order, wanted.branch)
        if receipt and receipt.status == "delivered" and find_branch(repository, wanted.branch):
            return _made(wanted.branch, changes, repeated=True)
        if receipt and find_branch(repository, wanted.branch) == receipt.commit:
            self._write(order, replace(receipt, status="delivered"))
            return _made(wanted.branch, changes, repeated=True)
        clash = find_clash(repository, wanted.branch)
        if clash is not None:
            return Outcome(status="conflict", paths=(wanted.branch,), why=clash)
        return await self._deliver(repository, wanted, bundle, now, receipt)

    async def _deliver(
        self,
        repository: Repository,
        wanted: BranchOrder,
        bundle: Bundle,
        now: datetime,
        receipt: BranchDelivery | None,
    ) -> Outcome:
        order, changes = wanted.order, bundle.changes.changes
        commit = await asyncio.to_thread(
            load_base_commit, RunFolder.of(self._data, order.run_id).folder, root=order.root
        )
        async with self._scratch(order) as scratch:
            builder = CommitBuilder(self._git, repository, bundle.blobs, scratch, self._user, commit)
            await builder.begin()
            filtered = await builder.find_filtered(changes)
            if filtered:
                why = "a filter of the repository (such as LFS) makes what git keeps of them, and none is run"
                return Outcome(status="refused", paths=filtered, why=why)
            identity = await find_identity(self._git, repository, self._user)
            at_s = receipt.at_s if receipt is not None else int(now.timestamp())
            made = await builder.commit(
                changes, run_id=order.run_id, message=wanted.message, identity=identity, at_s=at_s
            )
            begun = BranchDelivery(
                "begun", str(order.root), wanted.branch, made, at_s, str(repository.common_dir)
            )
            self._write(order, begun)
            try:
                with _marked(self._data, self._path(order, wanted.branch)):
                    await asyncio.to_thread(copy_objects, builder.git_dir / "objects", repository.objects)
                    await asyncio.to_thread(create_branch, repository, wanted.branch, made)
            except BranchInTheWay as clash:
                self._forget(order, wanted.branch, receipt)
                return Outcome(status="conflict", paths=(wanted.branch,), why=clash.why)
            except OSError as error:
                self._forget(order, wanted.branch, receipt)
                reason = (error.strerror or "input/output error").lower()
                raise NodeError(
                    f"the branch {wanted.branch} can't be made in {order.root}: {reason}",
                    reason="unavailable",
                ) from error
            self._write(order, replace(begun, status="delivered"))
        return _made(wanted.branch, changes)

    async def require_free(self, root: Path, branch: str) -> None:
        """Refuse, before anything is spent, a branch that can't be made.

        Raises:
            NodeError: There is no repository, or the name is taken.
        """
        repository = await read_repository(self._git, root)
        clash = find_clash(repository, branch)
        if clash is not None:
            raise NodeError(f"{clash}; name another one", reason="unavailable")

    async def undo(self, run_id: str, content_hash: str, branch: str) -> Outcome:
        """Remove a branch that a run made, where it still stands at the run's commit.

        Raises:
            NodeError: There was no such delivery, or it can't be written.
        """
        found = [receipt for receipt in self.find(run_id, content_hash) if receipt.branch == branch]
        if not found:
            raise NodeError(f"run {run_id} made no branch {branch}", reason="refused")
        (receipt,) = found
        repository = await read_repository(self._git, Path(receipt.root))
        if where_checked_out(repository, branch) is not None:
            return Outcome(status="conflict", paths=(branch,), why=f"{branch} is checked out")
        try:
            removed = await asyncio.to_thread(delete_branch, repository, branch, receipt.commit)
        except BranchInTheWay as clash:
            return Outcome(status="conflict", paths=(branch,), why=clash.why)
        if not removed and find_branch(repository, branch) is not None:
            return Outcome(status="conflict", paths=(branch,), why=f"{branch} has moved on since")
        order = DeliveryOrder(
            run_id=run_id, root=Path(receipt.root), content_hash=content_hash, patch_sha256=""
        )
        self._write(order, replace(receipt, status="undone"))
        return Outcome(status="undone", paths=(branch,), ref=branch)

    def find(self, run_id: str, content_hash: str = "*") -> tuple[BranchDelivery, ...]:
        """The branches that were made of a run's changes and not undone."""
        folder = RunFolder.of(self._data, run_id).folder / "deliveries"
        found = [_read(path) for path in sorted(folder.glob(f"{content_hash}.*.branch"))]
        return tuple(receipt for receipt in found if receipt and receipt.status == "delivered")

    def find_made(self, run_id: str) -> tuple[tuple[str, BranchDelivery], ...]:
        """The same, each with the content hash of what it holds."""
        folder = RunFolder.of(self._data, run_id).folder / "deliveries"
        found = [(path.name.partition(".")[0], _read(path)) for path in sorted(folder.glob("*.branch"))]
        return tuple((name, made) for name, made in found if made and made.status == "delivered")

    @asynccontextmanager
    async def _scratch(self, order: DeliveryOrder) -> AsyncGenerator[Path]:
        folder = RunFolder.of(self._data, order.run_id).folder
        made = Path(tempfile.mkdtemp(prefix="scratch-", dir=folder))
        try:
            yield made
        finally:
            await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)

    # ---- receipts

    def _path(self, order: DeliveryOrder, branch: str) -> Path:
        name = hashlib.sha256(branch.encode()).hexdigest()[:16]
        folder = RunFolder.of(self._data, order.run_id).folder / "deliveries"
        return folder / f"{order.content_hash}.{name}.branch"

    def _read(self, order: DeliveryOrder, branch: str) -> BranchDelivery | None:
        return _read(self._path(order, branch))

    def _write(self, order: DeliveryOrder, receipt: BranchDelivery) -> None:
        path = self._path(order, receipt.branch)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_synced(path, json.dumps(asdict(receipt)).encode())

    def _forget(self, order: DeliveryOrder, branch: str, before: BranchDelivery | None) -> None:
        if before is not None:
            self._write(order, before)
        else:
            self._path(order, branch).unlink(missing_ok=True)


def _read(path: Path) -> BranchDelivery | None:
    try:
        return BranchDelivery(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _made(branch: str, changes: Sequence[Change], *, repeated: bool = False) -> Outcome:
    return Outcome(status="delivered", paths=shown(changes), repeated=repeated, ref=branch)


@contextmanager
def _marked(data: Path, receipt: Path) -> Generator[None]:
    """Name a receipt as one under way, for as long as this process is at it; what dies leaves the mark."""
    folder = data / "deliveries" / _MARKS
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    mark = folder / secrets.token_hex(8)
    fd = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, os.fsencode(receipt))
        yield
        mark.unlink()
    except Exception:
        mark.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def recover_branches(data: Path) -> None:
    """Put right what dead processes left of deliveries to branches: a lock that nobody holds any more."""
    for mark in sorted((data / "deliveries" / _MARKS).glob("*")):
        with suppress(OSError), mark.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            receipt = Path(os.fsdecode(file.read()))
            found = _read(receipt)
            if found is not None and found.status == "begun":
                _settle(receipt, found)
            mark.unlink()


def _settle(path: Path, found: BranchDelivery) -> None:
    reference = Path(found.common_dir) / "refs/heads" / found.branch
    text = f"{found.commit}\n"
    if reference.is_file() and reference.read_text("ascii", "replace") == text:
        write_synced(path, json.dumps(asdict(replace(found, status="delivered"))).encode())
        return
    lock = reference.with_name(f"{reference.name}.lock")
    if lock.is_file() and lock.read_text("ascii", "replace") == text:
        lock.unlink()


def has_branches(data: Path, run_id: str) -> bool:
    """Whether a run ever had a branch made of its changes."""
    return any((RunFolder.of(data, run_id).folder / "deliveries").glob("*.branch"))
