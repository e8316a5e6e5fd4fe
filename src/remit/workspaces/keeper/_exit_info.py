"""How a process that isn't our child ended: the kernel tells through a pidfd, from Linux 6.15 on."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import Final

_PIDFD_INFO_EXIT: Final = 1 << 3
_LAYOUT: Final = struct.Struct("=QQ11Ii")
"""mask, cgroup id, eleven ids, the wait status: the first version of the kernel's structure."""
_PIDFD_GET_INFO: Final = (3 << 30) | (_LAYOUT.size << 16) | (0xFF << 8) | 11


def wait_status(pidfd: int) -> int | None:
    """How it ended, as `wait` tells a parent; None: it isn't reaped, or this kernel doesn't tell."""
    request = bytearray(_LAYOUT.pack(_PIDFD_INFO_EXIT, *([0] * 13)))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, request)
    except OSError:
        return None
    values = _LAYOUT.unpack(request)
    if not values[0] & _PIDFD_INFO_EXIT:
        return None
    return values[-1]


def signal_that_ended(pidfd: int) -> int | None:
    """The signal that ended the process; None: it exited, or nobody can tell."""
    status = wait_status(pidfd)
    return os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
