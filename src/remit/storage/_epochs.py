"""Which hosts are alive: each start of one is an epoch, with a file that it keeps locked."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Self

from remit.errors import PreconditionFailed, StorageError, StorageFull
from remit.primitives import Clock, Ids, format_time, is_run_id
from remit.storage._folder import DataFolder
from remit.storage._locks import FileLock, is_locked

_SUFFIX = ".lock"
_KEPT_DEAD = 64


class Epoch:
    """A host that is alive. `close`, or the end of the process, makes it a dead one."""

    def __init__(self, epoch_id: str, lock: FileLock, held: dict[str, Epoch]) -> None:
        self.id = epoch_id
        self._lock = lock
        self._held = held
        held[epoch_id] = self

    def close(self) -> None:
        """End the epoch in good order: its file goes too, since nothing has to be looked up about it."""
        self._held.pop(self.id, None)
        self._lock.path.unlink(missing_ok=True)
        self._lock.release()

    def abandon(self) -> None:
        """Free the lock and leave the file, as the death of the process does (for tests of what follows)."""
        self._held.pop(self.id, None)
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Epochs:
    """The host epochs of a data folder.

    An epoch without a file is dead: it ended in good order, or was tidied away. There is no state
    between alive and dead, and no way back, so whoever finds one dead may take over its runs.
    """

    def __init__(self, folder: Path, *, clock: Clock, ids: Ids) -> None:
        self._folder = DataFolder.prepare(folder)
        self._clock = clock
        self._ids = ids
        self._held: dict[str, Epoch] = {}

    def start(self) -> Epoch:
        """A fresh epoch, alive from here on.

        Raises:
            StorageError: Its file can't be written (`StorageFull` where the disk is).
        """
        self._tidy()
        epoch_id = self._ids.new("epoch")
        path = self._path(epoch_id)
        # Locked under another name first: at no moment is there a file of this name that isn't locked.
        unborn = path.with_suffix(".new")
        lock: FileLock | None = None
        try:
            lock = FileLock.try_take(unborn)
            assert lock is not None, "nobody else knows this name"
            lock.write(self._record(epoch_id))
            unborn.rename(path)
        except OSError as error:
            if lock is not None:
                lock.release()
            unborn.unlink(missing_ok=True)
            kind = StorageFull if error.errno in {errno.ENOSPC, errno.EDQUOT} else StorageError
            raise kind(f"a host epoch can't be written to {path.parent}: {error.strerror}") from error
        lock.path = path
        return Epoch(epoch_id, lock, self._held)

    def _record(self, epoch_id: str) -> str:
        started = format_time(self._clock.now())
        return json.dumps({"epoch": epoch_id, "pid": os.getpid(), "started_at": started}) + "\n"

    def is_alive(self, epoch_id: str) -> bool:
        """Whether the host of this epoch still runs."""
        if epoch_id in self._held:
            return True
        return is_run_id(epoch_id) and is_locked(self._path(epoch_id))

    def dead(self) -> tuple[str, ...]:
        """The epochs that died without closing, as far as their files are still there; oldest first."""
        names = sorted(path.stem for path in self._folder.epochs.glob(f"*{_SUFFIX}"))
        return tuple(name for name in names if not self.is_alive(name))

    def pid_of(self, epoch_id: str) -> int | None:
        """The process of an epoch; None where nothing is known. A dead one's number may be another's now."""
        if not is_run_id(epoch_id):
            return None
        try:
            return int(json.loads(self._path(epoch_id).read_text())["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _path(self, epoch_id: str) -> Path:
        return self._folder.epochs / f"{epoch_id}{_SUFFIX}"

    def _tidy(self) -> None:
        """Forget the oldest of the dead: an epoch without a file is as dead as before."""
        for epoch_id in self.dead()[:-_KEPT_DEAD]:
            with contextlib.suppress(OSError):
                self._path(epoch_id).unlink()


def take_serve_lock(folder: Path) -> FileLock:
    """The lock that `remit serve` alone holds on a data folder, until released.

    Raises:
        PreconditionFailed: Another one has it.
    """
    data = DataFolder.prepare(folder)
    lock = FileLock.try_take(data.serve_lock)
    if lock is None:
        raise PreconditionFailed(f"another `remit serve` uses {data.path}; stop it, or set REMIT_HOME")
    return lock
