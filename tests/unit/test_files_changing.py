"""Edits and patches: only the named lines change; what doesn't fit changes nothing and says why."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from remit.workspaces.keeper import _places
from remit.workspaces.keeper._operations import OPERATIONS
from remit.workspaces.keeper._refusals import OperationRefused

Call = Callable[..., dict[str, object]]


@pytest.fixture
def call(tmp_path: Path) -> Generator[Call]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)

    def run(name: str, **arguments: object) -> dict[str, object]:
        return OPERATIONS[name](fd, arguments)

    yield run
    os.close(fd)


def refused(call: Call, name: str, **arguments: object) -> OperationRefused:
    with pytest.raises(OperationRefused) as caught:
        call(name, **arguments)
    return caught.value


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "b\n", "B\n", b"a\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b", "B\nB2", b"a\r\nB\r\nB2\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\nb\nc", "a\nB\nc", b"a\r\nB\r\nc\r\n"),
        (b"a\nb\r\nc\nd\r\n", "a\nb\nc\nd\n", "a\nb\nX\nd\n", b"a\nb\r\nX\nd\r\n"),
        (b"a\nb\r\nc\n", "b", "B\nB2", b"a\nB\r\nB2\r\nc\n"),
        (b"a\nb\r\nc\n", "c", "C\nC2", b"a\nb\r\nC\nC2\n"),
        (b"a\nb\r\nc\n", "a\nb\nc\n", "c\n", b"c\n"),
        (b"a\nb\r\nc\n", "a\nb\nc\n", "x\na\nb\nc\n", b"x\na\nb\r\nc\n"),
        (b"a\na\r\n", "a\na\n", "a\n", b"a\n"),
        (b"one\rdata\nb\r\nc", "b", "B", b"one\rdata\nB\r\nc"),
        (b"one\rdata\nb\n", "one\rdata", "two\rdata", b"two\rdata\nb\n"),
        (b"x\r\ny\r\n", "x\r\ny", "x\nz", b"x\nz\r\n"),
        (b"a\nb", "b\n", "B\n", b"a\nB"),
        (b"a\r\nb", "a\nb\n", "a\nc\nb\n", b"a\r\nc\r\nb"),
        (b"\xef\xbb\xbfa\nb\n", "a\n", "A\n", b"\xef\xbb\xbfA\nb\n"),
        (b"\xef\xbb\xbfa\r\nb\r\n", "a\nb", "A\nb", b"\xef\xbb\xbfA\r\nb\r\n"),
        (b"caf\xe9\nb\n", "b", "B", b"caf\xe9\nB\n"),
        (b"a\r\r\nb\r\n", "b", "B", b"a\r\r\nB\r\n"),
        (b"a\nb\n", "b\n", "", b"a\n"),
        (b"a\x00b\nc", "c", "d", b"a\x00b\nd"),
        ("x\u2028y\nz\n".encode(), "z", "Z", "x\u2028y\nZ\n".encode()),
    ],
)
def test_files_edit_changes_only_the_named_lines(
    tmp_path: Path, call: Call, before: bytes, old: str, new: str, after: bytes
) -> None:
    """R45: line ends, byte order mark, lone CR, a missing last newline: all other bytes stay."""
    (tmp_path / "file").write_bytes(before)
    assert call("edit_file", relative_path="file", old=old, new=new)["changed"] == ["file"]
    assert (tmp_path / "file").read_bytes() == after


def test_files_edit_takes_no_lone_return_for_a_line_end(tmp_path: Path, call: Call) -> None:
    """R45: a line feed in the old text matches LF and CRLF; a carriage return alone is data."""
    (tmp_path / "file").write_bytes(b"one\rtwo\r\nthree\r\n")
    assert refused(call, "edit_file", relative_path="file", old="one\ntwo", new="x").status == "conflict"
    assert (tmp_path / "file").read_bytes() == b"one\rtwo\r\nthree\r\n"


def test_files_edit_replaces_all_when_told(tmp_path: Path, call: Call) -> None:
    """R45: replace_all takes every place, each with its own line ends."""
    (tmp_path / "file").write_bytes(b"f(x\ny)\nf(x\r\ny)\r\n")
    answer = refused(call, "edit_file", relative_path="file", old="x\ny", new="z")
    assert answer.status == "conflict"
    assert "occurs 2 times, at lines 1, 3" in answer.message
    result = call("edit_file", relative_path="file", old="x\ny", new="x\nz\ny", replace_all=True)
    assert result["content"] == "edited file: replaced 2 at lines 1, 3"
    assert (tmp_path / "file").read_bytes() == b"f(x\nz\ny)\nf(x\r\nz\r\ny)\r\n"


def test_files_edit_refuses_places_that_overlap(tmp_path: Path, call: Call) -> None:
    """R45: an overlap isn't one clear place."""
    (tmp_path / "file").write_text("aXaXa")
    assert refused(call, "edit_file", relative_path="file", old="aXa", new="b").status == "conflict"
    assert (tmp_path / "file").read_text() == "aXaXa"


