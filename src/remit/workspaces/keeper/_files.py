"""Reading, writing, moving and deleting one file. Bytes stay as they are: line ends, byte order marks, all.

A file is shown as its own text, without line numbers: what a model copies from it can be used in an edit as
it stands. Notes in square brackets follow only where something isn't shown, or isn't what it seems.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Final

from remit.workspaces.keeper._arguments import Arguments, number_argument, text_argument
from remit.workspaces.keeper._paths import opened_file, split_path
from remit.workspaces.keeper._places import located, rename_into_free_place, write_bytes
from remit.workspaces.keeper._refusals import OperationRefused

DEFAULT_MAX_BYTES: Final = 1_048_576
DEFAULT_SHOWN_BYTES: Final = 16_384

_CHUNK_BYTES: Final = 1 << 18
_SCAN_LIMIT_BYTES: Final = 1 << 28
"""How far into a file lines are counted."""
_BINARY_PROBE_BYTES: Final = 8192
_NOTE_ROOM_BYTES: Final = 256


def looks_binary(start: bytes) -> bool:
    """Whether the first bytes of a file are those of a binary one: a NUL among them."""
    return b"\0" in start[:_BINARY_PROBE_BYTES]


@dataclass(slots=True)
class _Window:
    """Some lines of a file."""

    data: bytes = b""
    first_line: int = 0
    """Lines before it."""
    more: bool = False
    """Whether something follows."""


def read_file(root_fd: int, arguments: Arguments) -> dict[str, object]:
    """`{relative_path, offset_lines?, limit_lines?}`: the file's text, from a line on, within bounds."""
    path = text_argument(arguments, "relative_path")
    parts = split_path(path)
    skip = number_argument(arguments, "offset_lines", 0)
    limit = number_argument(arguments, "limit_lines", 0, minimum=1)
    max_read = number_argument(arguments, "max_read_bytes", DEFAULT_MAX_BYTES, minimum=1)
    max_shown = number_argument(arguments, "max_shown_bytes", DEFAULT_SHOWN_BYTES, minimum=1)
    room = max(1, min(max_read, max_shown - _NOTE_ROOM_BYTES if max_shown > 512 else max_shown))
    with opened_file(root_fd, parts) as fd:
        size = os.fstat(fd).st_size
        if size > max_read and not skip and not limit:
            raise OperationRefused(
                "too_large",
                f"{path}: the file has {size} bytes, and at most {max_read} are read at once; "
                "read a part of it with offset_lines and limit_lines, or search it",
            )
        if looks_binary(os.pread(fd, _BINARY_PROBE_BYTES, 0)):
            return _shown(f"[binary file of {size} bytes, not shown]")
        window = _read_window(fd, skip=skip, limit=limit, max_bytes=room)
        lines = _count_lines(fd, size) if window.more or (skip and not window.data) else 0
    if skip and not window.data:
        raise OperationRefused("invalid_arguments", f"{path}: the file has only {lines} lines")
    return _render(window, size=size, lines=lines)


def _read_window(fd: int, *, skip: int, limit: int, max_bytes: int) -> _Window:
    start = _find_line(fd, skip)
    if start is None:
        return _Window(first_line=skip)
    data = os.pread(fd, max_bytes + 1, start)
    whole = len(data) <= max_bytes
    data = data[:max_bytes]
    end = _end_of_line(data, limit) if limit else len(data)
    if end < len(data):
        return _Window(data[:end], skip, more=True)
    if whole:
        more = len(os.pread(fd, 1, start + len(data))) > 0
        return _Window(data, skip, more=more)
    # Not all fits: whole lines where there are any, else as much of the line as fits.
    cut = data.rfind(b"\n") + 1
    return _Window(data[:cut] if cut else data, skip, more=True)


def _find_line(fd: int, skip: int) -> int | None:
    """The offset at which the line after `skip` lines begins; None where there are fewer."""
    offset = 0
    while skip:
        chunk = os.pread(fd, _CHUNK_BYTES, offset)
        if not chunk:
            return None
        found = chunk.count(b"\n")
        if found >= skip:
            return offset + _end_of_line(chunk, skip)
        skip -= found
        offset += len(chunk)
        if offset > _SCAN_LIMIT_BYTES:
            raise OperationRefused("too_large", f"the line lies beyond the first {_SCAN_LIMIT_BYTES} bytes")
    return offset


def _end_of_line(data: bytes, number: int) -> int:
    """The offset after the given line, or the end where there are fewer."""
    end = 0
    for _ in range(number):
        found = data.find(b"\n", end)
        if found < 0:
            return len(data)
        end = found + 1
    return end


