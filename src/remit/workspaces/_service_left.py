"""Checkouts that a dead process left: what they hold can still be read, and they are kept or removed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Literal

from remit.contract import CleanedUp, CleanupRequest, Snapshot, SnapshotRequest
from remit.errors import NodeError
from remit.workspaces._base import BasePin
from remit.workspaces._collect import MAX_CHANGED, IgnoreMemory
from remit.workspaces._continuing import find_left, find_ref, read_facts_of_copy
from remit.workspaces._in_place_record import InPlaceRecord, end_record, find_record, note_died
from remit.workspaces._kept import KEPT, mark_kept
from remit.workspaces._patch_secrets import without_secrets
from remit.workspaces._protection import ignores_case
from remit.workspaces._secrets import read_secrets
from remit.workspaces._service_answers import snapshot_answer
from remit.workspaces._service_parts import NodeParts
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._snapshot import Bundle, RunFolder, take_snapshot
from remit.workspaces._taking import take_in_thread
from remit.workspaces.keeper._storage import Storage, remove_unless_held
from remit.workspaces.keeper._tree import Scan, scan_recorded, scan_upper

__all__ = ["Left", "clean_up_left", "snapshot_left"]


@dataclass(frozen=True, slots=True)
class Left:
    """A checkout that no process holds, and the base that it is measured against."""

    storage: Storage
    pin: BasePin
    ref: str
    isolation: Literal["overlay", "copy"]

    @property
    def layer(self) -> Path:
        """Where its files lie."""
        return self.storage.upper if self.isolation == "overlay" else self.storage.tree

    def scan(self) -> Scan:
        """Look through them. Blocking."""
        if self.isolation == "overlay":
            return scan_upper(str(self.layer), max_entries=MAX_CHANGED)
        if not self.storage.facts.is_file():
            # Its process died before the copy was whole and looked at, so nobody has worked in it.
            raise NodeError("the run's copy was never finished", reason="lost")
        facts = read_facts_of_copy(self.storage)
        return scan_recorded(str(self.layer), facts, max_entries=MAX_CHANGED)


async def snapshot_left(node: NodeParts, request: SnapshotRequest) -> Snapshot:
    """What a checkout holds that was open when its process died.

    Raises:
        NodeError: `lost` where there is none; else why it can't be read.
    """
    in_place = await _settle_in_place(node, request.run_id)
    if in_place is not None:
        record, bundle = in_place
        return await _answer(node, request, bundle, ref=record.ref, root=Path(record.pin.root))
    # Only of a run in place can anything be undone before its end: its own files are the user's.
    undone = await asyncio.to_thread(node.deliveries.find_undone, request.run_id)
    if undone is not None:
        bundle, root = undone
        ref = await asyncio.to_thread(find_ref, node.data, request.run_id)
        return await _answer(node, request, bundle, ref=ref or "", root=root)
    left = await asyncio.to_thread(_find, node, request.run_id)
    lock = await take_in_thread(partial(_lock, left.storage), _unlock)
    try:
        bundle = await take_snapshot(
            node.bases.git,
            RunFolder.of(node.data, request.run_id),
            pin=left.pin,
            listing=await node.bases.list_base(left.pin),
            scan=await asyncio.to_thread(left.scan),
            result=left.layer,
            folders=node.patch_folders,
            ignored=IgnoreMemory(node.scratch),
        )
    finally:
        _unlock(lock)
    return await _answer(node, request, bundle, ref=left.ref, root=Path(left.pin.root))


async def _answer(
    node: NodeParts, request: SnapshotRequest, bundle: Bundle, *, ref: str, root: Path
) -> Snapshot:
    ignore_case = await asyncio.to_thread(ignores_case, root)
    settings = node.workspaces.get(ref) or WorkspaceSettings(ref=ref, root=root)
    answer = snapshot_answer(request, bundle, settings, ignore_case=ignore_case, leftovers=())
    # A secret that can't be read any more can't be masked: nothing is shown then.
    secrets = await asyncio.to_thread(read_secrets, settings.secrets, environment=node.environment)
    run = RunFolder.of(node.data, request.run_id)
    return await asyncio.to_thread(without_secrets, answer, run, bundle, secrets.masker)


async def _settle_in_place(node: NodeParts, run_id: str) -> tuple[InPlaceRecord, Bundle] | None:
    """What a dead process's run did to the tree itself, noted so that it can be undone.

    The record stays until the clean-up: a host that dies before it has stored the answer asks again.
    """
    folder = RunFolder.of(node.data, run_id)
    record = await asyncio.to_thread(find_record, folder)
    if record is None:
        return None
    lock = await take_in_thread(partial(_lock, Storage(node.data / "checkouts" / run_id)), _unlock)
    try:
        bundle = await note_died(node.bases, node.deliveries, folder, record, scratch=node.scratch)
    finally:
        _unlock(lock)
    return record, bundle


async def clean_up_left(node: NodeParts, request: CleanupRequest) -> CleanedUp:
    """Keep or remove what a dead process left of a run; nothing where there is nothing, or it is open."""
    if await _settle_in_place(node, request.run_id) is not None:
        await asyncio.to_thread(end_record, RunFolder.of(node.data, request.run_id))
    folder = node.data / "checkouts" / request.run_id
    keep = request.keep and await asyncio.to_thread(_may_keep, node, request.run_id)
    kept = await asyncio.to_thread(_put_away, folder, keep=keep)
    undone = await asyncio.to_thread(node.deliveries.find_undone, request.run_id)
    return CleanedUp(
        run_id=request.run_id,
        generation=request.generation,
        kept=kept,
        folder=str(folder) if kept else None,
        undone=None if undone is None else len(undone[0].changes.changes),
    )


def _may_keep(node: NodeParts, run_id: str) -> bool:
    """Whether the checkout was ever open, and the owner of its workspace lets it be kept."""
    storage = Storage(node.data / "checkouts" / run_id)
    settings = node.workspaces.get(find_ref(node.data, run_id) or "")
    was_open = storage.facts.is_file() if storage.tree.is_dir() else storage.upper.is_dir()
    return was_open and (settings is None or settings.preserve != "never")


def _put_away(folder: Path, *, keep: bool) -> bool:
    if not folder.is_dir():
        return False
    if keep or (folder / KEPT).is_file():
        mark_kept(folder)
        return True
    if not remove_unless_held(folder):
        raise NodeError("the run's checkout is open in another process", reason="unavailable")
    return False


def _find(node: NodeParts, run_id: str) -> Left:
    storage, pin, ref, isolation = find_left(node.data, run_id)
    return Left(storage, pin, ref, isolation)


def _lock(storage: Storage) -> FileIO | None:
    """Keeps keepers out of a checkout; None: it was swept away, so there can be none."""
    try:
        return FileIO(storage.lock_shared(), "r+")
    except FileNotFoundError:
        return None
    except BlockingIOError:
        raise NodeError("the run's checkout is open in another process", reason="unavailable") from None


def _unlock(lock: FileIO | None) -> None:
    if lock is not None:
        lock.close()
