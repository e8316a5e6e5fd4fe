"""Makes an index of a whole working tree as it is laid out, without touching the user's own."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from remit.workspaces._base import BaseEntry, LeftOut, Uncommitted
from remit.workspaces._git import Git
from remit.workspaces._repository import Repository
from remit.workspaces.keeper._tree import show_path

__all__ = [
    "LARGE_BYTES",
    "TreeStatus",
    "copy_index",
    "find_converted",
    "hash_uncommitted",
    "leave_out",
    "list_ignored_folders",
    "list_index",
    "may_convert",
    "read_status",
    "update_index",
]

LARGE_BYTES = 32 << 20
"""An untracked file above this is left out of the base: it stays in the tree, and no patch touches it."""
_CONVERTING = re.compile(rb"\b(?:text|eol|crlf|filter|ident|working-tree-encoding)\b")
_FILTERING = ("filter", "ident", "working-tree-encoding")


@dataclass(slots=True)
class TreeStatus:
    """What git says of a working tree."""

    changed: dict[str, Uncommitted] = field(default_factory=dict[str, Uncommitted])
    """By path, what isn't as in HEAD."""
    ignored_folders: list[str] = field(default_factory=list[str])
    left_out: dict[str, LeftOut] = field(default_factory=dict[str, LeftOut])


@dataclass(frozen=True, slots=True, kw_only=True)
class Converting:
    """A git folder in which the user's attributes and line ends are in force, filters not."""

    git_dir: Path
    attributes: str
    """The text of the repository's own `info/attributes`."""
    line_ends: bool
    """Whether a setting lays out line ends."""


def copy_index(repository: Repository, git_dir: Path) -> None:
    """Copy the user's index with its own time: git trusts entries that are older than the index."""
    for source in (repository.git_dir / "index", *repository.git_dir.glob("sharedindex.*")):
        if source.is_file():
            shutil.copy2(source, git_dir / source.name)


async def read_status(git: Git, repository: Repository, converting: Converting, index: Path) -> TreeStatus:
    """Compare HEAD, the copied index and the working tree.

    Submodules aren't entered: their config could run.
    """
    listed = await git.run(
        "status",
        "--porcelain=v2",
        "-z",
        "--no-renames",
        "--untracked-files=all",
        "--ignored=matching",
        "--ignore-submodules=all",
        git_dir=converting.git_dir,
        work_tree=repository.root,
        index=index,
        # The index is a copy of ours: what git learns of files that only look changed is kept in it.
        extra={"GIT_OPTIONAL_LOCKS": "1"},
    )
    status = TreeStatus()
    for record in listed.split(b"\0"):
        kind, _, rest = record.partition(b" ")
        if kind in (b"1", b"u"):
            parts = rest.split(b" ", 7 if kind == b"1" else 9)
            _note_changed(status, os.fsdecode(parts[-1]), parts[0].decode() if kind == b"1" else "u")
        elif kind == b"?":
            _note_untracked(status, repository.root, os.fsdecode(rest))
        elif kind == b"!" and rest.endswith(b"/"):
            status.ignored_folders.append(os.fsdecode(rest[:-1]))
    for path in await _find_only_filtered(git, repository, converting, status):
        del status.changed[path]
    return status


async def _find_only_filtered(
    git: Git, repository: Repository, converting: Converting, status: TreeStatus
) -> list[str]:
    """Files that look changed only because the node doesn't run the filter that laid them out.

    Git looks into a file when it was written in the same second as the index, as after a fresh clone; there
    the index's facts decide.
    """
    suspects = sorted(path for path, entry in status.changed.items() if entry.state == "modified")
    filtered = await _find_filtered(git, repository, converting, suspects)
    if not filtered:
        return []
    copy_index(repository, converting.git_dir)  # as it was: git has blanked such entries in the other copy
    command = ("ls-files", "--debug", "-z", "--", *sorted(filtered))
    listed = await git.run(*command, git_dir=converting.git_dir, work_tree=repository.root)
    facts = re.findall(rb"([^\0]+)\0  ctime: (\d+):\d+\n  mtime: (\d+):\d+\n.*\n.*\n  size: (\d+)", listed)
    same: list[str] = []
    for path, changed, written, size in facts:
        info = os.lstat(repository.root / os.fsdecode(path))
        if (int(info.st_ctime), int(info.st_mtime), info.st_size) == (int(changed), int(written), int(size)):
            same.append(os.fsdecode(path))
    return same


def _note_changed(status: TreeStatus, path: str, columns: str) -> None:
    if columns == "u":
        state = "unmerged"
    elif columns[1] == "D" or columns == "D.":
        state = "deleted"
    else:
        state = "added" if "A" in columns else "modified"
    status.changed[path] = Uncommitted(path=show_path(path), state=state)


def _note_untracked(status: TreeStatus, root: Path, path: str) -> None:
    if path.endswith("/"):
        path = path.rstrip("/")
        status.left_out[path] = LeftOut(path=show_path(path), why="another repository")
        return
    try:
        info = os.lstat(root / path)
    except OSError:  # gone meanwhile
        return
    if stat.S_ISREG(info.st_mode) and info.st_size > LARGE_BYTES:
        status.left_out[path] = LeftOut(path=show_path(path), why="large")
    elif stat.S_ISREG(info.st_mode) and not os.access(root / path, os.R_OK):
        status.left_out[path] = LeftOut(path=show_path(path), why="unreadable")
    elif stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode):
        status.changed[path] = Uncommitted(path=show_path(path), state="untracked")
    else:
        status.left_out[path] = LeftOut(path=show_path(path), why="not a file")