def _count_lines(fd: int, size: int) -> int:
    """The lines of a file, or 0 where it is too large to count."""
    if size > _SCAN_LIMIT_BYTES:
        return 0
    count, offset, last = 0, 0, b"\n"
    while chunk := os.pread(fd, _CHUNK_BYTES, offset):
        count += chunk.count(b"\n")
        last = chunk[-1:]
        offset += len(chunk)
    return count + (last != b"\n")


def _render(window: _Window, *, size: int, lines: int) -> dict[str, object]:
    if not size:
        return _shown("[the file is empty]")
    data, notes = window.data, list[str]()
    shown_lines = data.count(b"\n") + (not data.endswith(b"\n"))
    if window.more and not data.endswith(b"\n"):
        data = _without_cut_character(data)
        notes.append(
            f"line {window.first_line + 1} is too long to be shown whole: its first {len(data)} bytes"
        )
    if window.more:
        after = window.first_line + shown_lines
        span = f"lines {window.first_line + 1}-{after}" + (f" of {lines}" if lines else "")
        notes.append(f"{span} ({size} bytes in all); read on with offset_lines={after}")
    text = data.decode("utf-8", "replace")
    if text.encode("utf-8") != data:
        notes.append("not valid UTF-8: U+FFFD stands for bytes that aren't")
    if notes and not text.endswith("\n"):
        text += "\n"
    return _shown(text + "".join(f"[{note}]\n" for note in notes), truncated=window.more)


def _without_cut_character(data: bytes) -> bytes:
    """The data without a character whose end is missing."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
        if byte < 0x80:
            break
    return data


def _shown(content: str, *, truncated: bool = False) -> dict[str, object]:
    return {"content": content, "truncated": truncated}


def changed(content: str, *paths: str) -> dict[str, object]:
    """The result of an operation that changed files."""
    return {"content": content, "truncated": False, "changed": list(paths)}


def encode_content(content: str, *, max_bytes: int, path: str) -> bytes:
    """Text as the bytes of a file.

    Raises:
        OperationRefused: too large, or not text.
    """
    try:
        data = content.encode("utf-8")
    except UnicodeEncodeError:
        raise OperationRefused("invalid_arguments", f"{path}: the content holds a lone surrogate") from None
    if len(data) > max_bytes:
        raise OperationRefused("too_large", f"{path}: {len(data)} bytes; at most {max_bytes} may be written")
    return data


def write_file(root_fd: int, arguments: Arguments) -> dict[str, object]:
    """`{relative_path, content}`: the file has exactly this content afterwards, or is as it was."""
    path = text_argument(arguments, "relative_path")
    parts = split_path(path)
    max_bytes = number_argument(arguments, "max_write_bytes", DEFAULT_MAX_BYTES, minimum=1)
    data = encode_content(text_argument(arguments, "content"), max_bytes=max_bytes, path=path)
    with located(root_fd, parts, create_folders=True) as place:
        new = write_bytes(place, data)
        return changed(f"{'created' if new else 'wrote'} {place.path} ({len(data)} bytes)", place.path)


def move_file(root_fd: int, arguments: Arguments) -> dict[str, object]:
    """`{relative_path, new_relative_path}`: renames a file; never onto another."""
    source_parts = split_path(text_argument(arguments, "relative_path"))
    target_parts = split_path(text_argument(arguments, "new_relative_path"))
    with located(root_fd, source_parts, follow=False) as source:
        _refuse_not_a_file(source.find_status(), path=source.path)
        with located(root_fd, target_parts, follow=False, create_folders=True) as target:
            try:
                rename_into_free_place(source, target)
            except FileExistsError:
                raise OperationRefused(
                    "conflict", f"{target.path}: exists already; delete it first"
                ) from None
            return changed(f"moved {source.path} to {target.path}", source.path, target.path)


def delete_file(root_fd: int, arguments: Arguments) -> dict[str, object]:
    """`{relative_path}`: removes a file or a link, not a folder."""
    with located(root_fd, split_path(text_argument(arguments, "relative_path")), follow=False) as place:
        _refuse_not_a_file(place.find_status(), path=place.path)
        os.unlink(place.name, dir_fd=place.folder_fd)
        return changed(f"deleted {place.path}", place.path)


def _refuse_not_a_file(status: os.stat_result | None, *, path: str) -> None:
    if status is None:
        raise OperationRefused("not_found", f"{path}: no such file or folder")
    if stat.S_ISDIR(status.st_mode):
        raise OperationRefused("invalid_arguments", f"{path}: this is a folder, not a file")
