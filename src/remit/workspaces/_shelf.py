"""What commands see beside the system and the checkout's tree: the tools that the workspace uses, read-only.

A folder is shown at its own path, and as that exact folder: never a home folder, never a part of one that may
hold credentials, never the workspace (a checkout stands there) or Remit's own data.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from remit.workspaces._bubblewrap import SYSTEM_FOLDERS
from remit.workspaces._credentials import credential_folders, credentials_in

__all__ = ["NAMED_BY_REPOSITORY", "Refused", "Shelf", "Toolchain", "ToolchainKind", "Toolchains"]

ToolchainKind = Literal[
    "venv",
    "interpreter",
    "pyenv",
    "conda",
    "editable",
    "user-site",
    "node",
    "rust",
    "go",
    "java",
    "tool-cache",
    "cache",
    "path",
    "mount",
]

_TOO_BROAD: Final = frozenset(
    Path(name)
    for name in (
        *("/", "/home", "/root", "/Users", "/etc", "/proc", "/sys", "/dev", "/run", "/var", "/var/lib"),
        *("/tmp", "/var/tmp", "/mnt", "/media", "/srv", "/opt", "/boot", "/data"),  # noqa: S108  names only
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """One folder that is shown."""

    kind: ToolchainKind
    folder: Path
    why: str
    """Where it was found, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A folder that isn't shown although something points there."""

    folder: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchains:
    """Everything that is shown, and the environment that goes with it."""

    items: tuple[Toolchain, ...] = ()
    read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    caches: tuple[Path, ...] = ()
    """Downloads of package managers in the home folder; what a run writes there is its own."""
    masked: tuple[Path, ...] = ()
    """Files and folders inside those that are covered, since they may hold credentials."""
    path: tuple[str, ...] = ()
    """Folders in front of the system's in PATH."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    refused: tuple[Refused, ...] = ()

    def in_words(self) -> tuple[str, ...]:
        """What is shown, for a model: kind and folder, and where a mount can be written to."""
        writable = frozenset(self.writable)
        return tuple(
            f"{item.kind} {item.folder}{' (writable)' if item.folder in writable else ''}"
            for item in self.items
        )

    def describe(self) -> tuple[str, ...]:
        """A line for each folder, for `doctor`."""
        lines = [f"{item.kind}: {item.folder} ({item.why})" for item in self.items]
        lines += [f"covered: {path}" for path in self.masked]
        lines += [f"not shown: {item.folder}: {item.reason}" for item in self.refused]
        return (*lines, f"PATH starts with: {':'.join(self.path) or '(the system)'}")


NAMED_BY_REPOSITORY: Final = "only a file of the repository names it; `mounts` would show it"


class Shelf:
    """Collects folders to show, and refuses those that mustn't be."""

    def __init__(
        self, *, root: Path, home: Path, data: Path | None, of_base: Container[str] = frozenset()
    ) -> None:
        self.root = root
        self.home = home
        self._homes = tuple(dict.fromkeys((home, *_own_homes())))
        self._data = data
        self._of_base = of_base
        self._items: list[Toolchain] = []
        self._writable: list[Path] = []
        self._caches: list[Path] = []
        self._refused: dict[Path, str] = {}
        self.path: list[str] = []
        self.environment: dict[str, str] = {}

    def show(self, folder: Path, *, kind: ToolchainKind, why: str, writable: bool = False) -> bool:
        """Shows a folder at its own path (and, where it is reached by links, at the real one too).

        Returns:
            Whether commands can see it: also true for a part of the system or of the tree.
        """
        if not os.path.isdir(folder):
            return False
        seen = True
        for path in dict.fromkeys((folder, Path(os.path.realpath(folder)))):
            if self.is_visible(path):
                continue
            reason = self._reason_against(path)
            if reason is not None:
                self._refused.setdefault(path, reason)
                seen = False
                continue
            self._items.append(Toolchain(kind=kind, folder=path, why=why))
            if writable:
                self._writable.append(path)
        return seen

    def is_of_base(self, file: Path) -> bool:
        """Whether a file came with the repository: whoever wrote it may be a stranger."""
        return file.is_relative_to(self.root) and str(file.relative_to(self.root)) in self._of_base

    def refuse(self, folder: Path, reason: str) -> None:
        """Says of a folder why it isn't shown, unless commands see it anyhow."""
        if not self.is_visible(folder):
            self._refused.setdefault(folder, reason)

    def show_cache(self, folder: Path, *, why: str) -> None:
        """Shows a folder of downloads: copy-on-write inside the home folder, read-only elsewhere."""
        if not os.path.isdir(folder) or folder.is_symlink() or self.is_visible(folder):
            return
        inside = folder.is_relative_to(self.home) and folder == Path(os.path.realpath(folder))
        if self.show(folder, kind="cache", why=why) and inside:
            self._caches.append(folder)

    def add_to_path(self, folder: Path) -> None:
        """Puts a folder at the end of what precedes the system's in PATH."""
        if str(folder) not in self.path:
            self.path.append(str(folder))

    def is_visible(self, path: Path) -> bool:
        """Whether commands see what lies there: it is the system's, the tree's, or shown."""
        if path.is_relative_to(self.root) or any(path.is_relative_to(part) for part in SYSTEM_FOLDERS):
            return True
        return any(path.is_relative_to(item.folder) for item in self._items)

    def _reason_against(self, path: Path) -> str | None:
        if path in _TOO_BROAD or path.parent == path:
            return "it holds more than a tool"
        if any(home.is_relative_to(path) for home in self._homes):
            return "it is, or holds, a home folder"
        if self.root.is_relative_to(path):
            return "it holds the workspace"
        if self._data is not None and (self._data.is_relative_to(path) or path.is_relative_to(self._data)):
            return "it holds Remit's own data"
        for folder in credential_folders(self._homes):
            if path.is_relative_to(folder):
                return "it may hold credentials"
        return None

    def result(self) -> Toolchains:
        """What was collected."""
        folders = tuple(dict.fromkeys(item.folder for item in self._items))
        masked = [path for folder in folders for path in credentials_in(folder, self._homes)]
        return Toolchains(
            items=tuple(self._items),
            read_only=tuple(f for f in folders if f not in self._writable and f not in self._caches),
            writable=tuple(dict.fromkeys(self._writable)),
            caches=tuple(self._caches),
            masked=tuple(dict.fromkeys(masked)),
            path=tuple(self.path),
            environment=dict(self.environment),
            refused=tuple(Refused(folder=folder, reason=reason) for folder, reason in self._refused.items()),
        )


def _own_homes() -> tuple[Path, ...]:
    homes = [os.path.expanduser("~")]
    try:
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        pass
    return tuple(Path(os.path.realpath(home)) for home in homes)
