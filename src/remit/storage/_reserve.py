"""Space that is kept free of charge for the day when the disk is full."""

from __future__ import annotations

import contextlib
import os
from typing import Final

from remit.primitives import Clock
from remit.storage._folder import DataFolder

RESERVE_BYTES: Final = 4 * 1024 * 1024
_ROOM_BYTES: Final = 3 * RESERVE_BYTES
"""This much must be free before the reserve is made anew, so that a store doesn't flicker at the brim."""
_LOOK_EVERY_SECONDS: Final = 1.0


class Reserve:
    """A file that is deleted when something that ends a run can't be stored otherwise.

    While it is gone the store is *spent*: it takes only what ends things, until there is room again. The
    file is shared by all hosts of a data folder; each finds out by itself that the disk is full.
    """

    def __init__(self, folder: DataFolder, *, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._looked_at = clock.monotonic()
        self.spent = False

    def make(self) -> None:
        """Have the reserve, or be spent from the beginning."""
        self.spent = not self._try_make()

    def release(self) -> None:
        """Give the space back to the disk."""
        with contextlib.suppress(OSError):
            self._folder.reserve.unlink()
        self.spent = True

    def look_again(self) -> None:
        """Have the reserve again if there is room by now; looks once a second at most."""
        now = self._clock.monotonic()
        if not self.spent or now - self._looked_at < _LOOK_EVERY_SECONDS:
            return
        self._looked_at = now
        if self._folder.free_bytes() >= _ROOM_BYTES:
            self.spent = not self._try_make()

    def _try_make(self) -> bool:
        path = self._folder.reserve
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            if os.fstat(file).st_size < RESERVE_BYTES:
                _fill(file)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            return False
        finally:
            os.close(file)
        return True


def _fill(file: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, RESERVE_BYTES)
    else:
        # Random, since a file system that compresses would keep no room for zeros.
        os.pwrite(file, os.urandom(RESERVE_BYTES), 0)
        os.fsync(file)
