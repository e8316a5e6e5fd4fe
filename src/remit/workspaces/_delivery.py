"""Puts reviewed changes into a user's tree, all or nothing, once; and takes them back on request.

Receipts and journals lie under the node's data folder, by run and content hash. One tree is changed by one
process at a time; whoever comes next first finishes or undoes what a crash left behind.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from remit.errors import NodeError
from remit.workspaces._changes import shown
from remit.workspaces._in_place_attributes import removed_attributes
from remit.workspaces._journal import (
    Fault,
    Journal,
    TreeMoved,
    execute,
    finish,
    is_done,
    roll_back,
    write_synced,
)
from remit.workspaces._placing import Attributes, Step, make_plan
from remit.workspaces._protection import PROTECTED, ignores_case, matching_paths
from remit.workspaces._snapshot import Bundle, RunFolder
from remit.workspaces.keeper._tree import Facts, is_git_name, show_path

__all__ = ["Deliveries", "DeliveryOrder", "Outcome", "Recovered", "refused_paths"]

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOrder:
    """What is to be delivered, and what it may touch."""

    run_id: str
    root: Path
    content_hash: str
    """What the review was bound to."""
    patch_sha256: str
    protected: Sequence[str] = PROTECTED
    frozen: Sequence[str] = ()
    allow_protected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of it."""

    status: Literal["delivered", "undone", "conflict", "refused", "empty"]
    paths: tuple[str, ...] = ()
    """As shown to people: applied, in conflict, or refused."""
    repeated: bool = False
    """It had been done before; nothing was touched now."""
    ref: str | None = None
    """The branch, where it went to one."""
    why: str | None = None
    """Why not, where the paths don't say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What was found half done, and what came of it."""

    run_id: str
    root: str
    kind: str
    how: Literal["forward", "back", "cleaned"]
    left: tuple[str, ...] = ()
    """Paths that somebody had changed meanwhile; they stay as they are."""


@dataclass(frozen=True, slots=True)
class _Receipt:
    status: Literal["delivered", "undone"]
    root: str
    removed: dict[str, Attributes] = field(default_factory=dict[str, Attributes])
    """What deleted paths had, for an undo."""


def _no_fault(step: str) -> None:
    """Nothing fails on purpose."""


