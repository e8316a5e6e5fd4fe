"""Paths that can't lead out of a directory, whoever changes links while they are resolved.

Everything is resolved under a directory handle, by the kernel (`openat2` with RESOLVE_BENEATH) or, where that
is missing, part by part with O_NOFOLLOW and a stack of handles; both follow links that stay inside. What a
name means is never decided by comparing strings, and what was opened is judged by its handle.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final

from remit.workspaces.keeper._refusals import OperationRefused, refusal_from

MAX_PATH_BYTES: Final = 4095
MAX_NAME_BYTES: Final = 255
MAX_DEPTH: Final = 256

_O_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY)
_DIRECTORY: Final = _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_SYS_OPENAT2: Final = 437  # the same number on x86_64 and aarch64
_RESOLVE_BENEATH_NO_MAGIC: Final = 0x08 | 0x02
_MAX_RETRIES: Final = 64
_MAX_LINKS: Final = 40

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

Opener = Callable[[int, Sequence[str], int, int], int]
"""(root handle, parts, flags, mode) -> handle; raises OSError, EXDEV where the path leads out."""


def split_path(relative_path: str, *, may_be_root: bool = False) -> tuple[str, ...]:
    """Checks the form of a path given by a model and returns its parts; no parts are the root.

    Raises:
        OperationRefused: absolute, with `..`, with NUL, too long, or empty.
    """
    shown = relative_path[:80].encode("utf-8", "backslashreplace").decode()
    if "\0" in relative_path:
        raise OperationRefused("invalid_arguments", "the path holds a NUL character")
    try:
        encoded = relative_path.encode("utf-8")
    except UnicodeEncodeError:
        raise OperationRefused("invalid_arguments", f"{shown}: the path isn't valid text") from None
    if relative_path.startswith("/"):
        raise OperationRefused("denied", f"{shown}: this is absolute; give it relative to the workspace root")
    parts = tuple(part for part in relative_path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise OperationRefused(
            "denied", f"{shown}: `..` isn't allowed; give the path from the workspace root"
        )
    too_long = len(encoded) > MAX_PATH_BYTES or len(parts) > MAX_DEPTH
    if too_long or any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise OperationRefused("invalid_arguments", f"{shown}...: the path is too long")
    if not parts and not may_be_root:
        raise OperationRefused("invalid_arguments", "the path is empty; name a file")
    return parts


def openat2_beneath(root_fd: int, parts: Sequence[str], flags: int, mode: int = 0) -> int:
    """Opens a path under a handle; the kernel refuses to leave it."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, mode, _RESOLVE_BENEATH_NO_MAGIC)
    path = os.fsencode("/".join(parts) or ".")
    for _ in range(_MAX_RETRIES):
        fd = _libc.syscall(
            ctypes.c_long(_SYS_OPENAT2), ctypes.c_int(root_fd), path, how, ctypes.c_size_t(len(how))
        )
        if fd >= 0:
            return int(fd)
        number = ctypes.get_errno()
        # EAGAIN: something was renamed meanwhile, and the kernel couldn't prove that a `..` stays inside.
        if number not in (errno.EAGAIN, errno.EINTR):
            raise OSError(number, os.strerror(number))
    return walk_beneath(root_fd, parts, flags, mode)


def walk_beneath(root_fd: int, parts: Sequence[str], flags: int, mode: int = 0) -> int:
    """The same where `openat2` is missing: one part at a time, links resolved by hand."""
    handles = [os.open(".", _DIRECTORY, dir_fd=root_fd)]
    todo = list(reversed(parts))
    links = 0
    try:
        while todo:
            part = todo.pop()
            if part == "..":
                if len(handles) == 1:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                os.close(handles.pop())
                continue
            opened = _open_part(handles[-1], part, flags if not todo else _DIRECTORY, mode)
            if isinstance(opened, str):
                links += 1
                todo += _link_parts(opened, links)
            elif todo:
                handles.append(opened)
            else:
                return opened
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=handles[-1])
    finally:
        for handle in handles:
            os.close(handle)


def _open_part(folder_fd: int, part: str, flags: int, mode: int) -> int | str:
    """A handle on one name in a folder, or where the link of that name points to."""
    try:
        fd = os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder_fd)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR) or flags & os.O_NOFOLLOW:
            raise
        try:
            return os.readlink(part, dir_fd=folder_fd)
        except OSError:
            raise error from None
    if not flags & os.O_NOFOLLOW and stat.S_ISLNK(os.fstat(fd).st_mode):  # a handle made with O_PATH
        os.close(fd)
        return os.readlink(part, dir_fd=folder_fd)
    return fd


def _link_parts(target: str, links: int) -> list[str]:
    if links > _MAX_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if target.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return [part for part in reversed(target.split("/")) if part not in ("", ".")]


def _openat2_works() -> bool:
    try:
        root_fd = os.open("/", _DIRECTORY)
    except OSError:
        return False
    try:
        os.close(openat2_beneath(root_fd, (), _DIRECTORY))
    except OSError:  # ENOSYS on old kernels, EPERM under some filters
        return False
    finally:
        os.close(root_fd)
    return True


_opener: Opener = openat2_beneath if _openat2_works() else walk_beneath


def open_beneath(root_fd: int, parts: Sequence[str], flags: int, mode: int = 0) -> int:
    """Opens a path under a handle, by the best means there is; raises OSError."""
    return _opener(root_fd, parts, flags, mode)


@contextmanager
def opened(root_fd: int, parts: Sequence[str], flags: int) -> Generator[int]:
    """A handle for the length of a block; failed system calls become refusals."""
    try:
        fd = open_beneath(root_fd, parts, flags)
    except OSError as error:
        raise refusal_from(error, path="/".join(parts)) from None
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_folder(root_fd: int, parts: Sequence[str]) -> Generator[int]:
    """A readable handle on a folder."""
    with opened(root_fd, parts, os.O_RDONLY | os.O_DIRECTORY) as fd:
        yield fd


@contextmanager
def opened_file(root_fd: int, parts: Sequence[str]) -> Generator[int]:
    """A readable handle on a regular file; FIFOs, devices and sockets are refused, not waited for."""
    with opened(root_fd, parts, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as fd:
        refuse_special(os.fstat(fd).st_mode, path="/".join(parts))
        yield fd


def refuse_special(mode: int, *, path: str) -> None:
    """Raises unless the mode is that of a regular file."""
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise OperationRefused("invalid_arguments", f"{path}: this is a folder, not a file")
    kind = "a named pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    raise OperationRefused("denied", f"{path}: this is {kind}, not a regular file")
