"""Confines a process where no namespace can be made: Landlock for files, a filter for calls, no capability.

What it holds: files can be read only where that is granted, and changed only in the checkout; nothing
connects out while the network is off; processes of others can't be traced and, from Landlock 6 on, not be
signalled. What it leaves open is told by `leaves_open`. Standard library only.

Source: https://docs.kernel.org/userspace-api/landlock.html (2026-11).
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Confinement", "confine", "landlock_version", "leaves_open", "try_landlock"]

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_VERSION_FLAG: Final = 1
_PATH_BENEATH: Final = 1
_OLDEST: Final = 3
"""Before it, files could be truncated wherever they lie."""

_EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_TRUNCATE: Final = 1 << 14
_IOCTL_DEVICE: Final = 1 << 15
_ALL_OF_VERSION: Final = {3: (1 << 15) - 1, 5: (1 << 16) - 1}
_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_SCOPES: Final = 0b11
"""Abstract unix sockets, and signals."""

_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_PR_CAPBSET_DROP: Final = 24
_PR_SET_SECUREBITS: Final = 28
_FILTER_MODE: Final = 2
_NO_ROOT_PRIVILEGES: Final = 0b1111
"""NOROOT and NO_SETUID_FIXUP, both locked: user number 0 has no capability for being it."""
_CAPABILITY_VERSION: Final = 0x2008_0522
_LAST_CAPABILITY: Final = 63

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What a confined command may touch. Paths that aren't there are passed over."""

    read: tuple[str, ...]
    """Files and folders, with all below them, to read and to run."""
    listed: tuple[str, ...]
    """Folders whose names may be listed, of which only parts can be read."""
    write: tuple[str, ...]
    """Folders to change at will, and devices."""
    seccomp: bytes


def landlock_version() -> int:
    """What the kernel has of Landlock; 0: nothing."""
    version = _libc.syscall(
        ctypes.c_long(_CREATE_RULESET), None, ctypes.c_long(0), ctypes.c_long(_VERSION_FLAG)
    )
    return max(0, int(version))


def try_landlock() -> str | None:
    """None where it can be used; else why not, in words. A process is forked to try it."""
    version = landlock_version()
    if version < _OLDEST:
        return "the kernel has no Landlock" if not version else f"the kernel's Landlock is version {version}"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            confine(Confinement(read=("/usr",), listed=(), write=(), seccomp=b""))
            code = 0 if _is_held() else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return None if status == 0 else "a process can't be confined by Landlock here"


def _is_held() -> bool:
    try:
        os.listdir("/etc")
    except PermissionError:
        return True
    return False


def leaves_open(version: int) -> tuple[str, ...]:
    """What a confined command can do all the same, in words."""
    open_ends = [
        "modes, owners and times of your other files can be changed",
        "names and command lines of the machine's processes can be read",
        "names of the machine's users can be read",
        "System V shared memory is the machine's",
        "the number of processes isn't bounded",
        "there is no /tmp but $TMPDIR",
        "with the network off, loopback and unix sockets are off too",
    ]
    if version < 6:
        open_ends.append("your other processes can be signalled")
    return tuple(open_ends)


def confine(wanted: Confinement) -> None:
    """Confines this process and all that it will start; it can't be taken back.

    Raises:
        OSError: the kernel refuses; the caller must not go on.
    """
    _drop_capabilities()
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))), "no_new_privs")
    _restrict(wanted)
    if wanted.seccomp:
        _filter_calls(wanted.seccomp)


def _restrict(wanted: Confinement) -> None:
    version = landlock_version()
    if version < _OLDEST:
        raise OSError(errno.EOPNOTSUPP, "the kernel has no Landlock that would do")
    handled = _ALL_OF_VERSION[5 if version >= 5 else 3]
    fields = struct.pack("=Q", handled)
    if version >= 6:
        fields = struct.pack("=QQQ", handled, 0, _SCOPES)
    ruleset = _call(_CREATE_RULESET, fields, len(fields), 0)
    try:
        _grant(ruleset, wanted.read, _READ & handled)
        _grant(ruleset, wanted.listed, _READ_DIR)
        _grant(ruleset, wanted.write, handled)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _grant(ruleset: int, paths: Sequence[str], access: int) -> None:
    for path in paths:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            folder = stat.S_ISDIR(os.fstat(handle).st_mode)
            rule = struct.pack("=Qi", access if folder else access & _ON_FILES, handle)
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
        finally:
            os.close(handle)


def _filter_calls(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    _checked(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_FILTER_MODE), header, 0, 0), "seccomp")


def _drop_capabilities() -> None:
    # In this order: each step needs a capability that the last one takes away. Without any, both are refused,
    # and there is nothing to drop.
    for number in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, *map(ctypes.c_ulong, (number, 0, 0, 0)))
    _libc.prctl(_PR_SET_SECUREBITS, *map(ctypes.c_ulong, (_NO_ROOT_PRIVILEGES, 0, 0, 0)))
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _checked(_libc.capset(header, bytes(24)), "capset")


def _call(number: int, *arguments: int | bytes) -> int:
    given = [one if isinstance(one, bytes) else ctypes.c_long(one) for one in arguments]
    return _checked(int(_libc.syscall(ctypes.c_long(number), *given)), "landlock")


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
