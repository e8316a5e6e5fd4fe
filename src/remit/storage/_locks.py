"""Files that are locked for as long as somebody lives.

A lock is `flock` on a file that is kept open, so that it ends with its process, however that ends. It is
tied to the open file, not to the process: `fork` would hand it on to the child, which is why a child
closes its copy. Programs that are started don't get the file at all (Python opens it close-on-exec).
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Self
from weakref import WeakSet

from remit.errors import StorageBusy

_POLL_SECONDS = 0.02


class FileLock:
    """A lock that is held; `release` or the end of the process frees it."""

    __slots__ = ("__weakref__", "_file", "path")

    def __init__(self, path: Path, file: int) -> None:
        self.path = path
        self._file: int | None = file
        _open_locks.add(self)

    @classmethod
    def try_take(cls, path: Path) -> Self | None:
        """The lock on the file (made with mode 0600 where there is none), or None: somebody has it."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        if _try_flock(file, fcntl.LOCK_EX):
            return cls(path, file)
        os.close(file)
        return None

    @classmethod
    def take(cls, path: Path, *, wait_ms: int) -> Self:
        """The lock on the file, waited for. Blocks the thread.

        Raises:
            StorageBusy: Somebody held it all that time.
        """
        until = time.monotonic() + wait_ms / 1000
        while (lock := cls.try_take(path)) is None:
            if time.monotonic() >= until:
                raise StorageBusy(
                    f"{path.name} was held by another process for {wait_ms} ms; try again later"
                )
            time.sleep(_POLL_SECONDS)
        return lock

    def write(self, text: str) -> None:
        """Make this the content of the locked file."""
        assert self._file is not None, "the lock was released"
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, text.encode(), 0)

    def release(self) -> None:
        """Free the lock. A second time changes nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock on this file. No file: nobody does.

    It asks with a shared lock, so that two who ask at once don't take each other for the holder.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        return not _try_flock(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def _try_flock(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_open_locks: WeakSet[FileLock] = WeakSet()


def _let_go_in_child() -> None:
    for lock in list(_open_locks):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)
