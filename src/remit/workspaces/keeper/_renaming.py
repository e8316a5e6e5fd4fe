"""Renames that lose nothing: into a place that is free, or in exchange for what stands there, in one step."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

__all__ = ["exchange", "rename_into_free"]

_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOSYS)

_libc = ctypes.CDLL(None, use_errno=True)


def rename_into_free(old_fd: int, old: str, new_fd: int, new: str) -> None:
    """Renames, each name in the folder of its handle.

    Raises:
        FileExistsError: something stands at the new name. Where the file system can't tell in one step, it is
            looked for right before.
        OSError: it can't be renamed.
    """
    if _renameat2(old_fd, old, new_fd, new, _NOREPLACE):
        return
    try:
        os.stat(new, dir_fd=new_fd, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def exchange(old_fd: int, old: str, new_fd: int, new: str) -> bool:
    """Two names swap what they stand for; False: this file system can't, and nothing was done.

    Raises:
        OSError: it can't be done, or one of them is missing.
    """
    return _renameat2(old_fd, old, new_fd, new, _EXCHANGE)


def _renameat2(old_fd: int, old: str, new_fd: int, new: str, flags: int) -> bool:
    """False: the system can't do this."""
    if not hasattr(_libc, "renameat2"):
        return False
    if _libc.renameat2(old_fd, os.fsencode(old), new_fd, os.fsencode(new), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number))
