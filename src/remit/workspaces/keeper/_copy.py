"""Copies a tree for a checkout: shared blocks where the file system can, else bytes, never hard links.

A hard link would let a command that writes into its own copy change the user's file.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from remit.workspaces.keeper import _syscalls
from remit.workspaces.keeper._tree import OPAQUE_MARKS

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK_BYTES: Final = 512
_SPARSE_BYTES: Final = 16 * 1024 * 1024
"""Smaller files are read whole: not every file system tells of holes in time."""
_CHUNK_BYTES: Final = 8 * 1024 * 1024
_CHECK_EVERY_FILES: Final = 64
_NO_REFLINK: Final = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)


class TreeTooLarge(Exception):
    """The tree holds more than may be copied."""


@dataclass(slots=True)
class CopyReport:
    """What a copy did."""

    files: int = 0
    size_bytes: int = 0
    shared: int = 0
    """Files whose blocks are shared with the original until one of the two is written."""
    skipped: list[str] = field(default_factory=list[str])
    """Pipes, sockets, devices and unreadable files, which aren't in the copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyBounds:
    """What may be copied; None: no bound."""

    max_files: int | None = None
    max_bytes: int | None = None


def copy_tree(
    source: Path,
    target: Path,
    *,
    bounds: CopyBounds,
    skip: Collection[Path] = (),
    check: Callable[[], None] = lambda: None,
    layer: bool = False,
) -> CopyReport:
    """Copies the folder `source` to the new folder `target`.

    Args:
        source: is only read; links in it are copied as links.
        target: is made; its parent exists.
        bounds: where to give up.
        skip: absolute paths below `source` that are left out.
        check: is called now and then; what it raises ends the copy.
        layer: whether it is a checkout's own storage: owners stay, and so does what an overlay notes in its
            upper folder (names that are gone, folders through which nothing shows).

    Raises:
        TreeTooLarge: `bounds` are reached; what was copied so far is left for the caller to remove.
        OSError: the disk is full, or a folder can't be read.
    """
    target.mkdir(mode=0o700)
    copier = (_LayerCopier if layer else _Copier)(bounds, frozenset(skip), check)
    source_fd = os.open(source, _FOLDER)
    try:
        target_fd = os.open(target, _FOLDER)
        try:
            copier.folder(source_fd, target_fd, source)
        finally:
            os.close(target_fd)
    finally:
        os.close(source_fd)
    return copier.report


