"""Listing files and searching in them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from remit.workspaces.keeper._operations import OPERATIONS
from remit.workspaces.keeper._patterns import Glob, PatternTooLarge, expand_braces
from remit.workspaces.keeper._refusals import OperationRefused
from remit.workspaces.keeper._search import MAX_FILE_BYTES
from remit.workspaces.keeper._tree import record_tree
from remit.workspaces.keeper._unfinished import unfinished_name

Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path) -> Generator[Call]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)

    def run(name: str, **arguments: object) -> str:
        return str(OPERATIONS[name](fd, arguments)["content"])

    yield run
    os.close(fd)


def lay_out(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"content of {path}\n")


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/deep/a.py", True),
        ("*.py", "a.pyc", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/b/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/b/c/a.py", True),
        ("**/test_*.py", "test_a.py", True),
        ("src/**", "src/b/c", True),
        ("src/", "src/b/c", True),
        ("./src/a.py", "src/a.py", True),
        ("/a.py", "a.py", True),
        ("/a.py", "b/a.py", False),
        ("*.{ts,tsx}", "x/a.tsx", True),
        ("*.{ts,tsx}", "x/a.js", False),
        ("{a,b}/{c,d}", "b/d", True),
        ("[!a]*", "abc", False),
        ("[^a]*", "bbc", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("**", "any/thing", True),
        (".*", ".hidden", True),
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
        ("[", "[", True),
    ],
)
def test_files_glob_matches_part_by_part(pattern: str, path: str, matches: bool) -> None:
    """S80: a pattern means what its writer expects."""
    assert Glob(pattern).matches(path.split("/")) is matches


def test_files_glob_can_not_take_long() -> None:
    """R55: no pattern makes matching explode."""
    started = time.monotonic()
    assert not Glob("*a" * 100 + "b").matches(["a" * 250])
    assert not Glob("/".join(["**", "a"] * 100) + "/b").matches(["a"] * 200)
    assert time.monotonic() - started < 2
    with pytest.raises(PatternTooLarge):
        expand_braces("{a,b}" * 10)
    with pytest.raises(PatternTooLarge):
        expand_braces("x" * 1025)


def test_files_list_is_sorted_and_skips_git(tmp_path: Path, call: Call) -> None:
    """S23: the tree as sorted paths from the root, without `.git` and what git ignores."""
    lay_out(
        tmp_path,
        "b.py",
        "a/z.py",
        "a/b/c.py",
        ".git/config",
        "node_modules/x/y.js",
        ".env",
        "sub/.git/x",
        "sub/a",
    )
    (tmp_path / ".gitignore").write_text("node_modules/\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    assert call("list_files").splitlines() == [
        ".env",
        ".gitignore",
        "a/b/c.py",
        "a/z.py",
        "b.py",
        "empty/ (empty)",
        "link -> a",
        "pipe (not a regular file)",
        "sub/a",
        "[left out: 1 names that git ignores; name a folder to see them]",
    ]
    assert call("list_files", relative_path="a") == "a/b/c.py\na/z.py\n"
    assert call("list_files", relative_path="link") == "link/b/c.py\nlink/z.py\n"
    assert call("list_files", relative_path="a/z.py") == "a/z.py\n"
    assert call("list_files", relative_path="node_modules") == "node_modules/x/y.js\n"
    assert call("list_files", glob="*.py").splitlines()[:-1] == ["a/b/c.py", "a/z.py", "b.py"]
    assert call("list_files", relative_path="a", glob="b/*") == "a/b/c.py\n"
    assert call("list_files", relative_path="a", glob="*.js") == "[nothing found]\n"


def test_files_list_shows_a_large_tree_coarsely(tmp_path: Path, call: Call) -> None:
    """S56: what doesn't fit stays closed, near folders are open, and the cut is marked."""
    lay_out(tmp_path, *(f"big/{number:04}" for number in range(1200)), "small/one", "small/deep/two", "top")
    lines = call("list_files").splitlines()
    assert lines == [
        "big/",
        "small/deep/two",
        "small/one",
        "top",
        "[cut: more than can be shown; name a folder, or a glob]",
    ]
    below = call("list_files", relative_path="big").splitlines()
    assert below[0] == "big/0000"
    assert below[-1].startswith("[cut")
    assert len(below) == 1001 + (below[-2] == "big/1000")
    small = call("list_files", relative_path="big", max_shown_bytes=612).splitlines()
    assert (len(small), small[-1][:4]) == (12, "[cut")
    assert call("list_files", glob="*", max_shown_bytes=612).splitlines()[-1].startswith("[cut")


def test_files_list_escapes_odd_names(tmp_path: Path, call: Call) -> None:
    """R41, R49: a name with control characters or foreign bytes stays on its line."""
    (tmp_path / "a\nb\x1b[31m").write_text("")
    (tmp_path / os.fsdecode(b"caf\xe9")).write_text("")
    assert call("list_files").splitlines() == ["a\\nb\\x1b[31m", "caf\\xe9"]


@pytest.mark.parametrize("name", ["list_files", "search"])
def test_files_finding_stays_inside(tmp_path: Path, call: Call, name: str) -> None:
    """R34, S55: neither a path nor a link leads out; links to folders aren't followed."""
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "loop").symlink_to(".")
    for path in ("/etc", "..", "out", "out/ssl"):
        with pytest.raises(OperationRefused) as caught:
            call(name, relative_path=path, pattern="root")
        assert caught.value.status == "denied"
    with pytest.raises(OperationRefused) as caught:
        call(name, relative_path="missing", pattern="root")
    assert caught.value.status == "not_found"
    assert "passwd:" not in call(name, pattern="root")


