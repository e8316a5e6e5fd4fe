"""Changes a user's tree, all or nothing: journaled, so that a crash at any step is rolled back or forward.

    plan      every path holds what was expected, else nothing is done
    journal   written and synced: what will be done, and where old and new bytes are kept
    stage     new content under spare names beside its place; the old content linked to a spare name
    commit    removals, folders, renames; each path changes in one step
    receipt   from here on it is done
    clean     spare names and the journal go

Before `commit` nothing is visible. An error in `commit` is undone at once by moving the old files back, which
needs no space; after a crash `recover` does the same, unless every path had got its new content.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from remit.workspaces._changes import Content
from remit.workspaces._placing import Attributes, Placed, Plan, Seen, Step, facts_at, look_at, look_in, split
from remit.workspaces._staging import (
    attributes_of,
    copy_attributes,
    give,
    unfinished,
    without_powers,
    write_new,
)
from remit.workspaces.keeper._renaming import exchange, rename_into_free
from remit.workspaces.keeper._tree import opened_folder_at, show_path

__all__ = ["Fault", "Journal", "TreeMoved", "execute", "finish", "is_done", "roll_back", "write_synced"]

Fault = Callable[[str], None]
"""Called with the name of every step before it is done; tests make it raise."""

_log = logging.getLogger(__name__)


class TreeMoved(Exception):
    """Somebody changed a path while it was being replaced; nothing of ours is left."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True, slots=True)
