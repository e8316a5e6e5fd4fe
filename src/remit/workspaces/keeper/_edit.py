"""Replaces a text in a file. The text names lines by their content; only these change, byte for byte."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from remit.workspaces.keeper._arguments import Arguments, flag_argument, number_argument, text_argument
from remit.workspaces.keeper._files import DEFAULT_MAX_BYTES, changed, encode_content
from remit.workspaces.keeper._line_ends import CRLF, LF, adapt_ends, end_near
from remit.workspaces.keeper._nearest import nearest_text
from remit.workspaces.keeper._paths import split_path
from remit.workspaces.keeper._places import located, read_place, write_bytes
from remit.workspaces.keeper._refusals import OperationRefused

_SHOWN_LINES = 10
_MAX_COUNTED = 100


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where the old text stands."""

    start: int
    stop: int


def edit_file(root_fd: int, arguments: Arguments) -> dict[str, object]:
    """`{relative_path, old, new, replace_all?}`: replaces a text that must occur exactly once, or all.

    Line feeds in `old` also match the file's CRLF ends, and the new lines get the ends of those they replace;
    texts with a carriage return of their own are taken literally.
    """
    path = text_argument(arguments, "relative_path")
    max_bytes = number_argument(arguments, "max_write_bytes", DEFAULT_MAX_BYTES, minimum=1)
    old = encode_content(text_argument(arguments, "old"), max_bytes=max_bytes, path=path)
    new = encode_content(text_argument(arguments, "new"), max_bytes=max_bytes, path=path)
    replace_all = flag_argument(arguments, "replace_all")
    if not old:
        raise OperationRefused("invalid_arguments", "`old` is empty; use write_file for a new or empty file")
    if old == new:
        raise OperationRefused("invalid_arguments", "`old` and `new` are the same")
    with located(root_fd, split_path(path)) as place:
        data, _ = read_place(place, max_bytes=max_bytes)
        spots, new = _find(data, old, new, replace_all=replace_all)
        _refuse_unclear(data, old, new, spots, replace_all=replace_all, path=place.path)
        edited = _replace(data, new, spots, literal=b"\r" in old + new or b"\r" not in data)
        if len(edited) > max_bytes:
            raise OperationRefused(
                "too_large", f"{path}: it would have {len(edited)} bytes; at most {max_bytes}"
            )
        write_bytes(place, edited)
        where = _lines_in_words(data, spots)
        return changed(f"edited {place.path}: replaced {len(spots)} at {where}", place.path)


def _find(data: bytes, old: bytes, new: bytes, *, replace_all: bool) -> tuple[list[_Spot], bytes]:
    """Where the old text stands, and the new one as it is to be put there."""
    if b"\r" in old or b"\r" in new or b"\r" not in data:
        plain, shifts = data, list[int]()
    else:
        plain = data.replace(CRLF, LF)
        # Where in the plain bytes a line feed stands for two bytes.
        shifts = [match.start() - index for index, match in enumerate(re.finditer(CRLF, data))]
    starts = _find_all(plain, old, step=len(old) if replace_all else 1)
    if not starts and old.endswith(LF) and len(old) > 1 and plain.endswith(old[:-1]):
        # The last line of a file may lack the end that the text has.
        old, new = old[:-1], new.removesuffix(LF)
        starts = [len(plain) - len(old)]
    spans = ((start, start + len(old)) for start in starts)
    return [_Spot(*(place + bisect_left(shifts, place) for place in span)) for span in spans], new


def _find_all(data: bytes, old: bytes, *, step: int) -> list[int]:
    starts: list[int] = []
    start = data.find(old)
    # Overlapping ones are looked for only to refuse them, so a few are enough.
    while start >= 0 and (step == len(old) or len(starts) < _MAX_COUNTED):
        starts.append(start)
        start = data.find(old, start + step)
    return starts


def _refuse_unclear(
    data: bytes, old: bytes, new: bytes, spots: list[_Spot], *, replace_all: bool, path: str
) -> None:
    if not spots:
        hint = "the new text is there already; " if new and new in data else ""
        near = nearest_text(data.decode("utf-8", "replace"), old.decode())
        raise OperationRefused("conflict", f"{path}: the old text doesn't occur; {hint}{near}")
    if len(spots) > 1 and not replace_all:
        raise OperationRefused(
            "conflict",
            f"{path}: the old text occurs {len(spots)} times, at {_lines_in_words(data, spots)}; "
            "add lines around it to name one place, or set replace_all",
        )


def _replace(data: bytes, new: bytes, spots: list[_Spot], *, literal: bool) -> bytes:
    pieces: list[bytes] = []
    end = 0
    for spot in spots:
        segment = data[spot.start : spot.stop]
        text = new if literal else adapt_ends(new, segment=segment, default=end_near(data, spot.stop))
        pieces += (data[end : spot.start], text)
        end = spot.stop
    pieces.append(data[end:])
    return b"".join(pieces)


def _lines_in_words(data: bytes, spots: list[_Spot]) -> str:
    numbers: list[int] = []
    line, position = 1, 0
    for spot in spots[:_SHOWN_LINES]:
        line += data.count(b"\n", position, spot.start)
        position = spot.start
        if line not in numbers:
            numbers.append(line)
    more = ", ..." if len(spots) > _SHOWN_LINES else ""
    return ("line " if len(numbers) == 1 else "lines ") + ", ".join(map(str, numbers)) + more