def test_files_search_names_path_line_and_text(tmp_path: Path, call: Call) -> None:
    """S23: matches by path and line, sorted, whatever the line ends."""
    (tmp_path / "a.txt").write_bytes("one\r\ntwo needle\r\nthree\u2028needle\r\n".encode())
    lay_out(tmp_path, "b/needle.txt", ".git/needle")
    (tmp_path / "b" / "needle.txt").write_text("x\nneedle")
    assert call("search", pattern="needle").splitlines() == [
        "a.txt:2: two needle",
        "a.txt:3: three\\u2028needle",
        "b/needle.txt:2: needle",
    ]
    assert call("search", pattern="needle", glob="b/*") == "b/needle.txt:2: needle\n"
    assert call("search", pattern="needle", relative_path="b/needle.txt") == "b/needle.txt:2: needle\n"
    assert call("search", pattern="^needle$") == "b/needle.txt:2: needle\n"
    assert call("search", pattern="(?i)NEEDLE", relative_path="b") == "b/needle.txt:2: needle\n"
    assert call("search", pattern="nothing") == "[no match]\n"


def test_files_search_finds_what_lines_make_together(tmp_path: Path, call: Call) -> None:
    """S23: an expression over a line end is found and told at its first line."""
    (tmp_path / "a").write_text("zero\nfirst(\n  second)\n")
    assert call("search", pattern=r"first\(\s+second") == "a:2: first(\n"


def test_files_search_skips_what_is_not_text(tmp_path: Path, call: Call) -> None:
    """R48: binary files, pipes and sparse giants are skipped at once, and counted."""
    (tmp_path / "binary").write_bytes(b"\0needle")
    with (tmp_path / "giant").open("wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "latin").write_bytes(b"caf\xe9 needle\n")
    (tmp_path / "long").write_bytes(b"needle\n" + b"x\n" * (MAX_FILE_BYTES // 2))  # not searched by half
    started = time.monotonic()
    assert call("search", pattern="needle").splitlines() == [
        "latin:1: caf\ufffd needle",
        "[left out: 3 binary, large or unreadable files]",
    ]
    assert time.monotonic() - started < 30
    for path in ("pipe", "link"):
        with pytest.raises(OperationRefused) as caught:
            call("search", pattern="needle", relative_path=path)
        assert caught.value.status == "denied"


def test_files_search_is_bounded(tmp_path: Path, call: Call) -> None:
    """S56, R42: matches and lines are cut, around the match, and it is said."""
    (tmp_path / "many").write_text("needle\n" * 500)
    (tmp_path / "wide").write_text("x" * 5000 + "needle" + "y" * 5000)
    lines = call("search", pattern="needle", relative_path="many").splitlines()
    assert (len(lines), lines[-1]) == (201, "[cut after 200 matches; name a folder or a glob]")
    wide = call("search", pattern="needle", relative_path="wide")
    assert "...x" in wide
    assert "needley" in wide
    assert len(wide) < 350
    assert len(call("search", pattern="needle", max_shown_bytes=1024).encode()) <= 1024


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_files_search_ends_in_time(tmp_path: Path, call: Call, pattern: str) -> None:
    """R55: a regular expression that never ends is ended, and what was found before is told."""
    (tmp_path / "a").write_text("aA b\na\n")
    (tmp_path / "z").write_text("a" * 5000 + "!\n")
    started = time.monotonic()
    content = call("search", pattern=pattern, timeout_ms=300)
    assert time.monotonic() - started < 3
    assert content.endswith(
        "[cut: the search took too long; name a folder or a glob, or a simpler pattern]\n"
    )


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "*", "a{2,1}", "(?P<x>a)(?P<x>b)", "", "x" * 2001, "a{99999999999}"]
)
def test_files_search_refuses_a_broken_pattern(call: Call, pattern: str) -> None:
    """R31: what isn't a regular expression is told, not raised."""
    with pytest.raises(OperationRefused) as caught:
        call("search", pattern=pattern)
    assert caught.value.status == "invalid_arguments"


def test_files_search_compiling_ends_in_time(call: Call, tmp_path: Path) -> None:
    """R55: neither does building an expression take the process."""
    lay_out(tmp_path, "a")
    started = time.monotonic()
    pattern = "(?:" * 80 + "a" + "{1,99})" * 80
    with contextlib.suppress(OperationRefused):
        call("search", pattern=pattern, timeout_ms=500)
    assert time.monotonic() - started < 5


def test_files_killed_write_leaves_nothing_behind(tmp_path: Path, call: Call) -> None:
    """R58, R60: what a write that was killed left beside its place is in no listing and no search; a patch
    counts it as ignored, so that nothing can be hidden under such a name.
    """
    name = unfinished_name()
    for other in (name, ".remit-write-mine", "whole"):
        (tmp_path / other).write_text("half\n")
    assert call("list_files") == ".remit-write-mine\nwhole\n"
    assert call("search", pattern="half") == ".remit-write-mine:1: half\nwhole:1: half\n"
    assert sorted(record_tree(str(tmp_path), max_entries=100)) == sorted([name, ".remit-write-mine", "whole"])