async def list_ignored_folders(git: Git, repository: Repository, git_dir: Path) -> list[str]:
    """The outermost folders of the working tree that git ignores."""
    options = ("--others", "--ignored", "--exclude-standard", "--directory")
    listed = await git.run("ls-files", "-z", *options, git_dir=git_dir, work_tree=repository.root)
    return [os.fsdecode(name[:-1]) for name in listed.split(b"\0") if name.endswith(b"/")]


async def list_index(git: Git, git_dir: Path) -> dict[str, BaseEntry]:
    """Every entry of an index."""
    listed = await git.run("ls-files", "--stage", "-z", git_dir=git_dir, work_tree=git_dir)
    entries: dict[str, BaseEntry] = {}
    for record in os.fsdecode(listed).split("\0"):  # MODE BLOB STAGE<tab>PATH
        if record:
            facts, _, path = record.partition("\t")
            entries[path] = BaseEntry(facts[:6], facts[7:-2])
    return entries


async def update_index(git: Git, git_dir: Path, root: Path, paths: Iterable[str]) -> None:
    """Bring entries to what lies in the tree, byte for byte."""
    paths = sorted(paths)
    present = [path for path in paths if _is_storable(root / path)]
    # An entry whose file looks unchanged would be kept as it is, so all of them go first.
    for options, names in ((("--force-remove",), paths), (("--add", "--replace"), present)):
        if names:
            stdin = b"".join(os.fsencode(name) + b"\0" for name in names)
            command = ("update-index", *options, "-z", "--stdin")
            await git.run(*command, git_dir=git_dir, work_tree=root, stdin=stdin)


def _is_storable(path: Path) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def leave_out(git_dir: Path, status: TreeStatus) -> None:
    """Let git in the checkout pass over what the base doesn't hold."""
    with (git_dir / "info/exclude").open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(f"/{_escape_pattern(path)}\n" for path in sorted(status.left_out) if "\n" not in path)


def _escape_pattern(path: str) -> str:
    return re.sub(r"([\\*?\[ ])", r"\\\1", path)


def may_convert(repository: Repository, listing: Mapping[str, BaseEntry], converting: Converting) -> bool:
    """Whether any attribute or setting lays out bytes otherwise than they are stored."""
    texts = [converting.attributes.encode("utf-8", "surrogateescape")]
    texts += [_read(repository.root / path) for path in listing if path.endswith(".gitattributes")]
    return converting.line_ends or any(_CONVERTING.search(text) for text in texts)


async def find_converted(
    git: Git, repository: Repository, listing: Mapping[str, BaseEntry], converting: Converting
) -> set[str]:
    """Tracked files whose bytes in the tree aren't those of their blob: line ends, filters, encodings."""
    if not may_convert(repository, listing, converting):
        return set()
    files = {
        path: entry.blob for path, entry in listing.items() if entry.mode.startswith("100") and entry.blob
    }
    sizes = await _blob_sizes(git, converting.git_dir, sorted(set(files.values())))
    filtered = await _find_filtered(git, repository, converting, sorted(files))
    found: set[str] = set()
    for path, blob in files.items():
        size = _size_of(repository.root / path)
        if size is not None and size <= LARGE_BYTES and (path in filtered or size != sizes.get(blob, size)):
            found.add(path)
    return found


def _read(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(1 << 20)


def _size_of(path: Path) -> int | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_size if stat.S_ISREG(info.st_mode) else None


async def _blob_sizes(git: Git, git_dir: Path, blobs: Sequence[str]) -> dict[str, int]:
    stdin = "".join(f"{blob}\n" for blob in blobs).encode()
    command = ("cat-file", "--batch-check=%(objectname) %(objectsize)")
    listed = await git.run(*command, git_dir=git_dir, stdin=stdin)
    pairs = (line.split(" ") for line in listed.decode("ascii").split("\n") if line)
    return {name: int(size) for name, size in pairs if size.isdigit()}


async def _find_filtered(
    git: Git, repository: Repository, converting: Converting, paths: Sequence[str]
) -> set[str]:
    """Paths with attributes under which bytes may differ at the same size."""
    if not paths:
        return set()
    stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
    command = ("check-attr", "-z", "--stdin", *_FILTERING)
    listed = await git.run(*command, git_dir=converting.git_dir, work_tree=repository.root, stdin=stdin)
    fields = listed.split(b"\0")
    triples = zip(fields[0::3], fields[1::3], fields[2::3], strict=False)
    return {os.fsdecode(path) for path, _, value in triples if value not in (b"unspecified", b"unset")}


def hash_uncommitted(root: Path, tree: str, status: TreeStatus) -> str | None:
    """A hash of all that isn't in HEAD; None where nothing is. Large files count by size and time."""
    digest = hashlib.sha256(tree.encode())
    large = [path for path, left in sorted(status.left_out.items()) if left.why == "large"]
    for path in large:
        info = os.lstat(root / path)
        digest.update(os.fsencode(path) + f"\0{info.st_size} {info.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:12] if status.changed or large else None
