"""A run that goes on where another one stopped: the other's base, and its own copy of the kept checkout.

What was kept is only read: it may be continued again. A checkout that is being taken up stands in the new
run's storage under its own name only once it is whole.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from remit.errors import NodeError
from remit.workspaces._base import BasePin
from remit.workspaces._collect import MAX_CHANGED
from remit.workspaces._kept import KEPT, mark_kept
from remit.workspaces._snapshot import RunFolder
from remit.workspaces.keeper._copy import CopyBounds, copy_tree
from remit.workspaces.keeper._storage import Storage
from remit.workspaces.keeper._tree import Facts, TreeTooLarge, record_tree, scan_recorded

__all__ = [
    "KeptCheckout",
    "copy_kept",
    "find_kept",
    "find_left",
    "find_ref",
    "keeps_checkout",
    "load_base_commit",
    "load_root",
    "read_facts_of_copy",
    "save_root",
]

_WORKSPACE = "workspace.json"
_MAX_RECORDED = 2_000_000
_SKIPPED_SHOWN = 5


@dataclass(frozen=True, slots=True)
class KeptCheckout:
    """What an earlier run left, and the base that it is measured against."""

    run_id: str
    storage: Storage
    pin: BasePin
    isolation: Literal["overlay", "copy"]
    open: bool = False
    """Whether it is a parent's, which is open and stands still while it is copied."""


class _Stopped(Exception):
    """Nobody waits for the copy any more."""


# ---- where a run's changes belong


def save_root(folder: Path, pin: BasePin, ref: str) -> None:
    """Keep where a run's changes belong and what they are measured against, for after this process."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = folder / "workspace.unfinished"
    kept = {"ref": ref, "root": pin.root, "base": pin.id, "pin": pin.model_dump(mode="json")}
    unfinished.write_text(json.dumps(kept))
    unfinished.replace(folder / _WORKSPACE)


def load_root(folder: Path) -> Path | None:
    """Where a run's changes belong; None: it never had a base here."""
    path = folder / _WORKSPACE
    return Path(json.loads(path.read_text())["root"]) if path.is_file() else None


def load_base_commit(folder: Path, *, root: Path) -> str | None:
    """The commit that a run's base was made of; None: there were no commits yet.

    Raises:
        NodeError: It never had a base here, or not of this repository.
    """
    workspace = _load_workspace(folder)
    try:
        pin = BasePin.model_validate(workspace["pin"])
    except (KeyError, ValidationError):
        raise NodeError("this run never had a base on this node", reason="lost") from None
    if not pin.has_repository or pin.root != str(root):
        raise NodeError(f"the run didn't start from the repository at {root}", reason="refused")
    return pin.commit


def _load_workspace(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / _WORKSPACE).read_text())
    except (OSError, ValueError):
        return {}


# ---- finding it


def find_kept(data: Path, run_id: str, *, ref: str, root: Path) -> KeptCheckout:
    """The kept checkout of a run, and its base. Blocking.

    Args:
        data: The node's data folder.
        run_id: The earlier run.
        ref: The workspace that the new run works in.
        root: That workspace's root.

    Raises:
        NodeError: It kept none (any more), worked elsewhere, or its base is gone; `reason` is `refused` or,
            where it was there once, `lost`.
    """
    folder = RunFolder.of(data, run_id).folder
    workspace = _load_workspace(folder)
    if workspace and (workspace["ref"], workspace["root"]) != (ref, str(root)):
        raise NodeError(
            f"run {run_id} worked in the workspace {workspace['ref']} at {workspace['root']}, "
            f"not in {ref} at {root}: continue it there",
            reason="refused",
        )
    storage = Storage(data / "checkouts" / run_id)
    isolation = _isolation_of(storage)
    if not (storage.folder / KEPT).is_file() or isolation is None:
        raise NodeError(
            f"this node keeps no checkout of run {run_id}: `preserve` didn't ask for it, the run worked "
            "elsewhere or opened none, or it was removed since; start a new run in its session instead",
            reason="refused",
        )
    pin = _load_pin(run_id, workspace)
    mark_kept(storage.folder)  # it is in use
    return KeptCheckout(run_id, storage, pin, isolation)


def find_left(data: Path, run_id: str) -> tuple[Storage, BasePin, str, Literal["overlay", "copy"]]:
    """The checkout of a run whose process died, its base, its workspace, and what kind it is. Blocking.

    Raises:
        NodeError: There is none, or its base is gone (`lost`); what it did can't be told from what its
            parent did (`refused`).
    """
    folder = RunFolder.of(data, run_id).folder
    storage = Storage(data / "checkouts" / run_id)
    workspace, isolation = _load_workspace(folder), _isolation_of(storage)
    if not workspace or isolation is None:
        raise NodeError(f"no checkout of run {run_id} is left on this node", reason="lost")
    if (folder / "parent").exists():
        raise NodeError(
            "the run was another one's child, and what it did can't be told from its parent's any more",
            reason="refused",
        )
    return storage, _load_pin(run_id, workspace), workspace["ref"], isolation


def find_ref(data: Path, run_id: str) -> str | None:
    """The workspace that a run of this node worked in; None: that isn't on record. Blocking."""
    return _load_workspace(RunFolder.of(data, run_id).folder).get("ref")


