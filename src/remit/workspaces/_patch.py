"""Writes a patch as git does, from the bytes of both sides: no filter, attribute or setting has a say."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from remit.workspaces._changes import Blobs, Change, Content
from remit.workspaces._git import NEUTRAL_ATTRIBUTES, Git, make_git_folder

__all__ = ["Patch", "PatchFolders", "PathCounts", "count_lines", "write_patch"]

# Larger files are taken for binary: to compare them line by line would take too long.
_TEXT_AT_MOST = "8m"
_OPTIONS = (
    "-r",
    "--no-ext-diff",
    "--no-textconv",
    "--diff-algorithm=histogram",
)
_RENAMES = ("--find-renames", "-l2000", "--no-rename-empty")
_FORMAT = ("--patch", "--binary", "--full-index", "--unified=3", "--src-prefix=a/", "--dst-prefix=b/")


@dataclass(frozen=True, slots=True)
class PathCounts:
    """What a patch does to one path."""

    insertions: int = 0
    deletions: int = 0
    binary: bool = False


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch, and what it amounts to."""

    text: bytes
    """As `git apply` takes it, in UTF-8 without NUL; empty when nothing changed."""
    files: int
    """A renamed file counts once."""
    insertions: int
    deletions: int
    paths: Mapping[str, PathCounts]
    """By path; a renamed file stands under its new name."""

    @property
    def sha256(self) -> str:
        """The hash that a delivery names."""
        return hashlib.sha256(self.text).hexdigest()


class PatchFolders:
    """Git folders in which patches are written; each is used again, since making one costs more than a patch.

    Args:
        folder: Where they lie; made when the first is needed. Whoever owns this removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._free: list[Path] = []

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[Path]:
        """A git folder without objects or references, for one patch."""
        git_dir = self._free.pop() if self._free else await asyncio.to_thread(self._make)
        yield git_dir
        await asyncio.to_thread(_empty, git_dir)
        self._free.append(git_dir)  # one that failed half way isn't used again

    def _make(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings = {"core.bigFileThreshold": _TEXT_AT_MOST, "fastimport.unpackLimit": "0"}
        return make_git_folder(Path(tempfile.mkdtemp(dir=self._folder)) / "git", settings=settings)


def _empty(git_dir: Path) -> None:
    for path in (*(git_dir / "objects/pack").iterdir(), *(git_dir / "refs/heads").iterdir()):
        path.unlink()


async def write_patch(git: Git, changes: Sequence[Change], blobs: Blobs, folders: PatchFolders) -> Patch:
    """Write the patch that turns the base into the result.

    Args:
        git: The program.
        changes: What differs.
        blobs: The bytes of both sides.
        folders: Where git does it.

    Raises:
        GitError: Git refused, which it does for no change that `collect_changes` lets through.
    """
    if not changes:
        return Patch(b"", 0, 0, 0, {})
    async with folders.use() as git_dir:
        stream = await asyncio.to_thread(_load, changes, blobs, git_dir)
        await git.run("fast-import", "--quiet", "--done", git_dir=git_dir, stdin=stream)
        renames = ("--no-renames",) if _folders_clash(changes) else _RENAMES
        sides = ("refs/heads/base", "refs/heads/result")
        text = await git.run("diff-tree", *_OPTIONS, *renames, *_FORMAT, *sides, git_dir=git_dir)
    paths = count_lines(text, [change.path for change in changes])
    return Patch(
        text=text,
        files=len(paths),
        insertions=sum(entry.insertions for entry in paths.values()),
        deletions=sum(entry.deletions for entry in paths.values()),
        paths=paths,
    )


def _load(changes: Sequence[Change], blobs: Blobs, git_dir: Path) -> bytes:
    stream, binary = _import_stream(changes, blobs)
    attributes = NEUTRAL_ATTRIBUTES + "".join(_as_binary(path) for path in sorted(binary))
    (git_dir / "info/attributes").write_text(attributes)
    return stream


def _folders_clash(changes: Sequence[Change]) -> bool:
    """Whether a file becomes a folder or a folder a file: git then can't apply a rename between the two."""
    files = {change.path for change in changes}
    return any(str(folder) in files for path in files for folder in PurePosixPath(path).parents)


