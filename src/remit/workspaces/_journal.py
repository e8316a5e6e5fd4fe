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
import hashlib
import json
import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from remit.workspaces._changes import Content
from remit.workspaces._placing import Attributes, Placed, Plan, Step, look_at, split
from remit.workspaces.keeper._tree import opened_folder_at

__all__ = ["Fault", "Journal", "TreeMoved", "execute", "finish", "is_done", "roll_back", "write_synced"]

Fault = Callable[[str], None]
"""Called with the name of every step before it is done; tests make it raise."""

_COPIED_ATTRIBUTES = ("user.", "system.posix_acl_access")
_CHUNK = 1 << 20
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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
        _stage(root_fd, placed, blobs)
    for placed in plan.placed:
        if placed.step.before:
            fault(f"keep {placed.step.path}")
            _keep_old(root_fd, placed)
    for placed in plan.placed:
        if placed.step.after is None:
            fault(f"remove {placed.step.path}")
            _require_unmoved(root_fd, placed)
            _unlink(root_fd, placed.step.path)
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
            _take_place(root_fd, placed)
    fault("sync")
    _sync(root_fd, plan)


def finish(root_fd: int, plan: Plan, fault: Fault) -> None:
    """Remove the spare names; what was done stays."""
    for placed in plan.placed:
        fault(f"clean {placed.step.path}")
        with suppress(OSError), _anchor(root_fd, placed) as fd:
            for name in (placed.new, placed.old):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=fd)
    _sync(root_fd, plan)


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
    seen = look_at(root_fd, placed.step.path)
    if seen.kind == "content" and seen.holds(placed.step.after):
        _unlink(root_fd, placed.step.path)
    elif seen.kind in ("content", "special"):
        touched.append(placed.step.path)


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
        try:
            os.rename(placed.old, name, src_dir_fd=anchor, dst_dir_fd=fd)
        except FileNotFoundError:  # this file system made no link: the bytes are in the node's folder
            with suppress(FileNotFoundError):
                os.unlink(placed.new, dir_fd=anchor)
            _write_new(anchor, placed.new, before, blobs, placed.attributes)
            os.rename(placed.new, name, src_dir_fd=anchor, dst_dir_fd=fd)


def _stage(root_fd: int, placed: Placed, blobs: Path) -> None:
    """Write the new content under its spare name, with the owner and mode that it is to have."""
    step = placed.step
    if step.after is None:
        return
    is_link = step.after.mode == "120000"
    replaces = step.before is not None and (step.before.mode == "120000") == is_link
    attributes = placed.attributes if replaces else step.attributes
    with _anchor(root_fd, placed) as anchor:
        _write_new(anchor, placed.new, step.after, blobs, attributes)
        if replaces and not is_link:
            _copy_attributes(root_fd, step.path, anchor, placed.new)


def _write_new(anchor: int, name: str, content: Content, blobs: Path, attributes: Attributes | None) -> None:
    if content.mode == "120000":
        os.symlink((blobs / content.sha256).read_bytes(), os.fsencode(name), dir_fd=anchor)
        _give(name, anchor, attributes or _attributes_of(os.fstat(anchor)))
        return
    fd = os.open(name, _CREATE, 0o600, dir_fd=anchor)
    try:
        _write_blob(fd, blobs / content.sha256)
        _give(fd, None, attributes or _attributes_of(os.fstat(anchor)))
        os.fchmod(fd, _permissions(content, attributes, os.fstat(anchor).st_mode))
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_blob(fd: int, blob: Path) -> None:
    """Copy kept bytes, which must still be those of their name."""
    digest = hashlib.sha256()
    with blob.open("rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            view = memoryview(chunk)
            while view:
                view = view[os.write(fd, view) :]
    if digest.hexdigest() != blob.name:
        raise OSError(errno.EIO, "the kept bytes are damaged")


def _permissions(content: Content, attributes: Attributes | None, folder_mode: int) -> int:
    """The permissions of what it replaces, or those that its folder has; executable as git says."""
    mode = attributes[0] if attributes else folder_mode & 0o666
    if content.mode == "100644":
        return mode & ~0o111
    return mode if mode & 0o100 else mode | (mode & 0o444) >> 2


def _attributes_of(info: os.stat_result) -> Attributes:
    return stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid


def _give(what: int | str, dir_fd: int | None, attributes: Attributes) -> None:
    """Set owner and group, as far as this user may."""
    _, owner, group = attributes
    info = os.stat(what, dir_fd=dir_fd, follow_symlinks=isinstance(what, int))
    for uid, gid in ((owner, group), (-1, group)):
        if (info.st_uid, info.st_gid) != (owner, group):
            try:
                os.chown(what, uid, gid, dir_fd=dir_fd, follow_symlinks=isinstance(what, int))
                return
            except PermissionError:
                continue


def _copy_attributes(root_fd: int, path: str, anchor: int, new: str) -> None:
    """Take over extended attributes and access lists, where there are any."""
    if not hasattr(os, "listxattr"):
        return
    folders, name = split(path)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError), opened_folder_at(root_fd, folders) as fd:
        source, target = os.open(name, flags, dir_fd=fd), os.open(new, flags, dir_fd=anchor)
        try:
            for attribute in os.listxattr(source):
                if attribute.startswith(_COPIED_ATTRIBUTES):
                    os.setxattr(target, attribute, os.getxattr(source, attribute))
        finally:
            os.close(source)
            os.close(target)


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
            facts = (info.st_ino, info.st_size, info.st_mtime_ns)
    except FileNotFoundError:
        facts = None
    if facts != (placed.facts if placed.step.before else None):
        raise TreeMoved(placed.step.path)


def _take_place(root_fd: int, placed: Placed) -> None:
    folders, name = split(placed.step.path)
    with _anchor(root_fd, placed) as anchor, opened_folder_at(root_fd, folders) as fd:
        os.rename(placed.new, name, src_dir_fd=anchor, dst_dir_fd=fd)


def _anchor(root_fd: int, placed: Placed) -> AbstractContextManager[int]:
    return opened_folder_at(root_fd, [part for part in placed.anchor.split("/") if part])


def _unlink(root_fd: int, path: str) -> None:
    folders, name = split(path)
    with opened_folder_at(root_fd, folders) as fd:
        os.unlink(name, dir_fd=fd)


def _rmdir(root_fd: int, folder: str) -> None:
    folders, name = split(folder)
    with opened_folder_at(root_fd, folders) as fd:
        os.rmdir(name, dir_fd=fd)


def _mkdir(root_fd: int, folder: str, attributes: Attributes | None) -> None:
    folders, name = split(folder)
    with opened_folder_at(root_fd, folders) as fd:
        os.mkdir(name, 0o700, dir_fd=fd)
        wanted = attributes or _attributes_of(os.fstat(fd))
        with opened_folder_at(fd, (name,)) as made:
            _give(made, None, wanted)
            os.fchmod(made, wanted[0])


def _sync(root_fd: int, plan: Plan) -> None:
    folders = {split(placed.step.path)[0] for placed in plan.placed}
    folders |= {tuple(part for part in placed.anchor.split("/") if part) for placed in plan.placed}
    for folder in folders:
        with suppress(OSError), opened_folder_at(root_fd, folder) as fd:
            os.fsync(fd)
