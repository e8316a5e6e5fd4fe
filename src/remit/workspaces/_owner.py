"""Which process of a node something belongs to, and whether that process still lives.

data/owners/NODE.lock     held by the process from its start to its end, whatever way it ends
checkouts/ID/owner        the NODE that a checkout which is no run's was made by
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Self

__all__ = ["NodeOwner", "note_owner", "read_owner", "remove_dead_owners"]

_OWNER = "owner"


@dataclass(frozen=True, slots=True)
class NodeOwner:
    """This process, as the owner of what it makes under the node's data folder."""

    id: str
    _file: Path
    _handle: FileIO
    """Closes once, however often it is told to: its number may be somebody else's by then."""

    @classmethod
    def take(cls, data: Path, owner_id: str) -> Self:
        """Be alive under this id until `release`, or the end of the process. Blocking.

        Raises:
            OSError: The lock can't be made.
        """
        file = _lock_file(data, owner_id)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), file.stat()):
                    return cls(owner_id, file, FileIO(handle, "r+"))
            os.close(handle)  # it was taken for a dead one's, and removed, before we had the lock

    def release(self) -> None:
        """Own nothing any more. Safe to call twice."""
        if not self._handle.closed:
            self._file.unlink(missing_ok=True)
            self._handle.close()


def note_owner(folder: Path, owner_id: str) -> None:
    """Say whose a checkout's folder is. Blocking."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / _OWNER).write_text(owner_id)


def read_owner(folder: Path) -> str | None:
    """Whose a checkout's folder is; None: nobody said. Blocking."""
    try:
        return (folder / _OWNER).read_text() or None
    except (OSError, UnicodeDecodeError):
        return None


def remove_dead_owners(data: Path) -> frozenset[str]:
    """Forget the processes that have ended; returns those that live. Blocking."""
    living: set[str] = set()
    for file in (data / "owners").glob("*.lock"):
        with suppress(FileNotFoundError):
            handle = os.open(file, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.unlink(missing_ok=True)
            except BlockingIOError:
                living.add(file.stem)
            finally:
                os.close(handle)
    return frozenset(living)


def _lock_file(data: Path, owner_id: str) -> Path:
    return data / "owners" / f"{owner_id}.lock"