class Deliveries:
    """All deliveries of a node.

    Args:
        data: The node's data folder.
        fault: Called before every step; for tests.
    """

    def __init__(self, data: Path, *, fault: Fault = _no_fault) -> None:
        self._data = data
        self._fault = fault

    def deliver(self, order: DeliveryOrder) -> Outcome:
        """Apply the changes of a run to its tree. Blocking; not to be interrupted.

        Raises:
            NodeError: They aren't kept here, aren't those that were reviewed, or can't be written (nothing
                was changed then; reason `storage_full` where that is why).
        """
        bundle = RunFolder.of(self._data, order.run_id).load(order.content_hash)
        if bundle.patch.sha256 != order.patch_sha256:
            raise NodeError("that patch isn't the one of these changes", reason="refused")
        changes = bundle.changes.changes
        refused = refused_paths(order, bundle)
        if refused:
            return Outcome(status="refused", paths=refused)
        if not changes:
            return Outcome(status="empty")
        lost = [change for change in changes if change.base_lost]
        if lost:
            return Outcome(status="conflict", paths=shown(lost))
        with self._locked(order.root):
            self._recover_tree(order.root)
            receipt = self._read_receipt(order.run_id, order.content_hash)
            if receipt and receipt.status == "delivered":
                return Outcome(status="delivered", paths=shown(changes), repeated=True)
            steps = [Step(change.path, change.base, change.result) for change in changes]
            return self._change(order.root, order.run_id, order.content_hash, "apply", steps)

    def undo(self, run_id: str, content_hash: str) -> Outcome:
        """Take a delivery back, where every path still holds what was delivered. Blocking.

        Raises:
            NodeError: There was no such delivery, or it can't be written.
        """
        bundle = RunFolder.of(self._data, run_id).load(content_hash)
        receipt = self._read_receipt(run_id, content_hash)
        if receipt is None:
            raise NodeError("this run's changes were never applied to a tree", reason="refused")
        root = Path(receipt.root)
        with self._locked(root):
            self._recover_tree(root)
            receipt = self._read_receipt(run_id, content_hash) or receipt
            if receipt.status == "undone":
                return Outcome(status="undone", paths=shown(bundle.changes.changes), repeated=True)
            steps = [
                Step(change.path, change.result, change.base, receipt.removed.get(change.path))
                for change in bundle.changes.changes
            ]
            return self._change(root, run_id, content_hash, "undo", steps)

    def note_in_place(self, run_id: str, root: Path, bundle: Bundle, facts: Facts) -> None:
        """Remember what a run has done to the tree itself, as if it had been applied; the last counts.

        Nothing is changed in the tree; `facts` are those of its files before the run. Blocking.
        """
        folder = self._receipts(run_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for earlier in folder.glob("*.json"):
            if earlier.stem != bundle.content_hash:
                earlier.unlink()
        if bundle.changes.changes:
            removed = removed_attributes(bundle.changes, root, facts)
            receipt = asdict(_Receipt("delivered", str(root), removed)) | {"token": "in-place"}
            write_synced(folder / f"{bundle.content_hash}.json", json.dumps(receipt).encode())

    def find_delivered(self, run_id: str) -> tuple[str, ...]:
        """The content hashes of a run that were applied and not undone."""
        return tuple(name for name, receipt in self._find_receipts(run_id) if receipt.status == "delivered")

    def find_undone(self, run_id: str) -> tuple[Bundle, Path] | None:
        """What a run had done that was taken back, and the tree; None: nothing was, or some of it stands.

        Raises:
            NodeError: It isn't kept any more.
        """
        found = self._find_receipts(run_id)
        if not found or any(receipt.status != "undone" for _, receipt in found):
            return None
        content_hash, receipt = found[-1]
        return RunFolder.of(self._data, run_id).load(content_hash), Path(receipt.root)

    def _find_receipts(self, run_id: str) -> list[tuple[str, _Receipt]]:
        folder = self._receipts(run_id)
        names = sorted(path.stem for path in folder.glob("*.json")) if folder.is_dir() else []
        receipts = [(name, self._read_receipt(run_id, name)) for name in names]
        return [(name, receipt) for name, receipt in receipts if receipt is not None]

    def find_standing(self, run_id: str) -> tuple[str, ...]:
        """The paths of a run's applied and not undone changes that don't hold their base in the tree."""
        found: set[str] = set()
        for content_hash in self.find_delivered(run_id):
            receipt = self._read_receipt(run_id, content_hash)
            with suppress(NodeError, FileNotFoundError):
                changes = RunFolder.of(self._data, run_id).load(content_hash).changes.changes
                steps = [Step(change.path, change.base, change.result) for change in changes]
                with _opened_root(Path(receipt.root if receipt else "")) as root_fd:
                    found |= set(make_plan(root_fd, steps, token=secrets.token_hex(6)).conflicts)
        return tuple(show_path(path) for path in sorted(found))

    def find_changes(self, run_id: str, patch_sha256: str) -> str | None:
        """The content hash of a run's changes that make this patch; None where they aren't kept here."""
        run = RunFolder.of(self._data, run_id)
        for folder in sorted((run.folder / "changes").glob("*")):
            with suppress(NodeError):
                if run.load(folder.name).patch.sha256 == patch_sha256:
                    return folder.name
        return None

    def recover(self) -> tuple[Recovered, ...]:
        """Finish or take back whatever a crash left half done in any tree; trees in use are passed over."""
        recovered: list[Recovered] = []
        for path in sorted((self._data / "deliveries").glob("*/*/journal.json")):
            root = Path(_read_root(path))
            try:
                with self._locked(root, wait=False):
                    recovered += self._recover_tree(root)
            except (BlockingIOError, NodeError):  # in use, or the tree is gone or can't be written
                continue
        return tuple(recovered)

    def _change(
        self, root: Path, run_id: str, content_hash: str, kind: str, steps: Sequence[Step]
    ) -> Outcome:
        run = RunFolder.of(self._data, run_id)
        with _opened_root(root) as root_fd:
            token = secrets.token_hex(6)
            plan = make_plan(root_fd, steps, token=token)
            if plan.conflicts:
                return Outcome(status="conflict", paths=tuple(show_path(path) for path in plan.conflicts))
            blobs = run.folder / "blobs"
            journal = Journal(kind, run_id, content_hash, str(root), str(blobs), plan)
            folder = self._journals(root) / token
            try:
                _sync_blobs(blobs, steps)
                self._fault("journal")
                journal.write(folder)
                execute(root_fd, journal, self._fault)
                self._write_receipt(journal, token)
            except TreeMoved as moved:
                _take_back(root_fd, journal, folder)
                return Outcome(status="conflict", paths=(show_path(moved.path),))
            except OSError as error:
                _take_back(root_fd, journal, folder)
                raise _failure(root, error) from error
            with suppress(OSError):  # it is done; what can't be tidied now is tidied by the next one
                self._tidy(root_fd, journal, folder)
        status = "delivered" if kind == "apply" else "undone"
        return Outcome(status=status, paths=tuple(show_path(step.path) for step in steps))

    def _tidy(self, root_fd: int, journal: Journal, folder: Path) -> None:
        finish(root_fd, journal.plan, self._fault)
        self._fault("tidy")
        shutil.rmtree(folder)

    def _write_receipt(self, journal: Journal, token: str) -> None:
        """From here on it is done."""
        self._fault("receipt")
        removed = {
            placed.step.path: placed.attributes
            for placed in journal.plan.placed
            if placed.step.after is None and placed.attributes
        }
        status = "delivered" if journal.kind == "apply" else "undone"
        receipt = _Receipt(status, journal.root, removed if journal.kind == "apply" else {})
        path = self._receipts(journal.run_id) / f"{journal.content_hash}.json"
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_synced(path, json.dumps(asdict(receipt) | {"token": token}).encode())

    def _recover_tree(self, root: Path) -> list[Recovered]:
        """Finish or take back what a dead process began on a tree; its lock must be held."""
        recovered: list[Recovered] = []
        for path in sorted(self._journals(root).glob("*/journal.json")):
            journal = Journal.read(path)
            try:
                with _opened_root(root) as root_fd:
                    recovered.append(self._recover_one(root_fd, journal, path.parent))
            except OSError as error:
                raise _failure(root, error) from error
        for folder in self._journals(root).glob("*"):  # no journal: nothing had been done
            shutil.rmtree(folder, ignore_errors=True)
        return recovered

    def _recover_one(self, root_fd: int, journal: Journal, folder: Path) -> Recovered:
        how: Literal["forward", "back", "cleaned"]
        left: tuple[str, ...] = ()
        if self._receipt_token(journal) == folder.name:
            how = "cleaned"
            self._tidy(root_fd, journal, folder)
        elif is_done(root_fd, journal.plan):
            how = "forward"
            self._write_receipt(journal, folder.name)
            self._tidy(root_fd, journal, folder)
        else:
            how = "back"
            left = tuple(show_path(path) for path in roll_back(root_fd, journal, self._fault))
            shutil.rmtree(folder)
        return Recovered(run_id=journal.run_id, root=journal.root, kind=journal.kind, how=how, left=left)

    def _receipts(self, run_id: str) -> Path:
        return RunFolder.of(self._data, run_id).folder / "deliveries"

    def _read_receipt(self, run_id: str, content_hash: str) -> _Receipt | None:
        path = self._receipts(run_id) / f"{content_hash}.json"
        if not path.is_file():
            return None
        value = json.loads(path.read_text())
        removed = {name: tuple(attributes) for name, attributes in value["removed"].items()}
        return _Receipt(value["status"], value["root"], removed)

    def _receipt_token(self, journal: Journal) -> str | None:
        path = self._receipts(journal.run_id) / f"{journal.content_hash}.json"
        return json.loads(path.read_text())["token"] if path.is_file() else None

    def _journals(self, root: Path) -> Path:
        return self._data / "deliveries" / hashlib.sha256(os.fsencode(root)).hexdigest()[:16]

    @contextmanager
    def _locked(self, root: Path, *, wait: bool = True) -> Generator[None]:
        """Hold a tree against other processes and threads; the kernel lets go when this process dies."""
        folder = self._data / "deliveries"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._journals(root).with_suffix(".lock")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            yield
        finally:
            os.close(fd)


def refused_paths(order: DeliveryOrder, bundle: Bundle) -> tuple[str, ...]:
    """The changed paths that may not be delivered, as shown to people."""
    paths = [change.path for change in bundle.changes.changes]
    ignore_case = ignores_case(order.root)
    refused = {path for path in paths if any(is_git_name(part) for part in path.split("/"))}
    refused |= set(bundle.secret_paths)
    refused |= set(matching_paths(paths, order.frozen, ignore_case=ignore_case))
    if not order.allow_protected:
        refused |= set(matching_paths(paths, order.protected, ignore_case=ignore_case))
    return tuple(bundle.secret_paths.get(path, show_path(path)) for path in paths if path in refused)


def _take_back(root_fd: int, journal: Journal, folder: Path) -> None:
    """Undo what was done so far. What somebody changed meanwhile stays theirs."""
    roll_back(root_fd, journal, _no_fault)
    shutil.rmtree(folder, ignore_errors=True)


def _read_root(journal: Path) -> str:
    return str(json.loads(journal.read_text())["root"])


@contextmanager
def _opened_root(root: Path) -> Generator[int]:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _sync_blobs(blobs: Path, steps: Sequence[Step]) -> None:
    """Make the bytes of both sides durable, before a journal names them."""
    names = {content.sha256 for step in steps for content in (step.before, step.after) if content}
    for name in names:
        fd = os.open(blobs / name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    fd = os.open(blobs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _failure(root: Path, error: OSError) -> NodeError:
    where = f" ({show_path(str(error.filename))})" if error.filename else ""
    why = (error.strerror or "input/output error").lower()
    reason: Literal["storage_full", "refused", "unavailable"] = "unavailable"
    if error.errno in _FULL:
        reason = "storage_full"
    elif error.errno in _FORBIDDEN:
        reason = "refused"
    return NodeError(f"nothing was applied to {root}: {why}{where}", reason=reason)
