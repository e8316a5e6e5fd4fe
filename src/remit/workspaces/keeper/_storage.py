"""What lies in a checkout's folder under the node's data folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Storage:
    """The folder `<data>/checkouts/<id>` of one checkout, and its parts."""

    folder: Path

    @property
    def upper(self) -> Path:
        """Overlay: everything that differs from the base."""
        return self.folder / "upper"

    @property
    def work(self) -> Path:
        """Overlay: the kernel's own scratch folder."""
        return self.folder / "work"

    @property
    def lower(self) -> Path:
        """Overlay: where a base of another user's is shown as one's own; empty for everybody else."""
        return self.folder / "lower"

    @property
    def tree(self) -> Path:
        """Copy: the whole tree."""
        return self.folder / "tree"

    @property
    def merged(self) -> Path:
        """Where the tree is mounted, in the keeper's namespace only; empty for everybody else."""
        return self.folder / "merged"

    @property
    def home(self) -> Path:
        """What commands see as their home folder."""
        return self.folder / "home"

    @property
    def scratch(self) -> Path:
        """Where the checkout's shared, bounded /tmp is mounted."""
        return self.folder / "scratch"

    @property
    def carried(self) -> Path:
        """Upper and work folders of the folders carried over from the root."""
        return self.folder / "carried"

    @property
    def git(self) -> Path:
        """What is shown as the tree's `.git`."""
        return self.folder / "git"

    @property
    def facts(self) -> Path:
        """Copy: what its files were like right after it was made."""
        return self.folder / "facts.json"

    def make(self) -> None:
        """Makes the folders, for nobody but the owner."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in (self.merged, self.home, self.scratch):
            part.mkdir(mode=0o700, exist_ok=True)

    def lock(self) -> int:
        """Takes the checkout for this process; the kernel gives it back when the process ends.

        Raises:
            BlockingIOError: another keeper holds it (an overlay's upper folder must not be mounted twice).
        """
        return self._locked(fcntl.LOCK_EX)

    def lock_shared(self) -> int:
        """Keeps keepers out while its parts are read; several readers may hold it at once.

        Raises:
            BlockingIOError: a keeper holds it.
        """
        return self._locked(fcntl.LOCK_SH)

    def _locked(self, how: int) -> int:
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise
        return handle


def remove_unless_held(folder: Path) -> bool:
    """Removes a checkout's folder, holding its lock meanwhile; False: a process holds it, nothing was done.

    Raises:
        OSError: something in it can't be removed.
    """
    try:
        handle = Storage(folder).lock()
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True
    try:
        remove_tree(folder)
    finally:
        os.close(handle)
    return True


def remove_tree(folder: Path) -> None:
    """Removes a folder whatever modes a command has left in it; absent is fine.

    Raises:
        OSError: something in it can't be removed.
    """
    with suppress(FileNotFoundError):
        try:
            shutil.rmtree(folder)
        except PermissionError:
            _unlock(folder)
            shutil.rmtree(folder)


def remove_what_can_be(folder: Path) -> None:
    """`remove_tree`, of which nobody is told what was left: the next sweep finds it."""
    with suppress(OSError):
        remove_tree(folder)


def _unlock(folder: Path) -> None:
    with suppress(OSError):
        folder.chmod(0o700)
    for parent, names, _ in os.walk(folder):
        for name in names:
            inner = os.path.join(parent, name)
            with suppress(OSError):
                if stat.S_ISDIR(os.lstat(inner).st_mode):
                    os.chmod(inner, 0o700)
