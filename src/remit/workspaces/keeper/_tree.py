"""What changed in a tree, read from the layers it lies in. Nothing here follows a link.

An overlay's upper folder says what changed (a whiteout is a character device 0/0, a folder that replaces
another is marked by an extended attribute). A copied tree is compared with facts recorded right after it was
made. Standard library only.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

__all__ = [
    "OPAQUE_MARKS",
    "Facts",
    "Found",
    "Hash",
    "Scan",
    "TreeTooLarge",
    "copy_regular",
    "facts_of",
    "git_mode",
    "is_git_name",
    "opened_folder_at",
    "opened_folder_in",
    "read_link_at",
    "record_tree",
    "scan_recorded",
    "scan_upper",
    "show_path",
]

Facts = dict[str, tuple[int, int, int, int, int]]
"""Path to (mode, size, mtime_ns, ctime_ns, inode): the change time can't be set back by a program."""

OPAQUE_MARKS: Final = ("user.overlay.opaque", "trusted.overlay.opaque")
"""What an overlay marks a folder of its upper layer with when nothing of the lower one shows through."""
_REDIRECT: Final = ("user.overlay.redirect", "trusted.overlay.redirect")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK: Final = 1 << 20
_MAX_DEPTH: Final = 256


class Hash(Protocol):
    """What `hashlib` makes."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes."""
        ...


class TreeTooLarge(Exception):
    """More changed than a patch can hold; the message says how much."""


@dataclass(frozen=True, slots=True)
class Found:
    """A name in the changed tree."""

    path: str
    kind: Literal["file", "link", "gone"]
    mode: int = 0
    size: int = 0


@dataclass(slots=True)
class Scan:
    """What a walk over the changed tree found; nothing is compared with the base yet."""

    found: list[Found] = field(default_factory=list[Found])
    folders: set[str] = field(default_factory=set[str])
    """Folders that exist in the changed layer."""
    opaque: list[str] = field(default_factory=list[str])
    """Folders of which nothing in the base shows through."""
    special: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Pipes, sockets, devices and what can't be read: path and what it is."""
    git_names: list[str] = field(default_factory=list[str])
    """What isn't looked into, since git takes the name for its own; not the root's own `.git`."""


def scan_upper(folder: str, *, max_entries: int) -> Scan:
    """Read the upper folder of an overlay.

    Raises:
        TreeTooLarge: It holds more than `max_entries` names.
        OSError: It can't be read.
    """
    scan = Scan()
    for path, name, parent_fd, info in _walk(folder, scan, max_entries):
        if stat.S_ISCHR(info.st_mode) and info.st_rdev == 0:
            scan.found.append(Found(path, "gone"))
        elif stat.S_ISDIR(info.st_mode):
            _read_marks(scan, path, name, parent_fd)
        else:
            _note(scan, path, info)
    return scan


def scan_recorded(folder: str, facts: Facts, *, max_entries: int, skip: Sequence[str] = ()) -> Scan:
    """Compare a copied tree with the facts recorded when it was made; `skip` names folders that aren't ours.

    Raises: as `scan_upper`.
    """
    scan = Scan()
    left = dict(facts)
    for path, _, _, info in _walk(folder, scan, max_entries + len(facts), set(skip)):
        if not stat.S_ISDIR(info.st_mode) and left.pop(path, None) != facts_of(info):
            _note(scan, path, info)
            if len(scan.found) > max_entries:
                raise TreeTooLarge(f"more than {max_entries} files changed")
    scan.found += [Found(path, "gone") for path in left]
    return scan


def record_tree(folder: str, *, max_entries: int, skip: Sequence[str] = ()) -> Facts:
    """The facts of every file and link in a tree, without git's own folders."""
    walk = _walk(folder, Scan(), max_entries, set(skip))
    return {path: facts_of(info) for path, _, _, info in walk if not stat.S_ISDIR(info.st_mode)}


def facts_of(info: os.stat_result) -> tuple[int, int, int, int, int]:
    """What tells that a file hasn't been touched since."""
    return (info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)


def _note(scan: Scan, path: str, info: os.stat_result) -> None:
    if stat.S_ISREG(info.st_mode):
        scan.found.append(Found(path, "file", info.st_mode, info.st_size))
    elif stat.S_ISLNK(info.st_mode):
        scan.found.append(Found(path, "link", info.st_mode, info.st_size))
    else:
        scan.special.append((path, _special_name(info.st_mode)))


