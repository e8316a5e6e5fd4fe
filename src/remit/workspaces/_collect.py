"""Collects the changes of a checkout: what its layers say, less what git ignores, with the bytes kept."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from remit.workspaces._base import BaseEntry, BasePin, Listing
from remit.workspaces._base_git import GENERATED
from remit.workspaces._changes import Blobs, Change, Changes, Content, Skipped, require_total, sort_changes
from remit.workspaces._git import Git, make_git_folder
from remit.workspaces._private_git import publish_folder
from remit.workspaces.keeper._tree import (
    Found,
    Hash,
    Scan,
    TreeTooLarge,
    facts_of,
    git_mode,
    opened_folder_in,
    read_link_at,
    show_path,
)

__all__ = ["MAX_CHANGED", "IgnoreMemory", "collect_changes"]

MAX_CHANGED = 200_000
"""Changed names that are looked at, ignored ones among them."""
MAX_PATCHED = 20_000
"""Changed files that a patch may hold."""
MAX_FILE_BYTES = 64 << 20
MAX_TOTAL_BYTES = 256 << 20
_IGNORED_NAMES = 20
_UNREADABLE = {
    errno.EACCES,
    errno.EILSEQ,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ENOTSUP,
    errno.ENXIO,
    errno.EPERM,
}
_MAX_IGNORE_BYTES = 1 << 20


async def collect_changes(
    git: Git,
    *,
    pin: BasePin,
    listing: Listing,
    scan: Scan,
    result: Path,
    blobs: Blobs,
    memory: IgnoreMemory | None = None,
) -> Changes:
    """Compare a checkout with its base.

    Args:
        git: The program.
        pin: The base.
        listing: Its files.
        scan: What was found in the checkout's changed layer.
        result: That layer: an overlay's upper folder, or a copied tree.
        blobs: Where the bytes of both sides are kept.
        memory: What was found out of this checkout's ignored files before.

    Raises:
        TreeTooLarge: More changed than a patch may hold.
    """
    names = _resolve(scan, listing)
    skipped = [Skipped(show_path(path), what) for path, what in scan.special]
    skipped += _take_left_out(names, pin)
    aside = await asyncio.to_thread(_find_new, scan.git_names, pin, result) if scan.git_names else ()
    ignored = await _find_ignored(git, pin, listing, scan, result, names, aside, memory or IgnoreMemory())
    skipped += [Skipped(show_path(path), "git's own name") for path in aside if path not in ignored]
    ignored -= {*aside}
    for path in ignored:
        del names[path]
    if len(names) > MAX_PATCHED:
        raise TreeTooLarge(f"{len(names)} files changed; a patch holds at most {MAX_PATCHED}")
    reader = _Reader(pin=pin, listing=listing, result=result, blobs=blobs)
    changes = await asyncio.to_thread(reader.read, names) if names else []
    changes = [await _restore_base(git, pin, listing, blobs, change) for change in changes]
    return Changes(
        changes=sort_changes(change for change in changes if change.base != change.result),
        skipped=tuple(skipped + reader.skipped),
        ignored=len(ignored),
        ignored_names=tuple(show_path(path) for path in sorted(ignored)[:_IGNORED_NAMES]),
    )


def _resolve(scan: Scan, listing: Listing) -> dict[str, Found | None]:
    """Every path that may differ, with what lies there now; None: nothing."""
    if not (scan.found or scan.opaque or scan.special or scan.folders & listing.keys()):
        return {}  # a large listing isn't sorted for nothing
    order = sorted(listing)
    names: dict[str, Found | None] = {}
    for found in scan.found:
        if found.kind == "gone":
            names.update(dict.fromkeys(_at_and_below(order, found.path)))
            names.setdefault(found.path, None)
    for folder in scan.opaque:
        names.update(dict.fromkeys(_below(order, folder)))
    for folder in scan.folders & listing.keys():  # a folder where the base has a file
        names[folder] = None
    for found in scan.found:
        if found.kind != "gone":
            names.update(dict.fromkeys(_below(order, found.path)))
            names[found.path] = found
    for path, _ in scan.special:  # a pipe where the base has a file: the file is gone
        names.update(dict.fromkeys(_at_and_below(order, path)) if path not in scan.folders else {})
    return names


def _find_new(paths: Sequence[str], pin: BasePin, result: Path) -> tuple[str, ...]:
    """Those that weren't there before the run: a check may run with them, and no patch has them."""
    lower = Path(pin.lower)
    if lower == result:  # in place: what was there is known by what the base left out
        left = {entry.path for entry in pin.left_out}
        return tuple(path for path in paths if left.isdisjoint(_prefixes(path)))
    return tuple(path for path in paths if not os.path.lexists(lower / path))


