"""The keeper's own view of the file system: a namespace, and the checkout's tree mounted in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from remit.workspaces.keeper import _syscalls

_KEPT_FLAGS = (
    (os.ST_NOSUID, _syscalls.MS_NOSUID),
    (os.ST_NODEV, _syscalls.MS_NODEV),
    (os.ST_NOEXEC, _syscalls.MS_NOEXEC),
    (os.ST_NOATIME, _syscalls.MS_NOATIME),
    (os.ST_NODIRATIME, _syscalls.MS_NODIRATIME),
    (os.ST_RELATIME, _syscalls.MS_RELATIME),
)


def enter_mount_namespace() -> bool:
    """Moves this process into a mount namespace of its own, from which nothing propagates.

    Returns:
        Whether it could do so with the privileges it had; False: it had to enter a user namespace first, in
        which it holds all capabilities over its own uid and gid only.

    Raises:
        OSError: neither is allowed here.
    """
    privileged = _unshare_privileged()
    if not privileged:
        _enter_user_namespace()
    _syscalls.mount("none", "/", flags=_syscalls.MS_REC | _syscalls.MS_PRIVATE)
    return privileged


def _unshare_privileged() -> bool:
    if os.geteuid() != 0:
        return False
    try:
        _syscalls.unshare(_syscalls.CLONE_NEWNS)
    except PermissionError:  # root in a container without CAP_SYS_ADMIN
        return False
    return True


def _enter_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    _syscalls.unshare(_syscalls.CLONE_NEWUSER | _syscalls.CLONE_NEWNS)
    # Without this the kernel refuses a gid map written by an unprivileged process.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """The folders of one overlay."""

    lower: Path
    upper: Path
    work: Path
    target: Path
    above: Path | None = None
    """Another layer that is only read, on top of `lower`; absent is fine."""


def mount_overlay(overlay: Overlay, *, privileged: bool) -> None:
    """Mounts an overlay whose changes all go to `overlay.upper`.

    Features that would make the upper folder hard to read (redirects, metadata-only copies) are switched off.

    Raises:
        OSError: the kernel or one of the file systems refuses.
    """
    above = [overlay.above] if overlay.above is not None and overlay.above.is_dir() else []
    folders = [overlay.upper, overlay.work, *above, overlay.lower]
    handles = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for folder in folders]
    try:
        # Descriptors instead of names: a comma or a colon in a folder's name would end the option.
        upper, work, *lowers = (f"/proc/self/fd/{handle}" for handle in handles)
        lower = ":".join(lowers)
        features = "redirect_dir=off,metacopy=off,index=off,xino=off" if privileged else "userxattr"
        options = f"lowerdir={lower},upperdir={upper},workdir={work},{features}"
        _syscalls.mount("overlay", str(overlay.target), kind="overlay", options=options)
    finally:
        for handle in handles:
            os.close(handle)


def bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    """Shows `source`, with what is mounted in it, at `target` too."""
    _syscalls.mount(str(source), str(target), flags=_syscalls.MS_BIND | _syscalls.MS_REC)
    if read_only:
        make_read_only(target)


def make_read_only(target: Path) -> None:
    """Makes the mount at `target` read-only; what is mounted below it isn't touched."""
    flags = _syscalls.MS_BIND | _syscalls.MS_REMOUNT | _syscalls.MS_RDONLY
    # In a user namespace, flags that the original mount has are locked: leaving one out is refused.
    present = os.statvfs(target).f_flag
    for shown, flag in _KEPT_FLAGS:
        if present & shown:
            flags |= flag
    _syscalls.mount("none", str(target), flags=flags)


def mount_scratch(target: Path, *, size_bytes: int) -> None:
    """Mounts an empty in-memory folder of bounded size."""
    _syscalls.mount(
        "tmpfs",
        str(target),
        kind="tmpfs",
        flags=_syscalls.MS_NOSUID | _syscalls.MS_NODEV,
        options=f"mode=1777,size={size_bytes}",
    )


def mounts_below(folder: Path) -> tuple[Path, ...]:
    """Where something is mounted inside `folder`, outermost first; an overlay doesn't see those."""
    found: list[Path] = []
    prefix = os.fsencode(folder).rstrip(b"/") + b"/"
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        name = _unescape(line.split(b" ")[4])
        if not name.startswith(prefix):
            continue  # most of them: a path object for each would cost every checkout a millisecond
        point = Path(os.fsdecode(name))
        if point != folder and point.is_relative_to(folder) and point not in found:
            found.append(point)
    return tuple(sorted(found, key=lambda point: len(point.parts)))


def _unescape(name: bytes) -> bytes:
    for code, character in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        name = name.replace(code, character)
    return name


def unmount(target: Path) -> None:
    """Takes the topmost mount off `target`, also while something still uses it."""
    _syscalls.unmount(str(target))