def keeps_checkout(data: Path, run_id: str) -> bool:
    """Whether a node keeps the checkout of a run, so that another one can take it up."""
    storage = Storage(data / "checkouts" / run_id)
    return (storage.folder / KEPT).is_file() and _isolation_of(storage) is not None


def _isolation_of(storage: Storage) -> Literal["overlay", "copy"] | None:
    if storage.tree.is_dir():  # an overlay that was refused leaves an empty upper folder beside it
        return "copy"
    return "overlay" if storage.upper.is_dir() else None


def _load_pin(run_id: str, workspace: dict[str, Any]) -> BasePin:
    try:
        pin = BasePin.model_validate(workspace["pin"])
    except (KeyError, ValidationError):
        raise _base_gone(run_id) from None
    needed = [pin.store, pin.lower, *pin.object_stores]
    if not all(Path(folder).is_dir() for folder in needed):
        raise _base_gone(run_id)
    os.utime(pin.store)  # it is in use
    return pin


def _base_gone(run_id: str) -> NodeError:
    message = f"the base that run {run_id} started from is gone; start a new run in its session instead"
    return NodeError(message, reason="lost")


# ---- taking it up


async def copy_kept(kept: KeptCheckout, storage: Path) -> tuple[str, ...]:
    """Make a new checkout's storage hold what a kept one holds; nothing is shared.

    Returns:
        What the user should know.

    Raises:
        NodeError: The kept checkout is open, or can't be read.
        OSError: The disk is full.

    Whoever asked removes the storage where this fails.

    Cancellation: the copy has ended before the cancel is raised.
    """
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise _Stopped

    loop = asyncio.get_running_loop()
    copying = loop.run_in_executor(None, _copy_kept, kept, Storage(storage), check)
    try:
        return await asyncio.shield(copying)
    except asyncio.CancelledError:
        stop.set()
        while not copying.done():
            try:
                await asyncio.wait({copying})
            except asyncio.CancelledError:
                continue
        copying.exception()  # looked at: nobody else will
        raise


def _copy_kept(kept: KeptCheckout, target: Storage, check: Callable[[], None]) -> tuple[str, ...]:
    if target.upper.exists() or target.tree.exists():  # taken up before: it goes on with what it holds
        return ()
    target.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if kept.open:
        return _copy_parts(kept, target, check)
    try:
        lock = kept.storage.lock_shared()
    except BlockingIOError:
        raise NodeError(f"the checkout of run {kept.run_id} is still open", reason="unavailable") from None
    except FileNotFoundError:
        raise NodeError(f"the kept checkout of run {kept.run_id} is gone", reason="lost") from None
    try:
        return _copy_parts(kept, target, check)
    finally:
        os.close(lock)


def _copy_parts(kept: KeptCheckout, target: Storage, check: Callable[[], None]) -> tuple[str, ...]:
    source = kept.storage
    if source.git.is_dir():
        _copy(source.git, target.git, check)
    for carried in sorted(source.carried.glob("*")):
        (target.carried / carried.name).mkdir(mode=0o700, parents=True)
        _copy(carried / "upper", target.carried / carried.name / "upper", check)
    layer = source.upper if kept.isolation == "overlay" else source.tree
    place = target.upper if kept.isolation == "overlay" else target.tree
    making = target.folder / "taking-up"
    # Without one of its own, the checkout's `.git` is where the new git folder is shown.
    skipped = _copy(layer, making, check, skip={layer / ".git"} if source.git.is_dir() else set())
    if kept.isolation == "copy":
        target.facts.write_text(json.dumps(_facts_of_the_base(kept, making)))
    making.rename(place)
    if not skipped:
        return ()
    shown = ", ".join(os.path.relpath(path, layer) for path in skipped[:_SKIPPED_SHOWN])
    return (f"not taken up from run {kept.run_id} (special or unreadable): {len(skipped)}, such as {shown}",)


def _copy(
    source: Path, target: Path, check: Callable[[], None], *, skip: set[Path] | None = None
) -> list[str]:
    copied = copy_tree(source, target, bounds=CopyBounds(), skip=skip or set(), check=check, layer=True)
    return copied.skipped


def _facts_of_the_base(kept: KeptCheckout, copied: Path) -> Facts:
    """What a copied tree's files would be like had nothing changed: those that differ have others."""
    if not kept.storage.facts.is_file():
        raise NodeError(f"what run {kept.run_id} changed in its copy isn't known any more", reason="lost")
    facts = read_facts_of_copy(kept.storage)
    try:
        scan = scan_recorded(str(kept.storage.tree), facts, max_entries=MAX_CHANGED)
    except TreeTooLarge as error:
        raise NodeError(
            f"run {kept.run_id} changed too much to go on with: {error}", reason="refused"
        ) from None
    changed = {found.path for found in scan.found}
    now = record_tree(str(copied), max_entries=_MAX_RECORDED)
    return {path: fact if path in changed else now.get(path, fact) for path, fact in facts.items()}


def read_facts_of_copy(storage: Storage) -> Facts:
    """The facts of a copied tree: those kept with it or, the first time, as it is now. Blocking."""
    if storage.facts.is_file():
        kept = json.loads(storage.facts.read_text())
        return {path: tuple(fact) for path, fact in kept.items()}
    facts = record_tree(str(storage.tree), max_entries=_MAX_RECORDED)
    unfinished = storage.facts.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(facts))
    unfinished.replace(storage.facts)
    return facts
