"""The filter of system calls that every sandboxed command runs under: a small BPF program, built here.

Namespaces and dropped capabilities are the wall. The filter closes the doors in it that a program without
privileges can still try: kernel interfaces with a long record of holes, and sockets that no network
namespace confines. What isn't denied is allowed; a call newer than this list is answered as if the kernel
didn't have it.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["UnknownArchitecture", "seccomp_program"]

_LD_WORD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_GREATER: Final = 0x25
_JUMP_GREATER_EQUAL: Final = 0x35
_JUMP_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06

_OFFSET_NUMBER: Final = 0
_OFFSET_ARCHITECTURE: Final = 4
_OFFSET_ARGUMENTS: Final = 16

_ALLOW: Final = 0x7FFF_0000
_KILL_PROCESS: Final = 0x8000_0000
_ERRNO: Final = 0x0005_0000

_X32_BIT: Final = 0x4000_0000
_NEWEST_KNOWN: Final = 469
"""The highest call number that this list was checked against; the same on both architectures."""

_NAMESPACE_FLAGS: Final = (
    0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000
)
"""NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET"""
_NEW_TIME: Final = 0x80
"""NEWTIME; in `clone` this bit belongs to the exit signal, so only `unshare` takes it."""
_TERMINAL_INJECTION: Final = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX put characters into a terminal's input."""
_SOCKET_FAMILIES: Final = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. Others (AF_VSOCK above all, which reaches a virtual machine's host)
aren't confined by a network namespace, or are rare and have had many holes."""

_DENIED: Final[dict[str, tuple[int | None, int | None]]] = {
    # name: (x86_64, aarch64); None: the architecture doesn't have it
    "ptrace": (101, 117),
    "syslog": (103, 116),
    "uselib": (134, None),
    "vhangup": (153, 58),
    "pivot_root": (155, 41),
    "_sysctl": (156, None),
    "chroot": (161, 51),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "create_module": (174, None),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18),
    "clock_settime": (227, 112),
    "kexec_load": (246, 104),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "finit_module": (313, 273),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "mount_setattr": (442, 442),
    "quotactl_fd": (443, 443),
    "open_tree_attr": (467, 467),
}
_MISSING: Final[dict[str, tuple[int, int]]] = {
    # Answered "no such call", so that programs take the older way instead of giving up.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),  # its flags lie in memory, where a filter can't see them
}


class UnknownArchitecture(ValueError):
    """No filter can be built for this processor."""


@dataclass(frozen=True, slots=True)
class _Architecture:
    audit: int
    column: int
    clone: int
    unshare: int
    ioctl: int
    socket: int


_ARCHITECTURES: Final = {
    "x86_64": _Architecture(audit=0xC000_003E, column=0, clone=56, unshare=272, ioctl=16, socket=41),
    "aarch64": _Architecture(audit=0xC000_00B7, column=1, clone=220, unshare=97, ioctl=29, socket=198),
}

_Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false (both in instructions to skip), constant."""


def seccomp_program(machine: str | None = None, *, sockets: bool = True) -> bytes:
    """The filter as the kernel takes it, one `struct sock_filter` after the other.

    Args:
        machine: `x86_64` or `aarch64`; None: the one that this runs on.
        sockets: False: none can be made but pairs; for where no namespace takes the network away.

    Raises:
        UnknownArchitecture: another processor.
    """
    name = machine or platform.machine()
    if name not in _ARCHITECTURES:
        raise UnknownArchitecture(f"no system call filter is known for {name}")
    return b"".join(
        struct.pack("=HBBI", *instruction) for instruction in _program(_ARCHITECTURES[name], sockets)
    )


def _program(architecture: _Architecture, sockets: bool) -> Iterable[_Instruction]:
    # A call by another architecture's numbers (32 bit, x32) would pass by this list.
    yield (_LD_WORD, 0, 0, _OFFSET_ARCHITECTURE)
    yield (_JUMP_EQUAL, 1, 0, architecture.audit)
    yield (_RETURN, 0, 0, _KILL_PROCESS)
    yield (_LD_WORD, 0, 0, _OFFSET_NUMBER)
    yield (_JUMP_GREATER_EQUAL, 0, 1, _X32_BIT)
    yield (_RETURN, 0, 0, _KILL_PROCESS)
    yield (_JUMP_GREATER, 0, 1, _NEWEST_KNOWN)
    yield _refuse(errno.ENOSYS)
    for numbers, number in ((_DENIED, errno.EPERM), (_MISSING, errno.ENOSYS)):
        for columns in numbers.values():
            call = columns[architecture.column]
            if call is not None:
                yield (_JUMP_EQUAL, 0, 1, call)
                yield _refuse(number)
    yield from _when(architecture.clone, argument=0, forbid_bits=_NAMESPACE_FLAGS)
    yield from _when(architecture.unshare, argument=0, forbid_bits=_NAMESPACE_FLAGS | _NEW_TIME)
    yield from _terminal(architecture.ioctl)
    yield from _sockets(architecture.socket, _SOCKET_FAMILIES if sockets else ())
    yield (_RETURN, 0, 0, _ALLOW)


def _refuse(number: int) -> _Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _load_argument(index: int) -> _Instruction:
    # The lower half (both architectures are little-endian): these arguments are 32 bits wide in the kernel.
    return (_LD_WORD, 0, 0, _OFFSET_ARGUMENTS + 8 * index)


def _when(call: int, *, argument: int, forbid_bits: int) -> list[_Instruction]:
    return [
        (_JUMP_EQUAL, 0, 4, call),
        _load_argument(argument),
        (_JUMP_ANY_BIT, 0, 1, forbid_bits),
        _refuse(errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _terminal(call: int) -> list[_Instruction]:
    checks = [
        part
        for request in _TERMINAL_INJECTION
        for part in ((_JUMP_EQUAL, 0, 1, request), _refuse(errno.EPERM))
    ]
    return [(_JUMP_EQUAL, 0, len(checks) + 2, call), _load_argument(1), *checks, (_RETURN, 0, 0, _ALLOW)]


def _sockets(call: int, families: Iterable[int]) -> list[_Instruction]:
    checks = [part for family in families for part in ((_JUMP_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW))]
    return [
        (_JUMP_EQUAL, 0, len(checks) + 2, call),
        _load_argument(0),
        *checks,
        _refuse(errno.EAFNOSUPPORT),
    ]