@pytest.mark.parametrize(
    ("old", "parts"),
    [
        ("def add(a,b):\n    return a+b\n", ["nearest is:", "3| def add(a, b):", "4|     return a + b"]),
        ("def add(a, b):\n\treturn a + b", ["only in white space", "3| def add(a, b):"]),
        ("import  sys", ["only in white space", "1| import sys"]),
        ("def sub(a, b):\n    return a + b", ["nearest is:", "3| def add(a, b):"]),
        ("nothing of the kind whatsoever", ["nothing in the file is like it"]),
        ("\n", ["occurs"]),
    ],
)
def test_files_edit_miss_shows_the_nearest(tmp_path: Path, call: Call, old: str, parts: list[str]) -> None:
    """R56: a miss tells enough for a better second try."""
    text = "import sys\n\ndef add(a, b):\n    return a + b\n\nprint(add(1, 2))\n"
    (tmp_path / "file").write_text(text)
    answer = refused(call, "edit_file", relative_path="file", old=old, new="new")
    assert answer.status == "conflict"
    for part in parts:
        assert part in answer.message
    assert (tmp_path / "file").read_text() == text


def test_files_edit_says_when_it_was_done_already(tmp_path: Path, call: Call) -> None:
    """R56: the same edit a second time is told apart from a wrong one."""
    (tmp_path / "file").write_text("one\ntwo\n")
    call("edit_file", relative_path="file", old="two", new="three")
    assert "there already" in refused(call, "edit_file", relative_path="file", old="two", new="three").message


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ({"old": "", "new": "x"}, "invalid_arguments"),
        ({"old": "x", "new": "x"}, "invalid_arguments"),
        ({"old": "x"}, "invalid_arguments"),
        ({"old": "x", "new": "y" * 100, "max_write_bytes": 50}, "too_large"),
        ({"old": "x", "new": "y", "relative_path": "missing"}, "not_found"),
        ({"old": "x", "new": "y", "replace_all": "yes"}, "invalid_arguments"),
    ],
)
def test_files_edit_refuses(tmp_path: Path, call: Call, arguments: dict[str, object], status: str) -> None:
    """R31, S56: what can't be done is told by its status, and nothing changes."""
    (tmp_path / "file").write_text("x\n")
    assert refused(call, "edit_file", **{"relative_path": "file", **arguments}).status == status
    assert (tmp_path / "file").read_text() == "x\n"


def test_files_edit_is_quick_on_hard_input(tmp_path: Path, call: Call) -> None:
    """R55: neither repetition nor size makes an edit take long."""
    (tmp_path / "same").write_text("a" * 1_000_000)
    (tmp_path / "lines").write_text("".join(f"line {number} with some words\n" for number in range(30_000)))
    started = time.monotonic()
    assert refused(call, "edit_file", relative_path="same", old="a" * 300_000, new="b").status == "conflict"
    assert (
        refused(call, "edit_file", relative_path="same", old="a" * 300_000 + "b", new="b").status
        == "conflict"
    )
    wanted = "line with words that are none\n" * 50
    assert refused(call, "edit_file", relative_path="lines", old=wanted, new="b").status == "conflict"
    assert time.monotonic() - started < 10


