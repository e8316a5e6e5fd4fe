"""What a run in place is measured against, on disk before its first write: for whoever comes after a crash.

The record stands from the moment in which the run may change the tree until what it did is noted for good.
So where it is found and no process holds the checkout, its process died: the tree is looked at once more,
whatever was noted before.

    open ─> record ─> commands ... snapshots, each noted ... ─> last look noted ─> record removed
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from remit.errors import NodeError
from remit.workspaces._base import BasePin, Listing
from remit.workspaces._collect import MAX_CHANGED, IgnoreMemory
from remit.workspaces._delivery import Deliveries
from remit.workspaces._in_place import forget_tree, list_remembered, settled
from remit.workspaces._journal import write_synced
from remit.workspaces._patch import PatchFolders
from remit.workspaces._pinning import Bases
from remit.workspaces._snapshot import Bundle, RunFolder, take_snapshot
from remit.workspaces.keeper._storage import Storage
from remit.workspaces.keeper._tree import Facts, TreeTooLarge, scan_recorded

__all__ = [
    "RECORD",
    "DiedInPlace",
    "InPlaceRecord",
    "end_record",
    "find_record",
    "keep_record",
    "list_base_of",
    "note_died",
    "settle_died",
]

RECORD = "in-place.json"
_FREE_WITHIN_S = 5.0
"""A killed host's processes are gone by then."""
_LOOK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class InPlaceRecord:
    """The tree as it was before a run in place."""

    ref: str
    pin: BasePin
    facts: Facts
    """Of every file, right before the first command."""


def keep_record(run: RunFolder, record: InPlaceRecord) -> None:
    """Make the record durable. Blocking."""
    run.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = {"ref": record.ref, "pin": record.pin.model_dump(mode="json"), "facts": record.facts}
    write_synced(run.folder / RECORD, json.dumps(kept).encode())


def find_record(run: RunFolder) -> InPlaceRecord | None:
    """The record of a run in place that hasn't ended whole; None: there is none. Blocking.

    Raises:
        NodeError: It can't be read.
    """
    path = run.folder / RECORD
    if not path.is_file():
        return None
    try:
        kept = json.loads(path.read_text())
        facts: Facts = {name: tuple(fact) for name, fact in kept["facts"].items()}
        return InPlaceRecord(ref=kept["ref"], pin=BasePin.model_validate(kept["pin"]), facts=facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        message = f"what the tree was like before the run can't be read: {path}"
        raise NodeError(message, reason="lost") from error


def end_record(run: RunFolder) -> None:
    """What the run did is noted for good: nothing has to be looked at again. Blocking."""
    (run.folder / RECORD).unlink(missing_ok=True)
    forget_tree(run)


async def note_died(
    bases: Bases, deliveries: Deliveries, run: RunFolder, record: InPlaceRecord, *, scratch: Path
) -> Bundle:
    """Look at what a dead process's run in place has done to the tree, and note it as its own end would have.

    Whoever calls holds the lock of the run's checkout, where there is one.

    Raises:
        NodeError: What the tree was like is gone.
        TreeTooLarge: More was changed than a patch may hold.
        OSError: The tree can't be read.
    """
    root = Path(record.pin.root)
    await asyncio.to_thread(_require, [root], f"the folder that the run worked in is gone: {root}")
    bundle = await take_snapshot(
        bases.git,
        run,
        pin=record.pin,
        listing=await list_base_of(record, bases, run),
        scan=await asyncio.to_thread(scan_recorded, str(root), record.facts, max_entries=MAX_CHANGED),
        result=root,
        folders=PatchFolders(scratch),
        ignored=IgnoreMemory(scratch),
        told=settled,
    )
    await asyncio.to_thread(deliveries.note_in_place, run.folder.name, root, bundle, record.facts)
    return bundle


async def list_base_of(record: InPlaceRecord, bases: Bases, run: RunFolder) -> Listing:
    """Every file of the tree before the run.

    Raises:
        NodeError: It isn't kept any more.
    """
    pin = record.pin
    needed = [Path(folder) for folder in (pin.store, pin.lower, *pin.object_stores)]
    await asyncio.to_thread(_require, needed, "what the tree was like before the run isn't kept any more")
    if pin.has_repository:
        return await bases.list_base(pin)
    return await asyncio.to_thread(list_remembered, run)


def _require(folders: list[Path], otherwise: str) -> None:
    if not all(folder.is_dir() for folder in folders):
        raise NodeError(otherwise, reason="lost")


@dataclass(frozen=True, slots=True)
class DiedInPlace:
    """What a run in place did whose process died in the middle."""

    root: Path
    patch: Path
    """What differs from before the run, as a patch that stays after an undo."""
    files: int
    """How many files differ."""


async def settle_died(
    data: Path,
    run_id: str,
    environment: Mapping[str, str],
    *,
    scratch: Path,
    within_s: float = _FREE_WITHIN_S,
) -> DiedInPlace | None:
    """Note what a run in place did whose process died in the middle, so that it can be undone.

    Args:
        data: The node's data folder.
        run_id: The run.
        environment: Of whoever works on this machine.
        scratch: A folder that the caller removes.
        within_s: How long what a killed process had started may take to go.

    Returns:
        What it was; None: it ended whole, or never began to work in place.

    Raises:
        NodeError: A process still works for it (`unavailable`), or what the tree was like is gone (`lost`).
    """
    run = RunFolder.of(data, run_id)
    record = await asyncio.to_thread(find_record, run)
    if record is None:
        return None
    lock = await _lock(Storage(data / "checkouts" / run_id), within_s)
    try:
        bases = Bases(data, environment=environment)
        bundle = await note_died(bases, Deliveries(data), run, record, scratch=scratch)
        await asyncio.to_thread(end_record, run)
    except TreeTooLarge as error:
        raise NodeError(str(error), reason="too_large") from error
    finally:
        if lock is not None:
            os.close(lock)
    return DiedInPlace(
        root=Path(record.pin.root),
        patch=run.bundle(bundle.content_hash) / "patch",
        files=len(bundle.changes.changes),
    )


async def _lock(storage: Storage, within_s: float) -> int | None:
    """The checkout's lock, once what a killed process had started is gone; None: it was swept away."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while True:
                try:
                    return storage.lock()
                except FileNotFoundError:
                    return None
                except BlockingIOError:
                    await asyncio.sleep(_LOOK_AGAIN_S)
    raise NodeError("the run is still at work in these files", reason="unavailable")
