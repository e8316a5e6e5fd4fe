"""A patch turns its base into its result, byte for byte, under git's own hands."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from hypothesis import example, given, settings

from remit.workspaces._base import BasePin
from remit.workspaces._changes import Blobs, Changes
from remit.workspaces._collect import collect_changes
from remit.workspaces._git import Git
from remit.workspaces._patch import Patch, PatchFolders, PathCounts, write_patch
from remit.workspaces._pinning import Bases
from remit.workspaces.keeper._tree import record_tree, scan_recorded
from tree_model import Tree, copy_tree, lay_out, pairs, read_back


async def patch_between(base: Tree, result: Tree, folder: Path) -> tuple[Path, Patch, Changes, BasePin]:
    """Lay the base out, pin it, change a copy of it, and write the patch."""
    lower = lay_out(base, folder / "base")
    (folder / "home").mkdir()
    bases = Bases(folder / "data", environment={"HOME": str(folder / "home")})
    pin = await bases.pin(lower)
    listing = await bases.list_base(pin)
    copied = copy_tree(lower, folder / "copied")
    facts = record_tree(str(copied), max_entries=1000)
    lay_out(result, copied)
    scan = scan_recorded(str(copied), facts, max_entries=1000)
    blobs = Blobs(folder / "blobs")
    changes = await collect_changes(
        bases.git, pin=pin, listing=listing, scan=scan, result=copied, blobs=blobs
    )
    patch = await write_patch(Git.find(), changes.changes, blobs, PatchFolders(folder / "patches"))
    return lower, patch, changes, pin


def git_apply(folder: Path, patch: bytes, *options: str) -> None:
    """Apply a patch as a user does, outside any repository."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    command = ["git", "apply", "--whitespace=nowarn", *options, "-"]
    done = subprocess.run(
        command, cwd=folder, input=patch, capture_output=True, env=environment, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace") + patch.decode("utf-8", "replace")


def counted_by_git(folder: Path, patch: bytes) -> dict[str, PathCounts]:
    """What git itself says that a patch does."""
    command = ["git", "apply", "--numstat", "-z", "--allow-empty", "-"]
    done = subprocess.run(command, cwd=folder, input=patch, capture_output=True, check=True, timeout=60)
    counts: dict[str, PathCounts] = {}
    for record in done.stdout.split(b"\0"):
        if record:
            insertions, deletions, name = record.split(b"\t", 2)
            path = os.fsdecode(name)
            earlier = counts.get(path, PathCounts())
            found = (0, 0) if insertions == b"-" else (int(insertions), int(deletions))
            counts[path] = PathCounts(
                earlier.insertions + found[0],
                earlier.deletions + found[1],
                earlier.binary or insertions == b"-",
            )
    return counts


@settings(max_examples=60)
@given(pair=pairs())
@example(pair=({"a": ("100644", b"x")}, {"a/b": ("100644", b"x")}))
@example(pair=({"a/b": ("100644", b"x")}, {"a": ("120000", b"x")}))
@example(pair=({"a": ("100644", b"one\r\ntwo")}, {"a": ("100755", b"one\ntwo")}))
@example(pair=({"a": ("120000", b"x")}, {"a": ("100644", b"x")}))
@example(
    pair=({"a*[b]?": ("100644", b"x\xff\n")}, {"a*[b]?": ("100644", b"y\xff\n"), "axb": ("100644", b"y\n")})
)
@example(pair=({"n": ("100644", b"x\n" * 9000 + b"\0")}, {"n": ("100644", b"y\n" + b"x\n" * 9000 + b"\0")}))
@example(pair=({'\\ "!': ("100644", b"\xff")}, {'\\ "!': ("100755", b"\xfe"), "!x": ("100644", b"\xff\n")}))
@example(pair=({"a": ("100644", b""), "b": ("100644", b"")}, {"c": ("100755", b"")}))
def test_a_patch_applies_exactly(pair: tuple[Tree, Tree]) -> None:
    """R45: line ends, last lines, binaries, modes, links, renames and odd names come out exactly."""
    import asyncio

    base, result = pair
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lower, patch, changes, _ = asyncio.run(patch_between(base, result, folder))
        assert {change.path for change in changes.changes} == {
            path for path in base.keys() | result.keys() if base.get(path) != result.get(path)
        }
        assert not changes.skipped
        assert b"\0" not in patch.text
        patch.text.decode("utf-8")
        assert (patch.text == b"") == (base == result)
        assert patch.paths == counted_by_git(lower, patch.text)
        if patch.text:
            git_apply(lower, patch.text)
        assert read_back(lower) == result
        if patch.text:
            git_apply(lower, patch.text, "--reverse")
        assert read_back(lower) == base


@settings(max_examples=60)
@given(pair=pairs())
def test_the_hash_stands_for_the_content(pair: tuple[Tree, Tree]) -> None:
    """R83: what a review is bound to is the same for the same changes, and survives storage."""
    import asyncio

    base, result = pair
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as other:
        _, patch, first, _ = asyncio.run(patch_between(base, result, Path(name)))
        _, again, second, _ = asyncio.run(patch_between(base, result, Path(other)))
    assert first.content_hash == second.content_hash
    assert patch.text == again.text
    assert Changes.from_json(first.to_json()) == first
    if first.changes:
        assert Changes(first.changes[1:]).content_hash != first.content_hash