def _special_name(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "named pipe"
    return "socket" if stat.S_ISSOCK(mode) else "device"


def _read_marks(scan: Scan, path: str, name: str, parent_fd: int) -> None:
    if _has_mark(name, parent_fd, OPAQUE_MARKS, b"y"):
        scan.opaque.append(path)
    if _has_mark(name, parent_fd, _REDIRECT, None):
        raise OSError(
            errno.EOPNOTSUPP, f"{show_path(path)}: a redirected folder, which this overlay mustn't have"
        )


def _has_mark(name: str, parent_fd: int, attributes: Sequence[str], wanted: bytes | None) -> bool:
    if not hasattr(os, "getxattr"):
        return False
    fd = os.open(name, _FOLDER, dir_fd=parent_fd)
    try:
        for attribute in attributes:
            try:
                value = os.getxattr(fd, attribute)
            except OSError:  # not there, or not for us to read
                continue
            if wanted is None or value == wanted:
                return True
        return False
    finally:
        os.close(fd)


def _walk(
    folder: str, scan: Scan, max_entries: int, skip: set[str] | None = None
) -> Generator[tuple[str, str, int, os.stat_result]]:
    """Every name below a folder, folders before what they hold, by handles only; never into a git folder."""
    counted = 0
    root_fd = os.open(folder, _FOLDER)
    stack: list[tuple[str, int, Iterator[os.DirEntry[str]]]] = [("", root_fd, _entries(root_fd))]
    try:
        while stack:
            prefix, fd, entries = stack[-1]
            entry = next(entries, None)
            if entry is None:
                stack.pop()
                os.close(fd)
                continue
            path = prefix + entry.name
            if path == ".git" or (skip and path in skip):
                continue
            counted += 1
            if counted > max_entries or len(stack) > _MAX_DEPTH:
                raise TreeTooLarge(f"more than {max_entries} files and folders, or folders too deep")
            if is_git_name(entry.name):
                scan.git_names.append(path)
                continue
            try:
                info = entry.stat(follow_symlinks=False)
                inner = os.open(entry.name, _FOLDER, dir_fd=fd) if stat.S_ISDIR(info.st_mode) else None
            except PermissionError:
                scan.special.append((path, "unreadable folder"))
                continue
            except OSError:  # gone or replaced meanwhile
                continue
            if inner is not None:
                scan.folders.add(path)
                stack.append((path + "/", inner, _entries(inner)))
            yield path, entry.name, fd, info
    finally:
        for _, fd, _ in stack:
            os.close(fd)


def _entries(fd: int) -> Iterator[os.DirEntry[str]]:
    with os.scandir(fd) as entries:
        return iter(sorted(entries, key=lambda entry: entry.name))


def is_git_name(name: str) -> bool:
    """Whether git, on some file system, takes this name for its own folder: `.git`, `.GIT`, `git~1`."""
    if "g" not in name and "G" not in name:
        return False
    folded = "".join(character for character in name if character not in _IGNORED_BY_HFS).lower()
    pieces = (piece.partition(":")[0].rstrip(". ") for piece in folded.split("\\"))
    return any(piece in (".git", "git~1") for piece in pieces)


_IGNORED_BY_HFS: Final = frozenset(
    chr(code) for code in (*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF)
)


@contextmanager
def opened_folder_at(root_fd: int, parts: Sequence[str]) -> Generator[int]:
    """A handle on a folder below a handle; no part of the way may be a link."""
    fd = os.open(".", _FOLDER, dir_fd=root_fd)
    try:
        for part in parts:
            inner = os.open(part, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_folder_in(top: str, folder: str) -> Generator[int]:
    """A handle on a folder inside another (empty: that one itself), with no link on the way."""
    top_fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with opened_folder_at(top_fd, [part for part in folder.split("/") if part]) as fd:
            yield fd
    finally:
        os.close(top_fd)


def copy_regular(
    parent_fd: int, name: str, target_fd: int | None, *more: Hash, max_bytes: int
) -> tuple[str, int, int]:
    """Read a regular file once: write its bytes to a handle, if one is given, and feed more hashes.

    Returns:
        SHA-256, size and mode.

    Raises:
        OSError: It isn't there, or isn't a regular file.
        TreeTooLarge: It holds more than `max_bytes`.
    """
    fd = os.open(name, _FILE, dir_fd=parent_fd)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.ENOTSUP, "not a regular file")
        if info.st_size > max_bytes:
            raise TreeTooLarge(f"larger than {max_bytes >> 20} MiB")
        digest = hashlib.sha256()
        size = 0
        while chunk := os.read(fd, _CHUNK):
            size += len(chunk)
            if size > max_bytes:
                raise TreeTooLarge(f"larger than {max_bytes >> 20} MiB")
            for hash_ in (digest, *more):
                hash_.update(chunk)
            if target_fd is not None:
                _write_all(target_fd, chunk)
        return digest.hexdigest(), size, info.st_mode
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_link_at(parent_fd: int, name: str) -> bytes:
    """Where a symbolic link points to, as bytes."""
    return os.fsencode(os.readlink(name, dir_fd=parent_fd))


def git_mode(mode: int) -> str:
    """The mode as git stores it: `100644`, `100755` (the owner may execute) or `120000`."""
    if stat.S_ISLNK(mode):
        return "120000"
    return "100755" if mode & 0o100 else "100644"


def show_path(path: str) -> str:
    """The path as text for people and models: quoted like git where it isn't printable UTF-8."""
    raw = os.fsencode(path)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return '"' + "".join(_show_byte(byte) for byte in raw) + '"'


def _show_byte(byte: int) -> str:
    if byte in (0x22, 0x5C):
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
