"""What a run changed: every path with its content before and after, as bytes that are kept."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from remit.workspaces.keeper._tree import Hash, TreeTooLarge, copy_regular, show_path

__all__ = ["Blobs", "Change", "Changes", "Content", "Skipped", "require_total", "shown", "sort_changes"]

ChangeKind = Literal["added", "modified", "deleted", "type", "mode"]


@dataclass(frozen=True, slots=True)
class Content:
    """What lies at a path."""

    mode: str
    """`100644`, `100755`, or `120000` for a link, whose target is its content."""
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs from the base."""

    path: str
    base: Content | None
    """None: it wasn't there."""
    result: Content | None
    """None: it is gone."""
    moved: bool = False
    """The user's tree no longer held the base's bytes when this was looked at."""
    base_lost: bool = False
    """And nothing else holds them: `base` is what lay there then, so this can't be applied."""

    @property
    def kind(self) -> ChangeKind:
        """What happened to it."""
        if self.base is None:
            return "added"
        if self.result is None:
            return "deleted"
        if (self.base.mode == "120000") != (self.result.mode == "120000"):
            return "type"
        return "modified" if self.base.sha256 != self.result.sha256 else "mode"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that changed and isn't part of the patch."""

    path: str
    """As shown to people."""
    why: str


@dataclass(frozen=True, slots=True)
class Changes:
    """All that a checkout holds against its base."""

    changes: tuple[Change, ...] = ()
    """Sorted by the bytes of their paths."""
    skipped: tuple[Skipped, ...] = ()
    ignored: int = 0
    """How many changed files git ignores."""
    ignored_names: tuple[str, ...] = ()
    """The first of them, as shown to people."""

    @property
    def content_hash(self) -> str:
        """What a review is bound to: every path with its mode and bytes, before and after."""
        digest = hashlib.sha256(b"remit changes 1\0")
        for change in self.changes:
            digest.update(os.fsencode(change.path) + b"\0")
            for content in (change.base, change.result):
                digest.update(f"{content.mode} {content.sha256}\0".encode() if content else b"-\0")
        return digest.hexdigest()

    def to_json(self) -> str:
        """The changes as one line of JSON; names that aren't UTF-8 come back as they were."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Changes:
        """The inverse of `to_json`."""
        value = json.loads(text)
        return cls(
            changes=tuple(_change(item) for item in value["changes"]),
            skipped=tuple(Skipped(**item) for item in value["skipped"]),
            ignored=value["ignored"],
            ignored_names=tuple(value["ignored_names"]),
        )


def _change(item: dict[str, Any]) -> Change:
    base, result = (Content(**item[key]) if item[key] else None for key in ("base", "result"))
    return Change(
        path=item["path"],
        base=base,
        result=result,
        moved=item["moved"],
        base_lost=item.get("base_lost", False),
    )


def sort_changes(changes: Iterable[Change]) -> tuple[Change, ...]:
    """In the order that hashes and patches use."""
    return tuple(sorted(changes, key=lambda change: os.fsencode(change.path)))


class Blobs:
    """Bytes kept by their SHA-256, in one folder, which is made when the first are kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self) -> None:
        """Make the folder, where it isn't there yet."""
        for folder in (self._folder.parent, self._folder):  # each with this mode, not the last alone
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, sha256: str) -> Path:
        """Where the bytes lie."""
        return self._folder / sha256

    def read(self, content: Content) -> bytes:
        """The bytes of some content."""
        return self.path(content.sha256).read_bytes()

    def keep(self, data: bytes) -> str:
        """Keep some bytes; returns their hash."""
        sha256 = hashlib.sha256(data).hexdigest()
        if not self.path(sha256).exists():
            unfinished = self._unfinished()
            unfinished.write_bytes(data)
            unfinished.rename(self.path(sha256))
        return sha256

    def keep_file(self, parent_fd: int, name: str, *hashes: Hash, max_bytes: int) -> tuple[str, int, int]:
        """Keep a regular file's bytes; returns their hash, size and the file's mode.

        Raises:
            OSError: It isn't there, can't be read, or isn't a regular file.
            TreeTooLarge: It is larger than `max_bytes`.
        """
        unfinished = self._unfinished()
        target = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            sha256, size, mode = copy_regular(parent_fd, name, target, *hashes, max_bytes=max_bytes)
        except BaseException:
            unfinished.unlink()
            raise
        finally:
            os.close(target)
        unfinished.rename(self.path(sha256))
        return sha256, size, mode

    def _unfinished(self) -> Path:
        self.make()
        return self._folder / f"unfinished-{secrets.token_hex(8)}"


def shown(changes: Iterable[Change]) -> tuple[str, ...]:
    """Their paths, for people."""
    return tuple(show_path(change.path) for change in changes)


def require_total(total: int, *, max_bytes: int) -> None:
    """Refuse more bytes than a patch may hold."""
    if total > max_bytes:
        raise TreeTooLarge(f"the changed files hold more than {max_bytes >> 20} MiB")
