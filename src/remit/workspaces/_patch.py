"""Writes a patch as git does, from the bytes of both sides: no filter, attribute or setting has a say."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from remit.workspaces._changes import Blobs, Change, Content
from remit.workspaces._git import NEUTRAL_ATTRIBUTES, Git, make_git_folder

__all__ = ["Patch", "PathCounts", "write_patch"]

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


async def write_patch(git: Git, changes: Sequence[Change], blobs: Blobs) -> Patch:
    """Write the patch that turns the base into the result.

    Args:
        git: The program.
        changes: What differs.
        blobs: The bytes of both sides.

    Raises:
        GitError: Git refused, which it does for no change that `collect_changes` lets through.
    """
    if not changes:
        return Patch(b"", 0, 0, 0, {})
    with tempfile.TemporaryDirectory(prefix="remit-patch-") as scratch:
        stream, binary = _import_stream(changes, blobs)
        git_dir = make_git_folder(
            Path(scratch) / "git",
            settings={"core.bigFileThreshold": _TEXT_AT_MOST},
            attributes=NEUTRAL_ATTRIBUTES + "".join(_as_binary(path) for path in sorted(binary)),
        )
        await git.run("fast-import", "--quiet", "--done", git_dir=git_dir, stdin=stream)
        renames = ("--no-renames",) if _folders_clash(changes) else _RENAMES
        options = ("diff-tree", *_OPTIONS, *renames)
        sides = ("refs/heads/base", "refs/heads/result")
        text = await git.run(*options, *_FORMAT, *sides, git_dir=git_dir)
        counts = await git.run(*options, "--numstat", "-z", *sides, git_dir=git_dir)
    paths = _parse_counts(counts)
    return Patch(
        text=text,
        files=len(paths),
        insertions=sum(entry.insertions for entry in paths.values()),
        deletions=sum(entry.deletions for entry in paths.values()),
        paths=paths,
    )


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


def _parse_counts(listed: bytes) -> dict[str, PathCounts]:
    """Read `--numstat -z`: a renamed file has an empty third column, and two more fields."""
    fields = iter(listed.split(b"\0"))
    paths: dict[str, PathCounts] = {}
    for record in fields:
        if record:
            insertions, deletions, path = record.split(b"\t", 2)
            if not path:
                next(fields)
                path = next(fields)
            binary = insertions == b"-"
            counts = PathCounts(0, 0, True) if binary else PathCounts(int(insertions), int(deletions))
            paths[os.fsdecode(path)] = counts
    return paths