def _below(order: Sequence[str], folder: str) -> Iterator[str]:
    prefix = folder + "/"
    for index in range(bisect_left(order, prefix), len(order)):
        if not order[index].startswith(prefix):
            return
        yield order[index]


def _at_and_below(order: Sequence[str], path: str) -> Iterator[str]:
    index = bisect_left(order, path)
    if index < len(order) and order[index] == path:
        yield path
    yield from _below(order, path)


def _take_left_out(names: dict[str, Found | None], pin: BasePin) -> list[Skipped]:
    """Take out what the base left out, and what git would never take."""
    left = {entry.path: entry.why for entry in pin.left_out}
    skipped: list[Skipped] = []
    for path in list(names):
        why = next((left[prefix] for prefix in _prefixes(path) if prefix in left), None) if left else None
        if path.rpartition("/")[2] == ".gitmodules" and (found := names[path]) and found.kind == "link":
            why = "git refuses a link of this name"
        if why:
            skipped.append(Skipped(show_path(path), why))
            del names[path]
    return skipped


def _prefixes(path: str) -> Iterator[str]:
    parts = path.split("/")
    return (show_path("/".join(parts[: length + 1])) for length in range(len(parts)))


@dataclass(slots=True)
class IgnoreMemory:
    """What git was asked about ignored files of one checkout, and what it was asked with."""

    folder: Path | None = None
    """Where trees of ignore files are kept to be used again; None: they aren't. Who owns it removes it."""
    asked: tuple[object, ...] = ()
    answer: frozenset[str] = frozenset()


async def _find_ignored(
    git: Git,
    pin: BasePin,
    listing: Listing,
    scan: Scan,
    result: Path,
    names: dict[str, Found | None],
    aside: Sequence[str],
    memory: IgnoreMemory,
) -> frozenset[str]:
    """Changed paths that git ignores; what is part of a git base isn't asked about."""
    paths = sorted({*(path for path in names if pin.kind == "folder" or path not in listing), *aside})
    if not paths:
        return frozenset()
    texts = await asyncio.to_thread(_read_ignore_files, paths, names, scan, Path(pin.lower), result)
    asked = (pin.store, *paths, *sorted(texts.items()))
    if memory.asked != asked:
        if memory.folder is None:
            with tempfile.TemporaryDirectory(prefix="remit-ignore-") as scratch:
                memory.answer = await _ask_ignored(git, pin, paths, texts, Path(scratch))
        else:
            memory.answer = await _ask_ignored(git, pin, paths, texts, memory.folder)
        memory.asked = asked
    return memory.answer


async def _ask_ignored(
    git: Git, pin: BasePin, paths: Sequence[str], texts: Mapping[str, bytes], folder: Path
) -> frozenset[str]:
    """Let git look at an otherwise empty tree with the same ignore files."""
    made = await asyncio.to_thread(_make_ignore_tree, texts, folder)
    git_dir = Path(pin.private_git) if pin.private_git else made / "git"
    tree = made / "tree"
    # `./` keeps a leading colon from being magic; this command doesn't take paths as literal ones.
    listed = await git.run(
        "check-ignore",
        "--no-index",
        "-z",
        "--stdin",
        git_dir=git_dir,
        work_tree=tree,
        stdin=b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths),
        extra={"GIT_LITERAL_PATHSPECS": "0"},
        allowed=(0, 1),
    )
    return frozenset(os.fsdecode(path.removeprefix(b"./")) for path in listed.split(b"\0") if path)


