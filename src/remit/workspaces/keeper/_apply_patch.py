"""Applies a patch to several files: all of it, or nothing."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from remit.workspaces.keeper._arguments import Arguments, number_argument, text_argument
from remit.workspaces.keeper._files import DEFAULT_MAX_BYTES, changed
from remit.workspaces.keeper._patch_match import apply_hunks
from remit.workspaces.keeper._patch_text import FileChange, parse_patch
from remit.workspaces.keeper._paths import split_path
from remit.workspaces.keeper._places import (
    Place,
    drop_staged,
    located,
    put_staged,
    read_place,
    stage_bytes,
)
from remit.workspaces.keeper._refusals import OperationRefused, refusal_from

_WORDS: Final = {"Add": "added", "Update": "changed", "Delete": "deleted"}


@dataclass(slots=True)
class _State:
    """A file as it was and as it is to be."""

    parts: tuple[str, ...]
    path: str
    """From the workspace root, after links."""
    before: bytes | None
    """None: no such file."""
    status: os.stat_result | None
    """Mode and owner of the file as it was, or of the one that moved here."""
    after: bytes | None

    def refuse_link(self) -> None:
        """Raises where the path is a link: it isn't clear which of the two is meant."""
        asked = "/".join(self.parts)
        if asked != self.path:
            raise OperationRefused("denied", f"{asked}: this is a link to {self.path}; name the file itself")


@dataclass(slots=True)
class _Step:
    """One file on its way to the disk."""

    state: _State
    place: Place
    staged: str | None


class _Files:
    """The files that a patch touches, read when first named and written at the end."""

    def __init__(self, root_fd: int, max_bytes: int) -> None:
        self._root_fd = root_fd
        self._max_bytes = max_bytes
        self._states: dict[str, _State] = {}

    def get(self, path: str) -> _State:
        """The state of a path; the file needn't exist."""
        parts = split_path(path)
        state = self._read(parts)
        return self._states.setdefault(state.path, state)

    def _read(self, parts: tuple[str, ...]) -> _State:
        try:
            with located(self._root_fd, parts) as place:
                try:
                    data, status = read_place(place, max_bytes=self._max_bytes)
                except FileNotFoundError:
                    data, status = None, None
                return _State(parts, place.path, data, status, data)
        except OperationRefused as refusal:
            if refusal.status != "not_found":
                raise
            # Its folder is missing too, and is made when the patch is known to fit.
            return _State(parts, "/".join(parts), None, None, None)

    def set(self, state: _State, data: bytes | None) -> None:
        """What is to be there; None: nothing."""
        if data is not None and len(data) > self._max_bytes:
            text = f"{state.path}: it would have {len(data)} bytes; at most {self._max_bytes}"
            raise OperationRefused("too_large", text)
        state.after = data

    def commit(self) -> list[str]:
        """Writes everything beside its place, then moves all of it there; returns the paths that changed."""
        states = [state for state in self._states.values() if state.after != state.before]
        steps: list[_Step] = []
        done: list[_Step] = []
        with ExitStack() as stack:
            try:
                for state in states:
                    place = stack.enter_context(located(self._root_fd, state.parts, create_folders=True))
                    steps.append(_Step(state, place, None))
                    if state.after is not None:
                        steps[-1].staged = stage_bytes(place, state.after, like=state.status)
                for step in steps:
                    _put(step)
                    done.append(step)
            except BaseException:
                for step in steps:
                    if step.staged is not None:
                        drop_staged(step.place, step.staged)
                for step in reversed(done):
                    _put_back(step)
                raise
        return [state.path for state in states]


def apply_patch(root_fd: int, arguments: Arguments) -> dict[str, object]:
    """`{patch}`: adds, updates, moves and deletes files as the patch says, or refuses and changes nothing."""
    max_bytes = number_argument(arguments, "max_write_bytes", DEFAULT_MAX_BYTES, minimum=1)
    changes = parse_patch(text_argument(arguments, "patch"))
    files = _Files(root_fd, max_bytes)
    words = [_apply(files, change) for change in changes]
    try:
        paths = files.commit()
    except OSError as error:
        raise refusal_from(error, path="the patch") from None
    return changed("\n".join(words), *paths)


def _apply(files: _Files, change: FileChange) -> str:
    state = files.get(change.path)
    if change.kind == "Add":
        if state.after is not None:
            raise OperationRefused("conflict", f"{change.path}: exists already; use `*** Update File`")
        files.set(state, "".join(f"{line}\n" for line in change.content).encode("utf-8", "replace"))
    elif state.after is None:
        raise OperationRefused("not_found", f"{change.path}: no such file or folder")
    elif change.kind == "Delete":
        state.refuse_link()
        files.set(state, None)
    else:
        data = apply_hunks(state.after, change)
        if change.new_path is not None:
            return _move(files, state, change.new_path, data)
        files.set(state, data)
    return f"{_WORDS[change.kind]} {change.path}"


def _move(files: _Files, state: _State, new_path: str, data: bytes) -> str:
    state.refuse_link()
    target = files.get(new_path)
    if target is state:
        raise OperationRefused("invalid_arguments", f"{new_path}: the file is there already")
    if target.after is not None:
        raise OperationRefused("conflict", f"{new_path}: exists already")
    target.status = state.status
    files.set(target, data)
    files.set(state, None)
    return f"moved {state.path} to {target.path}"


def _put(step: _Step) -> None:
    if step.staged is not None:
        put_staged(step.place, step.staged)
        step.staged = None
    else:
        os.unlink(step.place.name, dir_fd=step.place.folder_fd)


def _put_back(step: _Step) -> None:
    if step.state.before is None:
        os.unlink(step.place.name, dir_fd=step.place.folder_fd)
    else:
        put_staged(step.place, stage_bytes(step.place, step.state.before, like=step.state.status))
