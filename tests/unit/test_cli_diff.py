"""Patches as they are shown."""

from __future__ import annotations

import subprocess
from pathlib import Path

from git_repository import git, write
from remit.cli._diff import coloured, files_of, stat_lines


def patch_of(folder: Path, before: dict[str, str | bytes], after: dict[str, str | bytes]) -> str:
    """What git says of a change."""
    write(folder, before)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "before")
    for name in set(before) - set(after):
        (folder / name).unlink()
    write(folder, after)
    git(folder, "add", "-A")
    return git(folder, "diff", "--cached", "--binary", "--no-renames") + "\n"


def test_the_numbers_are_those_of_git(tmp_path: Path) -> None:
    """Files, insertions and deletions, also where lines look like headers."""
    before: dict[str, str | bytes] = {
        "a.txt": "1\n2\n3\n",
        "gone.txt": "x\n",
        "sub/with space.txt": "-- a\n++ b\n",
        "bytes.bin": b"\0\1\2",
    }
    after: dict[str, str | bytes] = {
        "a.txt": "1\ntwo\n3\n4\n",
        "new.txt": "diff --git a/x b/x\n@@ -1 +1 @@\n",
        "sub/with space.txt": "++ b\nno end",
        "bytes.bin": b"\0\1\3",
    }
    found = files_of(patch_of(tmp_path, before, after))
    said = subprocess.run(
        ["git", "diff", "--cached", "--numstat", "--no-renames"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    expected = {tuple(line.split("\t")) for line in said.stdout.splitlines()}
    shown = {
        ("-", "-", change.path)
        if change.is_binary
        else (str(change.insertions), str(change.deletions), change.path)
        for change in found
    }
    assert shown == expected


def test_a_moved_file_says_whence(tmp_path: Path) -> None:
    """A file that was moved is shown with both of its names: the old one is gone, and that must be seen."""
    write(tmp_path, {"old name.txt": "1\n2\n3\n4\n5\n"})
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "before")
    git(tmp_path, "mv", "old name.txt", "new.txt")
    write(tmp_path, {"new.txt": "1\n2\n3\n4\nfive\n", "kept.txt": "rename from x\n"})
    git(tmp_path, "add", "-A")
    found = files_of(git(tmp_path, "diff", "--cached", "--binary", "--find-renames") + "\n")
    assert [(change.path, change.old_path) for change in found] == [
        ("kept.txt", None),
        ("new.txt", "old name.txt"),
    ]
    assert [line.plain.split("  ")[0] for line in stat_lines(found, width=80)] == [
        "kept.txt",
        "old name.txt → new.txt",
    ]


def test_a_patch_on_a_terminal_holds_no_escape() -> None:
    """R49: what stands in a file can't paint the terminal."""
    patch = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-\x1b[2J\n+\x1b]0;t\x07b\n"
    assert "\x1b" not in coloured(patch).plain
    (line,) = stat_lines(files_of(patch), width=80)
    assert "+1" in line.plain