def _make_ignore_tree(texts: Mapping[str, bytes], folder: Path) -> Path:
    """A tree of ignore files, and a git folder that knows what tools leave behind; made once per content."""
    name = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:32]
    place = folder / f"ignore-{name}"
    if not place.is_dir():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "made"
            (made / "tree").mkdir(parents=True)
            for path, text in texts.items():
                (made / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
                (made / "tree" / path).write_bytes(text)
            make_git_folder(made / "git", excludes="\n".join(GENERATED) + "\n")
            publish_folder(made, place)
    return place


def _read_ignore_files(
    paths: Iterable[str], names: dict[str, Found | None], scan: Scan, lower: Path, result: Path
) -> dict[str, bytes]:
    """Every `.gitignore` that bears on the paths, as the checkout has it."""
    folders = {""}
    for path in paths:
        parts = path.split("/")[:-1]
        folders.update("/".join(parts[: length + 1]) for length in range(len(parts)))
    texts: dict[str, bytes] = {}
    for folder in folders:
        name = f"{folder}/.gitignore" if folder else ".gitignore"
        hidden = any(folder == opaque or folder.startswith(opaque + "/") for opaque in scan.opaque)
        source = result if names.get(name) else None if hidden or name in names else lower
        text = _read_ignore_file(source, name) if source else None
        if text:
            texts[name] = text
    return texts


def _read_ignore_file(top: Path, name: str) -> bytes | None:
    folder, _, leaf = name.rpartition("/")
    try:
        with opened_folder_in(str(top), folder) as parent:
            fd = os.open(leaf, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
            with os.fdopen(fd, "rb") as file:
                return file.read(_MAX_IGNORE_BYTES)
    except OSError:  # absent, or a folder or pipe of that name
        return None


@dataclass(slots=True)
class _Reader:
    """Reads both sides of every path that may differ."""

    pin: BasePin
    listing: Listing
    result: Path
    blobs: Blobs
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    total: int = 0

    def read(self, names: dict[str, Found | None]) -> list[Change]:
        """The changes; a path whose two sides are the same is among them."""
        return [change for path in sorted(names) if (change := self._read_path(path, names[path]))]

    def _read_path(self, path: str, found: Found | None) -> Change | None:
        entry = self.listing.get(path)
        if entry is None and found is None:
            return None
        try:
            result = self._content(self.result, path) if found else None
            base, moved = self._base(path, entry) if entry else (None, False)
        except TreeTooLarge as error:
            if self.total > MAX_TOTAL_BYTES:
                raise
            self.skipped.append(Skipped(show_path(path), str(error)))
            return None
        except OSError as error:
            if error.errno not in _UNREADABLE:  # the disk is full, or worse: nothing may be left out for that
                raise
            self.skipped.append(Skipped(show_path(path), error.strerror or "can't be read"))
            return None
        return Change(path, base, result, moved)

    def _content(self, top: Path, path: str, *hashes: Hash) -> Content:
        folder, _, name = path.rpartition("/")
        with opened_folder_in(str(top), folder) as parent:
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            for hash_ in hashes:
                hash_.update(f"blob {info.st_size}\0".encode())
            if git_mode(info.st_mode) == "120000":
                target = read_link_at(parent, name)
                _require_text(target)
                for hash_ in hashes:
                    hash_.update(target)
                return Content("120000", self.blobs.keep(target), len(target))
            sha256, size, mode = self.blobs.keep_file(parent, name, *hashes, max_bytes=MAX_FILE_BYTES)
        self.total += size
        require_total(self.total, max_bytes=MAX_TOTAL_BYTES)
        return Content(git_mode(mode), sha256, size)

    def _base(self, path: str, entry: BaseEntry) -> tuple[Content | None, bool]:
        """What lies in the lower tree, and whether that is no longer what was pinned."""
        lower = Path(self.pin.lower)
        try:
            if entry.blob is None:
                return self._content(lower, path), facts_of(os.lstat(lower / path)) != entry.facts
            hash_ = hashlib.sha1(usedforsecurity=False) if len(entry.blob) == 40 else hashlib.sha256()
            content = self._content(lower, path, hash_)
        except (FileNotFoundError, NotADirectoryError):
            return None, True
        return content, (content.mode, hash_.hexdigest()) != (entry.mode, entry.blob)


def _require_text(target: bytes) -> None:
    """A link's target stands in a patch as it is, which has to be text."""
    try:
        target.decode("utf-8")
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "a link whose target isn't UTF-8") from None


async def _restore_base(git: Git, pin: BasePin, listing: Listing, blobs: Blobs, change: Change) -> Change:
    """Give a change whose base has moved in the user's tree the pinned bytes, where git has them."""
    entry = listing.get(change.path)
    if not change.moved or entry is None:
        return change
    if entry.blob is None or pin.private_git is None:
        return replace(change, base_lost=True)
    data = await git.run("cat-file", "blob", entry.blob, git_dir=Path(pin.private_git))
    base = Content(entry.mode, blobs.keep(data), len(data))
    return replace(change, base=base)
