"""The data folder: who may read it, and what lies where."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from remit.errors import StorageError

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A folder that belongs to one user, with a database and its locks in it."""

    path: Path

    @classmethod
    def prepare(cls, path: Path) -> Self:
        """Make the folder, 0700, where there is none; take the rights of others away where it is ours.

        A folder with other things in it keeps its mode: it may be anything, named by mistake.

        Raises:
            StorageError: It can't be made, isn't a folder, or others may write to it.
        """
        try:
            path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            folder = cls(path.resolve())
            folder._close_to_others()
            folder.epochs.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise StorageError(f"the data folder {path} can't be used: {error.strerror}") from error
        return folder

    def _close_to_others(self) -> None:
        mode = stat.S_IMODE(self.path.stat().st_mode)
        if not mode & ~_FOLDER_MODE:
            return
        if self.database.exists() or not any(self.path.iterdir()):
            self.path.chmod(_FOLDER_MODE)
        elif mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise StorageError(
                f"{self.path} holds other things and others may write to it; choose another data folder"
            )

    @property
    def database(self) -> Path:
        """The SQLite file; its `-wal` and `-shm` lie beside it and get its mode."""
        return self.path / "remit.db"

    @property
    def reserve(self) -> Path:
        """Space that is kept for the day when the disk is full."""
        return self.path / "reserve"

    @property
    def schema_lock(self) -> Path:
        """Held while the schema is looked at and migrated."""
        return self.path / "schema.lock"

    @property
    def serve_lock(self) -> Path:
        """Held by the one `remit serve` of this folder."""
        return self.path / "serve.lock"

    @property
    def epochs(self) -> Path:
        """One locked file per living host."""
        return self.path / "epochs"

    def touch_database(self) -> None:
        """Make the database file with mode 0600, so that SQLite doesn't make it with the umask's."""
        file = os.open(self.database, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, _FILE_MODE)
        try:
            if stat.S_IMODE(os.fstat(file).st_mode) & ~_FILE_MODE:
                os.fchmod(file, _FILE_MODE)
        finally:
            os.close(file)

    def free_bytes(self) -> int:
        """What the file system has left for this user."""
        left = os.statvfs(self.path)
        return left.f_bavail * left.f_frsize
