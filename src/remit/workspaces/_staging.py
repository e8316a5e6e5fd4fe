"""Writes content under a spare name, with the owner, mode and attributes that it is to have."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from remit.workspaces._changes import Content
from remit.workspaces._placing import Attributes, split
from remit.workspaces.keeper._tree import opened_folder_at

__all__ = ["attributes_of", "copy_attributes", "give", "unfinished", "without_powers", "write_new"]

_COPIED_ATTRIBUTES = ("user.", "system.posix_acl_access")
_CHUNK = 1 << 20
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_new(anchor: int, name: str, content: Content, blobs: Path, attributes: Attributes | None) -> None:
    """Make the file or link; its name stands for nothing, or for all of it. None: as its folder has it."""
    if content.mode == "120000":
        os.symlink((blobs / content.sha256).read_bytes(), os.fsencode(name), dir_fd=anchor)
        give(name, anchor, attributes or attributes_of(os.fstat(anchor)))
        return
    making = unfinished(name)
    fd = os.open(making, _CREATE, 0o600, dir_fd=anchor)
    try:
        _write_blob(fd, blobs / content.sha256)
        give(fd, None, attributes or attributes_of(os.fstat(anchor)))
        os.fchmod(fd, _permissions(content, attributes, os.fstat(anchor).st_mode))
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(making, name, src_dir_fd=anchor, dst_dir_fd=anchor)


def unfinished(name: str) -> str:
    """What a file is called until it is whole."""
    return f"{name}.part"


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


def attributes_of(info: os.stat_result) -> Attributes:
    """Permissions, owner and group."""
    return stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid


def give(what: int | str, dir_fd: int | None, attributes: Attributes) -> None:
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


def copy_attributes(root_fd: int, path: str, anchor: int, new: str) -> None:
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


def without_powers(attributes: Attributes | None) -> Attributes | None:
    """New content doesn't inherit that it runs as somebody else: nobody gave it that."""
    return attributes and (attributes[0] & 0o777, *attributes[1:])