def test_files_patch_does_all_kinds_of_change(tmp_path: Path, call: Call) -> None:
    """S80: add, update, move and delete in one patch; modes and other bytes stay."""
    (tmp_path / "a.py").write_text("import os\n\ndef one():\n    return 1\n\ndef two():\n    return 2\n")
    (tmp_path / "a.py").chmod(0o755)
    (tmp_path / "old.txt").write_text("first\nlast\n")
    (tmp_path / "old.txt").chmod(0o600)
    (tmp_path / "gone").write_text("x")
    result = call(
        "apply_patch",
        patch=patch(
            "*** Add File: new/deep.txt",
            "+one",
            "+",
            "+two",
            "*** Update File: a.py",
            "@@ def two():",
            "-    return 2",
            "+    # more",
            "+    return 3",
            "*** Update File: old.txt",
            "*** Move to: moved/new.txt",
            "@@",
            " first",
            "-last",
            "+end",
            "*** Delete File: gone",
        ),
    )
    assert result["changed"] == ["new/deep.txt", "a.py", "old.txt", "moved/new.txt", "gone"]
    assert result["content"] == (
        "added new/deep.txt\nchanged a.py\nmoved old.txt to moved/new.txt\ndeleted gone"
    )
    assert (tmp_path / "new" / "deep.txt").read_text() == "one\n\ntwo\n"
    assert (tmp_path / "a.py").read_text().endswith("def two():\n    # more\n    return 3\n")
    assert (tmp_path / "a.py").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "moved" / "new.txt").read_text() == "first\nend\n"
    assert (tmp_path / "moved" / "new.txt").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "moved", "new"]


@pytest.mark.parametrize(
    ("before", "hunk", "after"),
    [
        (b"a\r\nb\r\nc\r\n", [" a", "-b", "+B", "+B2", " c"], b"a\r\nB\r\nB2\r\nc\r\n"),
        (b"a\nb\r\nc\n", ["-b", "+B"], b"a\nB\r\nc\n"),
        (b"a\nb\r\nc\n", [" c", "+d"], b"a\nb\r\nc\nd\n"),
        (b"a\nb", ["-b", "+B"], b"a\nB"),
        (b"a\nb", ["-b", "+B", "+C"], b"a\nB\nC"),
        (b"a\nb", [" b", "+c"], b"a\nb\nc\n"),
        (b"a\r\nb", [" b", "+c"], b"a\r\nb\r\nc\r\n"),
        (b"\xef\xbb\xbfa\nb\n", ["-b", "+B"], b"\xef\xbb\xbfa\nB\n"),
        (b"caf\xe9\nb\nlone\rcr\n", ["-b", "+B"], b"caf\xe9\nB\nlone\rcr\n"),
        (b"a  \n  b\nc\n", [" a", "-b", "+B", " c"], b"a  \nB\nc\n"),
        ("say \u201chi\u201d\nb\n".encode(), [' say "hi"', "-b", "+B"], "say \u201chi\u201d\nB\n".encode()),
        (b"a\n\nb\n", [" a", "", "-b", "+B"], b"a\n\nB\n"),
        (b"a\nb\n", ["@@ -1,2 +1,2 @@", " a", "-b", "+B"], b"a\nB\n"),
        (b"x\na\nx\na\n", ["-a", "+A", "*** End of File"], b"x\na\nx\nA\n"),
        (b"f\na\ng\na\n", ["@@ g", "-a", "+A"], b"f\na\ng\nA\n"),
        (b"c\nf\na\nd\nf\na\n", ["@@ d", "@@ f", "-a", "+A"], b"c\nf\na\nd\nf\nA\n"),
        (b"g\na\n", ["@@ g", " g", "-a", "+A"], b"g\nA\n"),
        (b"a\n", ["+b"], b"a\nb\n"),
        (b"a\nb\n", ["@@ a", "+new"], b"a\nnew\nb\n"),
        (b"a\nb\nc\nd\n", ["-a", "+A", "@@", "-d", "+D"], b"A\nb\nc\nD\n"),
        (b"", ["+b"], b"b\n"),
        (b"a\nb\n", ["-a", "-b"], b""),
        (b"- x\n+ y\n", ["-- x", "+- z"], b"- z\n+ y\n"),
    ],
)
def test_files_patch_keeps_what_it_does_not_name(
    tmp_path: Path, call: Call, before: bytes, hunk: list[str], after: bytes
) -> None:
    """R45: context keeps its bytes, new lines end like those around them."""
    (tmp_path / "file").write_bytes(before)
    call("apply_patch", patch=patch("*** Update File: file", *hunk))
    assert (tmp_path / "file").read_bytes() == after


