"""Puts the changes of one checkout into another: all of them, or none.

Each path must still hold what the changes were made from. New content comes from files of the node's own,
named by hash; it is made ready aside, and what it replaces is put aside, before anything takes its place.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from remit.workspaces.keeper._arguments import Arguments, text_argument
from remit.workspaces.keeper._refusals import OperationRefused, refusal_from
from remit.workspaces.keeper._tree import (
    TreeTooLarge,
    copy_regular,
    git_mode,
    is_git_name,
    opened_folder_at,
    read_link_at,
    show_path,
)
from remit.workspaces.keeper._unfinished import unfinished_name

_LINK: Final = "120000"
_MAX_BYTES: Final = 1 << 30
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class _Content:
    mode: str
    sha256: str


@dataclass(frozen=True, slots=True)
class _Step:
    """One path, and what it is to become."""

    number: int
    folders: tuple[str, ...]
    name: str
    base: _Content | None
    result: _Content | None

    @property
    def path(self) -> str:
        return "/".join((*self.folders, self.name))


def take_over(root_fd: int, arguments: Arguments) -> dict[str, object]:
    """`{changes: [{path, base, result}], blobs}`: makes each path what it became elsewhere."""
    blobs = text_argument(arguments, "blobs")
    raw = arguments.get("changes")
    if not isinstance(raw, list):
        raise OperationRefused("invalid_arguments", "`changes` must be a list")
    steps = [_step(number, item) for number, item in enumerate(cast("list[Any]", raw))]
    moved = [step.path for step in steps if not _holds(root_fd, step)]
    if moved:
        more = f" and {len(moved) - _SHOWN} more" if len(moved) > _SHOWN else ""
        named = ", ".join(show_path(path) for path in moved[:_SHOWN])
        raise OperationRefused("conflict", f"changed meanwhile, so nothing was taken over: {named}{more}")
    try:
        _Moving(root_fd, blobs).carry_out(steps)
    except OSError as error:
        raise refusal_from(error, path="the changes") from None
    return {"content": "", "truncated": False, "changed": [step.path for step in steps]}


def _step(number: int, item: Any) -> _Step:
    parts = str(item["path"]).split("/")
    if any(part in ("", ".", "..") or "\0" in part or is_git_name(part) for part in parts):
        raise OperationRefused("invalid_arguments", "that isn't a path inside a tree")
    base, result = (_content(item[key]) for key in ("base", "result"))
    return _Step(number, tuple(parts[:-1]), parts[-1], base, result)


def _content(value: Any) -> _Content | None:
    if value is None:
        return None
    sha256 = str(value["sha256"])
    if not sha256.isalnum():
        raise OperationRefused("invalid_arguments", "that isn't a hash")
    return _Content(str(value["mode"]), sha256)


def _holds(root_fd: int, step: _Step) -> bool:
    """Whether the path holds what the change was made from. A folder may make room for a file."""
    try:
        with opened_folder_at(root_fd, step.folders) as fd:
            info = os.stat(step.name, dir_fd=fd, follow_symlinks=False)
            if step.base is None:
                return stat.S_ISDIR(info.st_mode)
            return _look(fd, step.name, info) == step.base
    except (FileNotFoundError, NotADirectoryError):
        return step.base is None


def _look(fd: int, name: str, info: os.stat_result) -> _Content | None:
    if stat.S_ISLNK(info.st_mode):
        return _Content(_LINK, hashlib.sha256(read_link_at(fd, name)).hexdigest())
    if not stat.S_ISREG(info.st_mode):
        return None
    try:
        sha256, _, mode = copy_regular(fd, name, None, max_bytes=_MAX_BYTES)
    except TreeTooLarge:
        return None
    return _Content(git_mode(mode), sha256)


class _Moving:
    """Everything that is done is noted, so that it can be undone."""

    def __init__(self, root_fd: int, blobs: str) -> None:
        self._root_fd = root_fd
        self._blobs = blobs
        self._undo: list[Callable[[], object]] = []

    def carry_out(self, steps: list[_Step]) -> None:
        aside = unfinished_name()
        os.mkdir(aside, 0o700, dir_fd=self._root_fd)
        try:
            with opened_folder_at(self._root_fd, (aside,)) as fd:
                self._carry_out(steps, fd)
        finally:
            _remove_folder(self._root_fd, aside)

    def _carry_out(self, steps: list[_Step], aside: int) -> None:
        for step in steps:
            if step.result is not None:
                self._make_ready(step, step.result, aside)
        try:
            for step in steps:
                if step.base is not None:
                    self._put_aside(step, aside)
            for step in steps:
                if step.result is None:
                    self._drop_emptied(step.folders)
            for step in steps:
                if step.result is not None:
                    self._place(step, aside)
        except BaseException:
            for undo in reversed(self._undo):
                with suppress(OSError):
                    undo()
            raise

    def _make_ready(self, step: _Step, content: _Content, aside: int) -> None:
        source = os.path.join(self._blobs, content.sha256)
        name = f"new-{step.number}"
        if content.mode == _LINK:
            with open(source, "rb") as file:
                os.symlink(file.read(), name.encode(), dir_fd=aside)
            return
        with ExitStack() as stack:
            reading = stack.enter_context(open(source, "rb"))
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=aside)
            writing = stack.enter_context(os.fdopen(handle, "wb"))
            while data := reading.read(1 << 20):
                writing.write(data)
            os.fchmod(writing.fileno(), 0o755 if content.mode == "100755" else 0o644)

    def _put_aside(self, step: _Step, aside: int) -> None:
        with opened_folder_at(self._root_fd, step.folders) as fd:
            os.rename(step.name, f"old-{step.number}", src_dir_fd=fd, dst_dir_fd=aside)
        self._undo.append(lambda: self._put_back(step, aside))

    def _put_back(self, step: _Step, aside: int) -> None:
        with opened_folder_at(self._root_fd, step.folders) as fd:
            os.rename(f"old-{step.number}", step.name, src_dir_fd=aside, dst_dir_fd=fd)

    def _drop_emptied(self, folders: tuple[str, ...]) -> None:
        """Folders in which nothing is left go too, as with git."""
        while folders:
            try:
                with opened_folder_at(self._root_fd, folders[:-1]) as fd:
                    mode = stat.S_IMODE(os.stat(folders[-1], dir_fd=fd, follow_symlinks=False).st_mode)
                    os.rmdir(folders[-1], dir_fd=fd)
            except OSError:
                return
            self._undo.append(lambda folders=folders, mode=mode: self._make_folder(folders, mode))
            folders = folders[:-1]

    def _make_folder(self, folders: tuple[str, ...], mode: int = 0o755) -> None:
        with opened_folder_at(self._root_fd, folders[:-1]) as fd:
            os.mkdir(folders[-1], mode, dir_fd=fd)

    def _remove_made(self, folders: tuple[str, ...]) -> None:
        with opened_folder_at(self._root_fd, folders[:-1]) as fd:
            os.rmdir(folders[-1], dir_fd=fd)

    def _place(self, step: _Step, aside: int) -> None:
        for length in range(1, len(step.folders) + 1):
            folders = step.folders[:length]
            with suppress(FileExistsError):
                self._make_folder(folders)
                self._undo.append(lambda folders=folders: self._remove_made(folders))
        with opened_folder_at(self._root_fd, step.folders) as fd:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.rmdir(step.name, dir_fd=fd)  # an empty folder makes room; any other is an error
            os.rename(f"new-{step.number}", step.name, src_dir_fd=aside, dst_dir_fd=fd)
        self._undo.append(lambda: self._take_back(step, aside))

    def _take_back(self, step: _Step, aside: int) -> None:
        with opened_folder_at(self._root_fd, step.folders) as fd:
            os.rename(step.name, f"new-{step.number}", src_dir_fd=fd, dst_dir_fd=aside)


def _remove_folder(root_fd: int, name: str) -> None:
    """The folder aside, with all that is left in it: files and links only."""
    with suppress(OSError):
        with opened_folder_at(root_fd, (name,)) as fd:
            for inner in os.listdir(fd):
                os.unlink(inner, dir_fd=fd)
        os.rmdir(name, dir_fd=root_fd)
