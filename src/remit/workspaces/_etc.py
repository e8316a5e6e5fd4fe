"""What commands see as /etc: the system's harmless parts, and the own user as the only one.

One folder and not a mount for each part: every mount costs every command a fifth of a millisecond.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import secrets
import shutil
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

__all__ = ["EMPTY_XML", "HOST_NAME", "NETWORK_FILES", "etc_folder", "system_files", "user_name"]

EMPTY_XML: Final = "remit-empty.xml"
"""What a covered settings file reads as."""
HOST_NAME: Final = "remit"
NETWORK_FILES: Final = ("/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf")
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
    "/etc/maven/m2.conf",
    "/etc/maven/logging",
    "/etc/mono",
)
"""The parts of /etc that programs need; none holds a secret."""
_SYSTEM_PATTERNS: Final = ("java-*-openjdk", "java-*")
"""Debian keeps Java's own configuration there."""
_NOT_COPIED: Final = ("*password*", "*.key", "private")


def etc_folder(data: Path, *, home: Path) -> Path:
    """The folder for commands with that home; made when it is first needed, kept for later starts."""
    folder = data / "sandbox" / f"etc-{_fingerprint(home)}"
    if not folder.is_dir():
        _build(folder, home=home)
    return folder


def system_files() -> list[str]:
    """The parts of /etc that are shown, as they are on this machine."""
    return list(_system_files_at(os.stat("/etc").st_mtime_ns))


@lru_cache(maxsize=1)
def _system_files_at(_changed_at_ns: int) -> tuple[str, ...]:
    """Looked for anew when a name has come to /etc or gone: each checkout needs them."""
    found = [str(path) for pattern in _SYSTEM_PATTERNS for path in sorted(Path("/etc").glob(pattern))]
    return tuple(dict.fromkeys((*_SYSTEM_FILES, *found)))


def _fingerprint(home: Path) -> str:
    """Changes whenever something that was copied may have changed."""
    said = [str(home), str(os.geteuid()), str(os.getegid())]
    for name in system_files():
        with suppress(OSError):  # absent
            said.append(f"{name} {os.stat(name).st_mtime_ns}")
    return hashlib.sha256("\0".join(said).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _build(folder: Path, *, home: Path) -> None:
    # A name of its own: two runs of one host may be the first at once.
    making = folder.with_name(f"{folder.name}.{os.getpid()}.{secrets.token_hex(6)}")
    making.mkdir(mode=0o700, parents=True)
    for name in system_files():
        _copy_part(Path(name), making / Path(name).relative_to("/etc"))
    uid, gid = os.geteuid(), os.getegid()
    name = user_name()
    nobody = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" if uid != 65534 else ""
    (making / "passwd").write_text(f"{name}:x:{uid}:{gid}::{home}:/bin/sh\n{nobody}")
    (making / "group").write_text(f"{name}:x:{gid}:\n" + ("nogroup:x:65534:\n" if gid != 65534 else ""))
    (making / "hosts").write_text(f"127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\t{HOST_NAME}\n")
    (making / EMPTY_XML).write_text("<settings/>\n")
    for name in NETWORK_FILES:
        (making / Path(name).name).touch()  # a place to mount on, for commands with network
    making.chmod(0o755)
    try:
        making.rename(folder)
    except OSError:  # another one was first
        shutil.rmtree(making)


def _copy_part(source: Path, target: Path) -> None:
    if not source.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    # A link that leads into /etc or /usr is right inside too; one that leads elsewhere is followed.
    try:
        if source.is_dir():
            ignored = shutil.ignore_patterns(*_NOT_COPIED)
            shutil.copytree(source, target, symlinks=True, ignore=ignored, ignore_dangling_symlinks=True)
        else:
            shutil.copyfile(source, target)
    except (OSError, shutil.Error):  # a part that this user can't read wouldn't be readable inside either
        return


def user_name() -> str:
    """The own user's name; `user` where the system has none for the number."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return "user"
