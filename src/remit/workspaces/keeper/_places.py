"""Where a file is to be changed: its folder's handle and its name, so that no link can move the change."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from remit.workspaces.keeper._paths import MAX_DEPTH, open_beneath, refuse_special
from remit.workspaces.keeper._refusals import OperationRefused, refusal_from
from remit.workspaces.keeper._renaming import rename_into_free
from remit.workspaces.keeper._tree import is_git_name
from remit.workspaces.keeper._unfinished import unfinished_name

_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_LINKS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A name in an opened folder."""

    folder_fd: int
    """Valid inside the block that made the place."""
    name: str
    path: str
    """From the workspace root, after links, for messages."""

    def find_status(self) -> os.stat_result | None:
        """What stands there now, links not followed; None for nothing."""
        try:
            return os.stat(self.name, dir_fd=self.folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None


@contextmanager
def located(
    root_fd: int, parts: Sequence[str], *, follow: bool = True, create_folders: bool = False
) -> Generator[Place]:
    """The place that a path means, for a change there.

    Args:
        root_fd: the workspace root.
        parts: a checked path.
        follow: whether a link in the last part is followed (write) or meant itself (move, delete).
        create_folders: whether missing folders are made.

    Raises:
        OperationRefused: it leads out, lies in `.git`, or a system call failed; also for OSErrors of the
            block.
    """
    try:
        place = _locate(root_fd, parts, follow=follow, create_folders=create_folders)
    except OSError as error:
        raise refusal_from(error, path="/".join(parts)) from None
    try:
        yield place
    except OSError as error:
        raise refusal_from(error, path=place.path) from None
    finally:
        os.close(place.folder_fd)


def _locate(root_fd: int, parts: Sequence[str], *, follow: bool, create_folders: bool) -> Place:
    for _ in range(_MAX_LINKS):
        if not parts or parts[-1] == "..":
            raise OperationRefused("invalid_arguments", "this is a folder, not a file")
        _refuse_git_names(parts)
        folder_fd = _open_folder(root_fd, parts[:-1], create=create_folders)
        try:
            target = _find_link(folder_fd, parts[-1]) if follow else None
            if target is None:
                if _lies_in_git(root_fd, folder_fd):
                    raise _git_refusal("/".join(parts))
                path = _true_path(root_fd, folder_fd, parts)
                return Place(folder_fd=folder_fd, name=parts[-1], path=path)
        except BaseException:
            os.close(folder_fd)
            raise
        os.close(folder_fd)
        if target.startswith("/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        # The kernel resolves a `..` of the target, and refuses it where it leads out.
        parts = [*parts[:-1], *(part for part in target.split("/") if part not in ("", "."))]
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _true_path(root_fd: int, folder_fd: int, parts: Sequence[str]) -> str:
    """The path without links, where the system tells it; it is only shown, never opened."""
    try:
        root, folder = (os.readlink(f"/proc/self/fd/{fd}") for fd in (root_fd, folder_fd))
    except OSError:
        return "/".join(parts)
    inner = os.path.relpath(folder, root)
    return os.path.normpath(os.path.join(inner, parts[-1]))


def _find_link(folder_fd: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder_fd)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _open_folder(root_fd: int, parts: Sequence[str], *, create: bool) -> int:
    try:
        return open_beneath(root_fd, parts, _FOLDER)
    except FileNotFoundError:
        if not create or not parts:
            raise
    parent_fd = _open_folder(root_fd, parts[:-1], create=True)
    try:
        if _lies_in_git(root_fd, parent_fd):
            raise _git_refusal("/".join(parts))
        try:
            os.mkdir(parts[-1], dir_fd=parent_fd)
        except FileExistsError:
            pass  # made meanwhile, or a link to nowhere, which the next line refuses
        return os.open(parts[-1], _FOLDER | os.O_NOFOLLOW, dir_fd=parent_fd)
    finally:
        os.close(parent_fd)


def _refuse_git_names(parts: Sequence[str]) -> None:
    if any(is_git_name(part) for part in parts):
        raise _git_refusal("/".join(parts))


def _git_refusal(path: str) -> OperationRefused:
    return OperationRefused("denied", f"{path}: file tools don't change `.git`")


def _lies_in_git(root_fd: int, folder_fd: int) -> bool:
    """Whether the folder is below a `.git` folder, reached by whatever name."""
    root = _identity(os.fstat(root_fd))
    here_fd = os.dup(folder_fd)
    try:
        for _ in range(2 * MAX_DEPTH):
            here = _identity(os.fstat(here_fd))
            if here == root:
                return False
            above_fd = os.open("..", _FOLDER, dir_fd=here_fd)
            os.close(here_fd)
            here_fd = above_fd
            if _find_identity(here_fd, ".git") == here:
                return True
        return True  # not below the root after all: moved away meanwhile
    finally:
        os.close(here_fd)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return (status.st_dev, status.st_ino)


def _find_identity(folder_fd: int, name: str) -> tuple[int, int] | None:
    try:
        return _identity(os.stat(name, dir_fd=folder_fd, follow_symlinks=False))
    except OSError:
        return None


def read_place(place: Place, *, max_bytes: int) -> tuple[bytes, os.stat_result]:
    """The bytes of the regular file that stands there, and its status.

    Raises:
        OperationRefused: another kind of file, or more than `max_bytes`.
    """
    fd = os.open(place.name, _FILE, dir_fd=place.folder_fd)
    try:
        status = os.fstat(fd)
        refuse_special(status.st_mode, path=place.path)
        return read_whole(fd, max_bytes=max_bytes, path=place.path), status
    finally:
        os.close(fd)


def write_bytes(place: Place, data: bytes) -> bool:
    """Puts a file there as a whole or not at all; an existing file's mode and owner stay.

    Returns:
        Whether the file is new.
    """
    before = place.find_status()
    if before is not None:
        refuse_special(before.st_mode, path=place.path)
    staged = stage_bytes(place, data, like=before)
    try:
        put_staged(place, staged)
    except BaseException:
        drop_staged(place, staged)
        raise
    return before is None


def stage_bytes(place: Place, data: bytes, *, like: os.stat_result | None) -> str:
    """Writes a file beside the place, with the mode and owner of another, and returns its name."""
    staged = unfinished_name()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(staged, flags, 0o666, dir_fd=place.folder_fd)
    try:
        try:
            _write_all(fd, data)
            if like is not None:
                _take_over(fd, like)
        finally:
            os.close(fd)
    except BaseException:
        drop_staged(place, staged)
        raise
    return staged


def put_staged(place: Place, staged: str) -> None:
    """Moves a staged file to its place, in one step."""
    os.rename(staged, place.name, src_dir_fd=place.folder_fd, dst_dir_fd=place.folder_fd)


def drop_staged(place: Place, staged: str) -> None:
    """Removes a staged file, if it is still there."""
    try:
        os.unlink(staged, dir_fd=place.folder_fd)
    except FileNotFoundError:
        pass


def read_whole(fd: int, *, max_bytes: int, path: str) -> bytes:
    """All bytes of an opened regular file.

    Raises:
        OperationRefused: it has more than `max_bytes`.
    """
    pieces: list[bytes] = []
    left = max_bytes + 1
    while left > 0:
        piece = os.read(fd, min(left, 1 << 20))
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        left -= len(piece)
    size = os.fstat(fd).st_size
    raise OperationRefused("too_large", f"{path}: the file has {size} bytes; at most {max_bytes} are allowed")


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(fd, view) :]


def _take_over(fd: int, before: os.stat_result) -> None:
    own = os.fstat(fd)
    if (own.st_uid, own.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(fd, before.st_uid, before.st_gid)
        except PermissionError:
            pass  # not ours to give away; delivery sets the owner in the user's tree
    os.fchmod(fd, stat.S_IMODE(before.st_mode) & 0o777)


def rename_into_free_place(source: Place, target: Place) -> None:
    """Renames; raises FileExistsError where something stands at the target."""
    rename_into_free(source.folder_fd, source.name, target.folder_fd, target.name)
