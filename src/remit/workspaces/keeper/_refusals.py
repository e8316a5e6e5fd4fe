"""How a file operation says no."""

from __future__ import annotations

import errno
from typing import Final

_BY_ERRNO: Final = {
    errno.ENOENT: ("not_found", "no such file or folder"),
    errno.EACCES: ("denied", "permission denied"),
    errno.EPERM: ("denied", "not permitted"),
    errno.EROFS: ("denied", "this part of the workspace is read-only"),
    errno.EXDEV: ("denied", "the path leads out of the workspace"),
    errno.ELOOP: ("denied", "too many symbolic links"),
    errno.ENXIO: ("denied", "not a regular file"),
    errno.ENOTDIR: ("not_found", "a part of the path isn't a folder"),
    errno.EISDIR: ("invalid_arguments", "this is a folder, not a file"),
    errno.ENAMETOOLONG: ("invalid_arguments", "the path is too long"),
    errno.EINVAL: ("invalid_arguments", "the file system doesn't take this name"),
    errno.ENOSPC: ("failed", "no space left on the device"),
    errno.EDQUOT: ("failed", "the disk quota is used up"),
    errno.EFBIG: ("too_large", "larger than the file system allows"),
}


class OperationRefused(Exception):
    """A file operation that wasn't done; nothing was changed.

    Attributes:
        status: a tool status word: `denied not_found too_large invalid_arguments conflict failed`.
        message: one sentence for a model: what was wrong, and what to do.
    """

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    def __reduce__(self) -> tuple[type[OperationRefused], tuple[str, str]]:
        return (OperationRefused, (self.status, self.message))


def refusal_from(error: OSError, *, path: str) -> OperationRefused:
    """Words a failed system call for a model; names only the path that was asked for."""
    status, text = _BY_ERRNO.get(error.errno or 0, ("failed", error.strerror or "input/output error"))
    return OperationRefused(status, f"{path or '.'}: {text}")
