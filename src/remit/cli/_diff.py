"""A patch as it is shown: which files, how many lines, in colour."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.text import Text

from remit.cli._words import one_line, plain
from remit.primitives import patched_path, read_patch_name

_BAR_CHARS = 24
_INDEX = re.compile("^index ([0-9a-f]{9})[0-9a-f]+\\.\\.([0-9a-f]{9})[0-9a-f]+")
"""Content lines begin with a space, + or -: this is the header of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file of a patch."""

    path: str
    insertions: int
    deletions: int
    is_binary: bool = False
    old_path: str | None = None
    """What it was called before; None: the same, or it is new."""

    @property
    def shown_path(self) -> str:
        """Its name, and where it was moved the one that it had."""
        return self.path if self.old_path is None else f"{self.old_path} → {self.path}"


def files_of(patch: str) -> tuple[FileChange, ...]:
    """The files that a patch changes, as git writes patches."""
    files: list[FileChange] = []
    path, insertions, deletions, binary, in_hunk = "", 0, 0, False, False
    old_path: str | None = None
    left_old = left_new = 0

    def close() -> None:
        if path:
            files.append(
                FileChange(
                    path=path,
                    insertions=insertions,
                    deletions=deletions,
                    is_binary=binary,
                    old_path=old_path,
                )
            )

    for line in patch.split("\n"):
        if not in_hunk and line.startswith("diff --git "):
            close()
            path, insertions, deletions, binary = patched_path(line), 0, 0, False
            old_path = None
        elif line.startswith("@@ ") and not in_hunk:
            left_old, left_new = _hunk_sizes(line)
            in_hunk = bool(left_old or left_new)
        elif in_hunk:
            insertions += line.startswith("+")
            deletions += line.startswith("-")
            left_old -= line.startswith(("-", " ")) or not line
            left_new -= line.startswith(("+", " ")) or not line
            in_hunk = left_old > 0 or left_new > 0
        elif line.startswith(("GIT binary patch", "Binary files ")):
            binary = True
        elif line.startswith("rename from "):
            old_path = read_patch_name(line.removeprefix("rename from "))
    close()
    return tuple(files)


def _hunk_sizes(line: str) -> tuple[int, int]:
    sizes: list[int] = []
    for part in line.split(" ")[1:3]:
        _, comma, number = part.partition(",")
        sizes.append(int(number) if comma and number.isdigit() else 1)
    return (sizes[0], sizes[1]) if len(sizes) == 2 else (0, 0)


def stat_lines(files: tuple[FileChange, ...], *, width: int) -> list[Text]:
    """A line for each file: path, numbers, a bar."""
    most = max((change.insertions + change.deletions for change in files), default=0)
    room = max(10, width - _BAR_CHARS - 16)
    longest = min(room, max((len(one_line(change.shown_path, width=room)) for change in files), default=0))
    lines: list[Text] = []
    for change in files:
        line = Text(one_line(change.shown_path, width=room).ljust(longest + 2))
        if change.is_binary:
            line.append("binary", style="dim")
        else:
            line.append(f"+{change.insertions} ".rjust(7), style="green")
            line.append(f"-{change.deletions} ".ljust(6), style="red")
            scale = min(1.0, _BAR_CHARS / most) if most else 0
            line.append("+" * _part(change.insertions, scale), style="green")
            line.append("-" * _part(change.deletions, scale), style="red")
        lines.append(line)
    return lines


def _part(lines: int, scale: float) -> int:
    return max(1, round(lines * scale)) if lines else 0


def coloured(patch: str) -> Text:
    """The patch for a terminal: control characters out, added lines green, removed ones red."""
    shown = Text()
    for line in plain(patch).split("\n"):
        shown.append(_INDEX.sub(r"index \1..\2", line) + "\n", style=_style(line))
    while shown.plain.endswith("\n"):
        shown.right_crop(1)
    return shown


def _style(line: str) -> str:
    if line.startswith(
        ("diff --git", "index ", "--- ", "+++ ", "new file", "deleted file", "old mode", "new mode")
    ):
        return "bold"
    if line.startswith("@@"):
        return "cyan"
    if line.startswith("+"):
        return "green"
    return "red" if line.startswith("-") else ""
