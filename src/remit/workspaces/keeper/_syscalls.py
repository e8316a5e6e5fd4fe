"""The system calls that the standard library doesn't have."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from typing import Final

CLONE_NEWNS: Final = 0x0002_0000
CLONE_NEWUSER: Final = 0x1000_0000
CLONE_NEWNET: Final = 0x4000_0000

MS_RDONLY: Final = 0x1
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_NOEXEC: Final = 0x8
MS_REMOUNT: Final = 0x20
MS_NOATIME: Final = 0x400
MS_NODIRATIME: Final = 0x800
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x4_0000
MS_RELATIME: Final = 0x20_0000

MNT_DETACH: Final = 0x2

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_FICLONE: Final = 0x4004_9409

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Moves the calling process into new namespaces."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def enter_namespace(path: str, kind: int) -> None:
    """Moves the calling process into the namespace that a file in /proc stands for."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_libc.setns(ctypes.c_int(handle), ctypes.c_int(kind)), f"setns to {path}")
    finally:
        os.close(handle)


def mount(source: str, target: str, *, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mounts `source` on `target`."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        os.fsencode(kind) if kind else None,
        ctypes.c_ulong(flags),
        os.fsencode(options) if options else None,
    )
    _checked(result, f"mount {kind or 'bind'} on {target}")


def unmount(target: str, *, flags: int = MNT_DETACH) -> None:
    """Takes the topmost mount off `target`."""
    _checked(_libc.umount2(os.fsencode(target), ctypes.c_int(flags)), f"unmount {target}")


def die_with_parent(signal_number: int, *, parent: int) -> None:
    """Asks the kernel to send this process a signal when `parent` dies; raises when it's dead already."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0), "prctl")
    if os.getppid() != parent:
        raise OSError(errno.ESRCH, "the parent is gone")


def become_subreaper() -> None:
    """Makes orphaned descendants children of this process instead of the system's init."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl")


def give_back_memory() -> None:
    """Gives memory that is free now back to the system, where the C library can do so."""
    trim = getattr(_libc, "malloc_trim", None)  # glibc's own
    if trim is not None:
        trim(ctypes.c_size_t(0))


def reflink(source_fd: int, target_fd: int) -> None:
    """Lets two files share their blocks until one is written; raises where the file system can't."""
    fcntl.ioctl(target_fd, _FICLONE, source_fd)
