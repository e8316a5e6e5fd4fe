"""Reads a patch in the form that models are trained on.

*** Begin Patch
*** Add File: path            lines with `+`
*** Delete File: path
*** Update File: path         then, where it moves, `*** Move to: path`; then hunks
@@ a line above the hunk      or nothing after `@@`; several narrow the place
context
-old
+new
*** End of File               the hunk stands at the file's end
*** End Patch
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from remit.workspaces.keeper._refusals import OperationRefused

BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
END_OF_FILE: Final = "*** End of File"
MOVE: Final = "*** Move to: "
MAX_FILES: Final = 200

Sign = Literal[" ", "-", "+"]

_FILE: Final = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_NUMBERED: Final = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)")


@dataclass(slots=True)
class Hunk:
    """One change: lines to find, with what happens to each."""

    above: list[str] = field(default_factory=list[str])
    """Lines that stand somewhere above, in this order."""
    lines: list[tuple[Sign, str]] = field(default_factory=list[tuple[Sign, str]])
    at_end: bool = False


@dataclass(slots=True)
class FileChange:
    """What a patch does to one file."""

    kind: Literal["Add", "Update", "Delete"]
    path: str
    new_path: str | None = None
    content: list[str] = field(default_factory=list[str])
    """The lines of an added file."""
    hunks: list[Hunk] = field(default_factory=list[Hunk])


def parse_patch(text: str) -> list[FileChange]:
    """The changes of a patch, in order.

    Raises:
        OperationRefused: it isn't one; the message names the line.
    """
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    if lines[0].strip() != BEGIN:
        raise _refusal(1, f"a patch begins with `{BEGIN}`")
    if len(lines) < 2 or lines[-1].strip() != END:
        raise _refusal(len(lines), f"a patch ends with `{END}`")
    changes: list[FileChange] = []
    for number, line in enumerate(lines[1:-1], start=2):
        found = _FILE.fullmatch(line.rstrip())
        if found is not None:
            changes.append(_begin(found, changes, number))
        elif not changes:
            if line.strip():
                raise _refusal(
                    number, "expected `*** Add File: `, `*** Update File: ` or `*** Delete File: `"
                )
        else:
            _take(changes[-1], line, number)
    _refuse_empty(changes)
    return changes


def _begin(found: re.Match[str], changes: list[FileChange], number: int) -> FileChange:
    if len(changes) == MAX_FILES:
        raise _refusal(number, f"more than {MAX_FILES} files")
    kind, path = found[1], found[2].strip()
    assert kind == "Add" or kind == "Update" or kind == "Delete"
    return FileChange(kind, path)


def _take(change: FileChange, line: str, number: int) -> None:
    if change.kind == "Add":
        if line.startswith("+"):
            change.content.append(line[1:])
        elif line.strip():
            raise _refusal(number, "each line of an added file begins with `+`")
    elif change.kind == "Delete":
        if line.strip():
            raise _refusal(number, "nothing follows `*** Delete File`")
    else:
        _take_update(change, line, number)


def _take_update(change: FileChange, line: str, number: int) -> None:
    hunk = change.hunks[-1] if change.hunks else None
    if line.startswith(MOVE) and hunk is None and change.new_path is None:
        change.new_path = line.removeprefix(MOVE).strip()
    elif line.startswith("@@"):
        _take_header(change, line)
    elif line.rstrip() == END_OF_FILE and hunk is not None:
        hunk.at_end = True
    elif not line or line[0] in " -+":
        if hunk is None or hunk.at_end:
            hunk = Hunk()
            change.hunks.append(hunk)
        # An empty line stands for an empty line of context, whose space was lost.
        sign = line[:1] or " "
        assert sign == " " or sign == "-" or sign == "+"
        hunk.lines.append((sign, line[1:]))
    else:
        raise _refusal(number, "a line of a hunk begins with a space, `-`, `+` or `@@`")


def _take_header(change: FileChange, line: str) -> None:
    numbered = _NUMBERED.fullmatch(line)
    above = numbered[1] if numbered else line.removeprefix("@@").removeprefix(" ")
    if not change.hunks or change.hunks[-1].lines or not above.strip():
        change.hunks.append(Hunk())
    if above.strip():
        change.hunks[-1].above.append(above)


def _refuse_empty(changes: list[FileChange]) -> None:
    if not changes:
        raise OperationRefused("invalid_arguments", "the patch changes nothing")
    for change in changes:
        # Blank lines before the next file aren't context, and a header alone isn't a change.
        for hunk in change.hunks:
            while hunk.lines and hunk.lines[-1] == (" ", "") and hunk is change.hunks[-1]:
                hunk.lines.pop()
        change.hunks = [hunk for hunk in change.hunks if any(sign != " " for sign, _ in hunk.lines)]
        if change.kind == "Update" and not change.hunks and change.new_path is None:
            raise OperationRefused("invalid_arguments", f"{change.path}: the patch changes nothing in it")


def _refusal(number: int, text: str) -> OperationRefused:
    return OperationRefused("invalid_arguments", f"line {number} of the patch: {text}")