class Journal:
    """What is being done to a tree, as it is kept on disk."""

    kind: str
    """`apply` or `undo`."""
    run_id: str
    content_hash: str
    root: str
    blobs: str
    """Folder of the bytes of both sides."""
    plan: Plan

    def write(self, folder: Path) -> Path:
        """Store it, synced, in a folder of its own kind; returns the file."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / "journal.json"
        write_synced(path, json.dumps(asdict(self)).encode())
        return path

    @classmethod
    def read(cls, path: Path) -> Journal:
        """The inverse of `write`."""
        value = json.loads(path.read_text())
        plan = value.pop("plan")
        placed = tuple(_placed(item) for item in plan["placed"])
        emptied = tuple((name, tuple(attributes)) for name, attributes in plan["emptied_folders"])
        return cls(**value, plan=Plan(placed, tuple(plan["made_folders"]), emptied))


def _placed(item: dict[str, Any]) -> Placed:
    step = item["step"]
    before, after = (Content(**step[key]) if step[key] else None for key in ("before", "after"))
    attributes = tuple(step["attributes"]) if step["attributes"] else None
    return Placed(
        step=Step(step["path"], before, after, attributes),
        anchor=item["anchor"],
        new=item["new"],
        old=item["old"],
        attributes=tuple(item["attributes"]) if item["attributes"] else None,
        facts=tuple(item["facts"]) if item["facts"] else None,
    )


def write_synced(path: Path, data: bytes) -> None:
    """Write a file so that it is whole or absent after a crash, and there once this returns."""
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def execute(root_fd: int, journal: Journal, fault: Fault) -> None:
    """Stage and commit a plan whose journal is written.

    Raises:
        OSError: It couldn't be done; what was done is still there and is to be rolled back.
        TreeMoved: The same.
    """
    plan = journal.plan
    blobs = Path(journal.blobs)
    for placed in plan.placed:
        fault(f"stage {placed.step.path}")
        with _naming(placed.step.path):
            _stage(root_fd, placed, blobs)
    for placed in plan.placed:
        if placed.step.before and placed.step.after:
            fault(f"keep {placed.step.path}")
            _keep_old(root_fd, placed)
    for placed in plan.placed:
        if placed.step.after is None:
            fault(f"remove {placed.step.path}")
            _require_unmoved(root_fd, placed)
            fault(f"take {placed.step.path}")
            with _naming(placed.step.path):
                _take_out(root_fd, placed)
    for folder, _ in plan.emptied_folders:
        fault(f"rmdir {folder}")
        _rmdir(root_fd, folder)
    for folder in plan.made_folders:
        fault(f"mkdir {folder}")
        _mkdir(root_fd, folder, None)
    for placed in plan.placed:
        if placed.step.after:
            fault(f"replace {placed.step.path}")
            _require_unmoved(root_fd, placed)
            fault(f"place {placed.step.path}")
            _take_place(root_fd, placed)
    fault("sync")
    _sync(root_fd, plan)


@contextmanager
def _naming(path: str) -> Generator[None]:
    """An error names the path of the patch, and not the spare name that stands for it."""
    try:
        yield
    except OSError as error:
        error.filename = path
        raise


def finish(root_fd: int, plan: Plan, fault: Fault) -> None:
    """Remove the spare names; what was done stays."""
    for placed in plan.placed:
        fault(f"clean {placed.step.path}")
        with suppress(OSError), _anchor(root_fd, placed) as fd:
            if _holds_ours(fd, placed):
                _unlink_spare(fd, placed.new)
            else:
                path, spare = (
                    show_path(placed.step.path),
                    show_path(f"{placed.anchor}/{placed.new}".lstrip("/")),
                )
                _log.warning("somebody saved %s while it was being replaced; that lies in %s", path, spare)
            for name in (placed.old, unfinished(placed.new)):
                _unlink_spare(fd, name)
    _sync(root_fd, plan)


def _holds_ours(anchor: int, placed: Placed) -> bool:
    """Whether nothing is lost with the spare name: it holds the old content, the new one, or nothing."""
    try:
        if facts_at(os.stat(placed.new, dir_fd=anchor, follow_symlinks=False)) == placed.facts:
            return True
        seen = look_in(anchor, placed.new)
    except FileNotFoundError:
        return True
    # New content gets this name once it is whole.
    sides = [content for content in (placed.step.before, placed.step.after) if content]
    return any(seen.holds(content) for content in sides)


def is_done(root_fd: int, plan: Plan) -> bool:
    """Whether every path has got its new content."""
    return all(look_at(root_fd, placed.step.path).holds(placed.step.after) for placed in plan.placed)


def roll_back(root_fd: int, journal: Journal, fault: Fault) -> tuple[str, ...]:
    """Put everything back as it was; returns the paths that somebody changed since, which are left."""
    plan = journal.plan
    touched: list[str] = []
    for placed in plan.placed:
        fault(f"back {placed.step.path}")
        if placed.step.before is None:
            _take_away(root_fd, placed, touched)
    for folder in reversed(plan.made_folders):
        with suppress(OSError):
            _rmdir(root_fd, folder)
    for folder, attributes in reversed(plan.emptied_folders):
        with suppress(FileExistsError):
            _mkdir(root_fd, folder, attributes)
    for placed in plan.placed:
        fault(f"restore {placed.step.path}")
        if placed.step.before:
            _put_back(root_fd, placed, placed.step.before, Path(journal.blobs), touched)
    finish(root_fd, plan, lambda step: None)
    return tuple(touched)


def _take_away(root_fd: int, placed: Placed, touched: list[str]) -> None:
    """Remove what was put at a path that had been free."""
    step = placed.step
    seen = look_at(root_fd, step.path)
    if seen.kind not in ("content", "special"):
        return
    folders, name = split(step.path)
    with _anchor(root_fd, placed) as anchor, opened_folder_at(root_fd, folders) as fd:
        if not seen.holds(step.after) or _find_in(anchor, placed.new):  # what still waits wasn't put there
            touched.append(step.path)
            return
        os.rename(name, placed.new, src_dir_fd=fd, dst_dir_fd=anchor)
        if not look_in(anchor, placed.new).holds(step.after):  # saved by somebody between the two looks
            rename_into_free(anchor, placed.new, fd, name)
            touched.append(step.path)


def _put_back(root_fd: int, placed: Placed, before: Content, blobs: Path, touched: list[str]) -> None:
    step = placed.step
    seen = look_at(root_fd, step.path)
    if seen.holds(before):
        return
    parent = split(step.path)[0]
    if not seen.holds(step.after) or (parent and look_at(root_fd, "/".join(parent)).kind != "folder"):
        touched.append(step.path)
        return
    folders, name = split(step.path)
    with _anchor(root_fd, placed) as anchor, opened_folder_at(root_fd, folders) as fd:
        spare = _find_old(anchor, placed, before, blobs)
        try:
            if spare is None:
                raise TreeMoved(step.path)
            _put_in(anchor, spare, fd, name, expected=step.after)
        except TreeMoved:
            touched.append(step.path)


def _find_old(anchor: int, placed: Placed, before: Content, blobs: Path) -> str | None:
    """A spare name that holds the old content, the file itself where that is still there.

    None: nothing was put at the path, or taken from it: that it looks so is somebody else's doing.
    """
    after = placed.step.after
    taken, kept = _find_in(anchor, placed.new), _find_in(anchor, placed.old)
    if after is None:
        return placed.new if taken and taken.holds(before) else None
    if taken and taken.holds(after):  # it still waits
        return None
    for name, seen in ((placed.old, kept), (placed.new, taken)):
        if seen and seen.holds(before):
            return name
    # This file system makes no links, and can't exchange: the bytes are in the node's folder.
    write_new(anchor, placed.new, before, blobs, placed.attributes)
    return placed.new


def _find_in(anchor: int, name: str) -> Seen | None:
    try:
        return look_in(anchor, name)
    except FileNotFoundError:
        return None


def _put_in(anchor: int, spare: str, fd: int, name: str, *, expected: Content | None) -> None:
    """Move a spare file to its place, if that holds what was expected.

    Raises:
        TreeMoved: It doesn't, and is as it was.
    """
    try:
        if expected is None:
            rename_into_free(anchor, spare, fd, name)
        elif not exchange(anchor, spare, fd, name):
            os.rename(spare, name, src_dir_fd=anchor, dst_dir_fd=fd)
        elif not look_in(anchor, spare).holds(expected):
            exchange(anchor, spare, fd, name)
            raise TreeMoved(name)
    except (FileExistsError, FileNotFoundError):
        raise TreeMoved(name) from None


def _stage(root_fd: int, placed: Placed, blobs: Path) -> None:
    """Write the new content under its spare name, with the owner and mode that it is to have."""
    step = placed.step
    if step.after is None:
        return
    is_link = step.after.mode == "120000"
    replaces = step.before is not None and (step.before.mode == "120000") == is_link
    attributes = without_powers(placed.attributes) if replaces else step.attributes
    with _anchor(root_fd, placed) as anchor:
        write_new(anchor, placed.new, step.after, blobs, attributes)
        if replaces and not is_link:
            copy_attributes(root_fd, step.path, anchor, placed.new)


def _keep_old(root_fd: int, placed: Placed) -> None:
    """Link the old content to its spare name: it can then be moved back as it was, without needing space."""
    folders, name = split(placed.step.path)
    with _anchor(root_fd, placed) as anchor, opened_folder_at(root_fd, folders) as fd:
        try:
            os.link(name, placed.old, src_dir_fd=fd, dst_dir_fd=anchor, follow_symlinks=False)
        except FileNotFoundError:
            raise TreeMoved(placed.step.path) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise


_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES}


def _require_unmoved(root_fd: int, placed: Placed) -> None:
    """Look once more, right before a path changes."""
    folders, name = split(placed.step.path)
    try:
        with opened_folder_at(root_fd, folders) as fd:
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            facts = facts_at(info)
    except FileNotFoundError:
        facts = None
    if facts != (placed.facts if placed.step.before else None):
        raise TreeMoved(placed.step.path)


def _take_out(root_fd: int, placed: Placed) -> None:
    """Move what is to go to its spare name; if somebody has saved in that very moment, it goes back."""
    folders, name = split(placed.step.path)
    with _anchor(root_fd, placed) as anchor, opened_folder_at(root_fd, folders) as fd:
        try:
            os.rename(name, placed.new, src_dir_fd=fd, dst_dir_fd=anchor)
        except FileNotFoundError:
            raise TreeMoved(placed.step.path) from None
        if not _is_old(anchor, placed):
            rename_into_free(anchor, placed.new, fd, name)
            raise TreeMoved(placed.step.path)


def _take_place(root_fd: int, placed: Placed) -> None:
    """Put new content at its place in one step; what somebody has saved there in that very moment stays."""
    folders, name = split(placed.step.path)
    with _anchor(root_fd, placed) as anchor, opened_folder_at(root_fd, folders) as fd:
        try:
            if placed.step.before is None:
                rename_into_free(anchor, placed.new, fd, name)
            elif not exchange(anchor, placed.new, fd, name):  # this file system can't
                os.rename(placed.new, name, src_dir_fd=anchor, dst_dir_fd=fd)
            elif not _is_old(anchor, placed):
                exchange(anchor, placed.new, fd, name)
                raise TreeMoved(placed.step.path)
        except (FileExistsError, FileNotFoundError):
            raise TreeMoved(placed.step.path) from None


def _is_old(anchor: int, placed: Placed) -> bool:
    """Whether the spare name for what is new now holds what was at the path, as it was."""
    return facts_at(os.stat(placed.new, dir_fd=anchor, follow_symlinks=False)) == placed.facts


def _anchor(root_fd: int, placed: Placed) -> AbstractContextManager[int]:
    return opened_folder_at(root_fd, [part for part in placed.anchor.split("/") if part])


def _unlink_spare(anchor: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=anchor)


def _rmdir(root_fd: int, folder: str) -> None:
    folders, name = split(folder)
    with opened_folder_at(root_fd, folders) as fd:
        os.rmdir(name, dir_fd=fd)


def _mkdir(root_fd: int, folder: str, attributes: Attributes | None) -> None:
    folders, name = split(folder)
    with opened_folder_at(root_fd, folders) as fd:
        os.mkdir(name, 0o700, dir_fd=fd)
        wanted = attributes or attributes_of(os.fstat(fd))
        with opened_folder_at(fd, (name,)) as made:
            give(made, None, wanted)
            os.fchmod(made, wanted[0])


def _sync(root_fd: int, plan: Plan) -> None:
    folders = {split(placed.step.path)[0] for placed in plan.placed}
    folders |= {tuple(part for part in placed.anchor.split("/") if part) for placed in plan.placed}
    for folder in folders:
        with suppress(OSError), opened_folder_at(root_fd, folder) as fd:
            os.fsync(fd)