def _import_stream(changes: Sequence[Change], blobs: Blobs) -> tuple[bytes, set[str]]:
    """Two commits that hold only the changed paths, as `git fast-import` reads them; and what isn't text."""
    parts: list[bytes] = []
    binary: set[str] = set()
    for name in ("base", "result"):
        parts.append(
            f"commit refs/heads/{name}\ncommitter Remit <remit@localhost> 0 +0000\ndata 0\n\n".encode()
        )
        for change in changes:
            content = change.base if name == "base" else change.result
            if content:
                data = blobs.read(content)
                parts += _import_file(change.path, content, data)
                if not _is_text(data):
                    binary.add(change.path)
    return b"".join([*parts, b"done\n"]), binary


def _is_text(data: bytes) -> bool:
    """Whether the bytes may stand in a patch as they are: it must be text that everything can carry."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def _as_binary(path: str) -> str:
    """A line of attributes that makes git encode one file."""
    literal = re.sub(rb"([\\*?\[\]])", rb"\\\1", os.fsencode("/" + path))
    quoted = "".join(
        chr(byte) if 0x20 < byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}" for byte in literal
    )
    return f'"{quoted}" -diff\n'


def _import_file(path: str, content: Content, data: bytes) -> list[bytes]:
    quoted = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    head = b'M %s inline "%s"\ndata %d\n' % (content.mode.encode(), quoted, len(data))
    return [head, data, b"\n"]


def count_lines(patch: bytes, paths: Sequence[str]) -> dict[str, PathCounts]:
    """What a patch of ours does to each path.

    Args:
        patch: As git wrote it with `a/` and `b/` before names.
        paths: Every path that it may name.
    """
    headers = {_header(path): path for path in paths}
    names = {_quote(os.fsencode(path)): path for path in paths}
    counts: dict[str, PathCounts] = {}
    for section in _SECTION.split(patch)[1:]:
        lines = section.split(b"\n")
        path = headers.get(lines[0]) or names[_find_renamed(lines)]
        found = _count_section(lines[1:])
        earlier = counts.get(path, PathCounts())  # a change of type has two sections
        counts[path] = PathCounts(
            earlier.insertions + found.insertions,
            earlier.deletions + found.deletions,
            earlier.binary or found.binary,
        )
    return counts


# Every line of a hunk begins with a space, a sign or a backslash, and those of binary parts hold no space.
_SECTION = re.compile(rb"^diff --git ", re.MULTILINE)
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def _header(path: str) -> bytes:
    raw = os.fsencode(path)
    return _quote(b"a/" + raw) + b" " + _quote(b"b/" + raw)


def _find_renamed(lines: Sequence[bytes]) -> bytes:
    return next(line.removeprefix(b"rename to ") for line in lines if line.startswith(b"rename to "))


def _count_section(lines: Sequence[bytes]) -> PathCounts:
    insertions = deletions = left_old = left_new = 0
    for line in lines:
        if left_old or left_new:
            sign = line[:1]
            insertions += sign == b"+"
            deletions += sign == b"-"
            left_old -= sign in (b"-", b" ")
            left_new -= sign in (b"+", b" ")
        elif hunk := _HUNK.match(line):
            left_old, left_new = (1 if size is None else int(size) for size in hunk.groups())
        elif line.startswith((b"GIT binary patch", b"Binary files ")):
            return PathCounts(binary=True)
    return PathCounts(insertions, deletions)


def _quote(name: bytes) -> bytes:
    """A name as git writes it in a patch: quoted where it holds anything unusual."""
    if all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in name):
        return name
    return b'"' + b"".join(_QUOTED.get(byte) or _quote_byte(byte) for byte in name) + b'"'


_QUOTED = {
    0x07: b"\\a",
    0x08: b"\\b",
    0x09: b"\\t",
    0x0A: b"\\n",
    0x0B: b"\\v",
    0x0C: b"\\f",
    0x0D: b"\\r",
    0x22: b'\\"',
    0x5C: b"\\\\",
}


def _quote_byte(byte: int) -> bytes:
    return bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte
