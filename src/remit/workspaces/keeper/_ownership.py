"""Shows a tree of another user's as root's own, for root: its commands hold no capability to pass by owners.

As root a sandboxed command is root without capabilities, so it could change nothing that another user owns.
A mount with an id map swaps the two owners in what is seen; nothing on disk changes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from pathlib import Path
from typing import Final

from remit.workspaces.keeper import _syscalls

# The same numbers on x86_64 and aarch64.
_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_MOUNT_SETATTR: Final = 442
_OPEN_TREE_CLONE: Final = 1
_OPEN_TREE_CLOEXEC: Final = os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_AT_EMPTY_PATH: Final = 0x1000
_MOUNT_ATTR_IDMAP: Final = 0x0010_0000
_AT_FDCWD: Final = -100
_LAST_ID: Final = 2**32 - 2

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def show_as_own(source: Path, target: Path) -> None:
    """Mounts `source` at `target` with its owner and root swapped, user and group each.

    Raises:
        OSError: the kernel (before 5.19) or the file system can't do it.
    """
    info = source.stat()
    tree = _call(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC)
    try:
        users = _user_namespace(_swap(info.st_uid), _swap(info.st_gid))
        try:
            attributes = struct.pack("=QQQQ", _MOUNT_ATTR_IDMAP, 0, 0, users)
            _call(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, attributes, len(attributes))
        finally:
            os.close(users)
        _call(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


def _swap(owner: int) -> str:
    """A map of all numbers to themselves, but 0 and the owner to each other."""
    if owner == 0:
        return f"0 0 {_LAST_ID + 1}\n"
    lines = [(0, owner, 1), (owner, 0, 1)]
    if owner > 1:
        lines.append((1, 1, owner - 1))
    if owner < _LAST_ID:
        lines.append((owner + 1, owner + 1, _LAST_ID - owner))
    return "".join(f"{inside} {outside} {count}\n" for inside, outside, count in sorted(lines))


def _user_namespace(users: str, groups: str) -> int:
    """A handle of a new user namespace with these maps; only its maps are of use."""
    ready, told = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        try:
            _syscalls.unshare(_syscalls.CLONE_NEWUSER)
            os.write(told, b"x")
            signal.pause()  # until it is killed, a line further on in the parent
        finally:
            os._exit(1)
    os.close(told)
    try:
        if not os.read(ready, 1):
            raise OSError(0, "a user namespace for the map of owners is refused")
        Path(f"/proc/{child}/uid_map").write_text(users)
        Path(f"/proc/{child}/gid_map").write_text(groups)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _call(number: int, *arguments: int | bytes) -> int:
    wide = [argument if isinstance(argument, bytes) else ctypes.c_long(argument) for argument in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
