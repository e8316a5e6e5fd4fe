"""What is left out of listings is what git leaves out."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.workspaces.keeper._walking import Tally, walk

GIT = shutil.which("git")
NAMES = st.sampled_from(["a", "b", "a.py", "b.py", "build", "keep", "x y", "#c", "!d", "a[b]"])
FOLDERS = st.lists(st.sampled_from(["a", "b", "build", "src"]), max_size=3).map("/".join)
RULES = st.sampled_from(
    [
        "a",
        "/a",
        "a/",
        "*.py",
        "!a.py",
        "build/",
        "!build/keep",
        "src/**",
        "**/a",
        "a/**/b",
        "/*",
        "!/src",
        "src/a",
        "/src/*",
        "!/src/a",
        "# a",
        "\\#c",
        "\\!d",
        "a ",
        "x\\ y",
        "x y  ",
        "[ab]",
        "[!a]",
        "[^a].py",
        "**",
        "*/a",
        "a/*",
        "!keep",
        "",
        "/",
        "a\\[b\\]",
        "?",
        "**/build/**",
        "src/**/a.py",
        "!*/",
        "*",
        "\\a",
        "src/",
        "!src/a/",
    ]
)


def git_files(root: Path) -> set[str]:
    """The files that git would add."""
    assert GIT is not None
    command = [GIT, "-C", str(root), "ls-files", "-z", "--others", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=20)
    return {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}


@pytest.mark.skipif(GIT is None, reason="git isn't installed")
@settings(max_examples=120)
@given(
    st.lists(st.tuples(FOLDERS, NAMES), min_size=1, max_size=12),
    st.lists(RULES, max_size=6),
    st.tuples(FOLDERS, st.lists(RULES, max_size=3)),
)
def test_files_ignored_are_those_that_git_ignores(
    files: list[tuple[str, str]], rules: list[str], inner: tuple[str, list[str]]
) -> None:
    """S23: rules, negations, anchors and nested files mean what they mean to git."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for parent, name in files:
            path = root / parent / name
            if not any(part.is_file() for part in path.parents if part != path) and not path.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("x")
        (root / ".gitignore").write_text("\n".join(rules) + "\n")
        if (root / inner[0]).is_dir() and inner[0]:
            (root / inner[0] / ".gitignore").write_text("\r\n".join(inner[1]) + "\r\n")
        subprocess.run([str(GIT), "init", "-q", str(root)], check=True, timeout=20)
        root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            walked = {"/".join(entry.parts) for entry, _ in walk(root_fd, (), Tally(timeout_ms=10_000))}
        finally:
            os.close(root_fd)
        assert walked == git_files(root)