@pytest.mark.parametrize(
    ("lines", "status", "part"),
    [
        (["*** Update File: a", "-nope", "+x"], "conflict", "nearest|nothing in the file"),
        (["*** Update File: a", "@@ nowhere", "-two", "+x"], "conflict", "'nowhere'"),
        (["*** Update File: a", "-two", "+x", "@@", "-one", "+x"], "conflict", "'one'"),
        (["*** Update File: missing", "-a", "+x"], "not_found", "missing"),
        (["*** Delete File: missing"], "not_found", "missing"),
        (["*** Add File: a", "+x"], "conflict", "exists already"),
        (["*** Update File: a", "*** Move to: b", "-one", "+x"], "conflict", "b: exists already"),
        (["*** Update File: a", "*** Move to: a", "-one", "+x"], "invalid_arguments", "there already"),
        (["*** Add File: ../out", "+x"], "denied", ".."),
        (["*** Add File: /out", "+x"], "denied", "absolute"),
        (["*** Add File: .git/hooks/x", "+x"], "denied", ".git"),
        (["*** Delete File: link"], "denied", "link to a"),
        (["*** Update File: out", "-x", "+y"], "denied", "leads out"),
        (["*** Update File: pipe", "-x", "+y"], "denied", "named pipe"),
        (["*** Update File: folder", "-x", "+y"], "invalid_arguments", "folder"),
        (["*** Update File: a"], "invalid_arguments", "changes nothing"),
        (["*** Add File: c", "no plus"], "invalid_arguments", "line 5"),
        (["*** Update File: a", "?what"], "invalid_arguments", "line 5"),
        (["*** Add File: c", "+" + "x" * 2000], "too_large", "2001 bytes"),
        (["*** Add File: a/b", "+x"], "not_found", "folder"),
    ],
)
def test_files_patch_is_all_or_nothing(
    tmp_path: Path, call: Call, lines: list[str], status: str, part: str
) -> None:
    """S55, R34, R45: one part that doesn't fit, and nothing changes, not even a folder."""
    import re

    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("bee\n")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    answer = refused(
        call, "apply_patch", patch=patch("*** Add File: new/x", "+x", *lines), max_write_bytes=1000
    )
    assert answer.status == status
    assert re.search(part, answer.message), answer.message
    assert (tmp_path / "a").read_text() == "one\ntwo\n"
    left = [path for path in sorted(str(path) for path in tmp_path.rglob("*")) if not path.endswith("/new")]
    assert left == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "*** Begin Patch\n*** End Patch",
        "*** Begin Patch",
        "*** Begin Patch\n*** Add File: a\n+x\n",
        "*** Begin Patch\nx\n*** End Patch",
        "*** Begin Patch\n*** Delete File: a\nx\n*** End Patch",
    ],
)
def test_files_patch_refuses_what_is_no_patch(call: Call, text: str) -> None:
    """R31: text that isn't a patch is told, with its line."""
    assert refused(call, "apply_patch", patch=text).status == "invalid_arguments"


def test_files_patch_takes_windows_line_ends(tmp_path: Path, call: Call) -> None:
    """R45: a patch written with CRLF is the same patch."""
    (tmp_path / "file").write_bytes(b"a\nb\r\n")
    call("apply_patch", patch=patch("*** Update File: file", " a", "-b", "+B").replace("\n", "\r\n"))
    assert (tmp_path / "file").read_bytes() == b"a\nB\r\n"


def test_files_patch_changes_a_file_twice(tmp_path: Path, call: Call) -> None:
    """S80: later parts see what earlier ones did."""
    (tmp_path / "file").write_text("a\n")
    first = ["*** Update File: file", "-a", "+b"]
    second = ["*** Update File: ./file", "-b", "+c", "*** Delete File: file", "*** Add File: file", "+d"]
    assert call("apply_patch", patch=patch(*first, *second))["changed"] == ["file"]
    assert (tmp_path / "file").read_text() == "d\n"


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_files_patch_is_taken_back_when_a_step_fails(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    """R60: a failure between the files puts back those already changed."""
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode() + b"\r\n")
        (tmp_path / name).chmod(0o640)
    real, count = _places.put_staged, 0

    def failing(place: _places.Place, staged: str) -> None:
        nonlocal count
        count += 1
        if count == broken + 1:
            raise OSError(28, "No space left on device")
        real(place, staged)

    monkeypatch.setattr("remit.workspaces.keeper._apply_patch.put_staged", failing)
    lines = [line for name in ("a", "b") for line in (f"*** Update File: {name}", f"-{name}", "+x")]
    answer = refused(call, "apply_patch", patch=patch(*lines, "*** Delete File: c", "*** Add File: d", "+x"))
    assert answer.status == "failed"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        name: name.encode() + b"\r\n" for name in ("a", "b", "c")
    }
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}


def test_files_patch_bounds_the_number_of_files(call: Call) -> None:
    """S56: a patch touches a bounded number of files."""
    lines = [line for number in range(201) for line in (f"*** Add File: f{number}", "+x")]
    assert "200 files" in refused(call, "apply_patch", patch=patch(*lines)).message