class _Copier:
    def __init__(self, bounds: CopyBounds, skip: frozenset[Path], check: Callable[[], None]) -> None:
        self._bounds = bounds
        self._check = check
        self._skip = skip
        self._can_share = True
        self.report = CopyReport()

    def folder(self, source_fd: int, target_fd: int, path: Path) -> None:
        with os.scandir(source_fd) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            if path / name in self._skip:
                continue
            self._entry(source_fd, target_fd, path, name)
        self._folder_facts(source_fd, target_fd)

    def _entry(self, source_fd: int, target_fd: int, path: Path, name: str) -> None:
        try:
            info = os.stat(name, dir_fd=source_fd, follow_symlinks=False)
        except FileNotFoundError:  # removed meanwhile
            return
        if stat.S_ISDIR(info.st_mode):
            self._inner_folder(source_fd, target_fd, path, name)
        elif stat.S_ISLNK(info.st_mode):
            self._link(source_fd, target_fd, name, info)
        elif stat.S_ISREG(info.st_mode):
            self._file(source_fd, target_fd, path, name)
        else:
            self._special(target_fd, path, name, info)

    def _link(self, source_fd: int, target_fd: int, name: str, info: os.stat_result) -> None:
        os.symlink(os.readlink(name, dir_fd=source_fd), name, dir_fd=target_fd)
        with suppress(OSError):
            times = (info.st_atime_ns, info.st_mtime_ns)
            os.utime(name, ns=times, dir_fd=target_fd, follow_symlinks=False)

    def _special(self, target_fd: int, path: Path, name: str, info: os.stat_result) -> None:
        self.report.skipped.append(str(path / name))

    def _folder_facts(self, source_fd: int, target_fd: int) -> None:
        _copy_facts(os.fstat(source_fd), target_fd)

    def _file_facts(self, info: os.stat_result, handle: int) -> None:
        _copy_facts(info, handle)

    def _inner_folder(self, source_fd: int, target_fd: int, path: Path, name: str) -> None:
        try:
            inner_source = os.open(name, _FOLDER, dir_fd=source_fd)
        except PermissionError:
            self.report.skipped.append(str(path / name))
            return
        try:
            os.mkdir(name, 0o700, dir_fd=target_fd)
            inner_target = os.open(name, _FOLDER, dir_fd=target_fd)
            try:
                self.folder(inner_source, inner_target, path / name)
            finally:
                os.close(inner_target)
        finally:
            os.close(inner_source)

    def _file(self, source_fd: int, target_fd: int, path: Path, name: str) -> None:
        try:
            reading = os.open(name, _READ, dir_fd=source_fd)
        except (PermissionError, FileNotFoundError):
            self.report.skipped.append(str(path / name))
            return
        try:
            info = os.fstat(reading)
            if not stat.S_ISREG(info.st_mode):
                self.report.skipped.append(str(path / name))
                return
            self._count(info.st_size)
            writing = os.open(name, _WRITE, 0o600, dir_fd=target_fd)
            try:
                self._content(reading, writing, info)
                self._file_facts(info, writing)
            finally:
                os.close(writing)
        finally:
            os.close(reading)

    def _count(self, size_bytes: int) -> None:
        if self.report.files % _CHECK_EVERY_FILES == 0:
            self._check()
        self.report.files += 1
        self.report.size_bytes += size_bytes
        bounds = self._bounds
        if bounds.max_files is not None and self.report.files > bounds.max_files:
            raise TreeTooLarge(f"more than {bounds.max_files} files")
        if bounds.max_bytes is not None and self.report.size_bytes > bounds.max_bytes:
            raise TreeTooLarge(f"more than {bounds.max_bytes // 1024**2} MiB")

    def _content(self, reading: int, writing: int, info: os.stat_result) -> None:
        if self._can_share and info.st_size:
            try:
                _syscalls.reflink(reading, writing)
            except OSError as error:
                if error.errno not in _NO_REFLINK:
                    raise
                self._can_share = False
            else:
                self.report.shared += 1
                return
        if info.st_size >= _SPARSE_BYTES and info.st_blocks * _BLOCK_BYTES < info.st_size // 2:
            self._copy_with_holes(reading, writing, info.st_size)
            return
        while os.sendfile(writing, reading, None, _CHUNK_BYTES):
            pass

    def _copy_with_holes(self, reading: int, writing: int, size_bytes: int) -> None:
        """Only what was written: a sparse image may be larger than the disk."""
        os.ftruncate(writing, size_bytes)
        at = 0
        while at < size_bytes:
            try:
                start = os.lseek(reading, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return  # a hole up to the end
            at = min(os.lseek(reading, start, os.SEEK_HOLE), size_bytes)
            os.lseek(writing, start, os.SEEK_SET)
            while start < at:
                self._check()
                sent = os.sendfile(writing, reading, start, min(_CHUNK_BYTES, at - start))
                if not sent:
                    return  # it was cut meanwhile
                start += sent


class _LayerCopier(_Copier):
    """Copies a checkout's own storage, so that it can be opened as if it were the original."""

    def _link(self, source_fd: int, target_fd: int, name: str, info: os.stat_result) -> None:
        super()._link(source_fd, target_fd, name, info)
        if os.geteuid() == 0:
            os.chown(name, info.st_uid, info.st_gid, dir_fd=target_fd, follow_symlinks=False)

    def _special(self, target_fd: int, path: Path, name: str, info: os.stat_result) -> None:
        if stat.S_ISCHR(info.st_mode) and info.st_rdev == 0:
            os.mknod(name, info.st_mode, os.makedev(0, 0), dir_fd=target_fd)  # allowed to every user
        else:
            super()._special(target_fd, path, name, info)

    def _folder_facts(self, source_fd: int, target_fd: int) -> None:
        for mark in OPAQUE_MARKS:
            with suppress(OSError):  # most folders have none, and not everybody may read each
                os.setxattr(target_fd, mark, os.getxattr(source_fd, mark))
        self._keep_owner(os.fstat(source_fd), target_fd)
        super()._folder_facts(source_fd, target_fd)

    def _file_facts(self, info: os.stat_result, handle: int) -> None:
        self._keep_owner(info, handle)
        super()._file_facts(info, handle)

    def _keep_owner(self, info: os.stat_result, handle: int) -> None:
        if os.geteuid() == 0:
            os.fchown(handle, info.st_uid, info.st_gid)


def _copy_facts(info: os.stat_result, handle: int) -> None:
    """Mode and times; the owner is who copies, since commands must be able to change the copy."""
    os.fchmod(handle, stat.S_IMODE(info.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))
    os.utime(handle, ns=(info.st_atime_ns, info.st_mtime_ns))


def merge_tree(source: Path, target: Path) -> None:
    """Puts what lies in `source` into the existing folder `target`; its files replace those of the same name.

    Both belong to this process alone: nobody changes them meanwhile.

    Raises:
        OSError: the disk is full, or a folder stands where a file is to be.
    """
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        place = target / entry.name
        if entry.is_dir(follow_symlinks=False) and place.is_dir() and not place.is_symlink():
            merge_tree(Path(entry.path), place)
            continue
        if os.path.lexists(place) and (place.is_symlink() or not place.is_dir()):
            place.unlink()
        if entry.is_dir(follow_symlinks=False):
            copy_tree(Path(entry.path), place, bounds=CopyBounds())
        elif entry.is_symlink():
            place.symlink_to(os.readlink(entry.path))
        elif entry.is_file(follow_symlinks=False):  # a pipe would never be read to its end
            shutil.copy2(entry.path, place, follow_symlinks=False)
