"""Whatever a file's lines end with, a change leaves every line alone that it doesn't name."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import assume, given
from hypothesis import strategies as st

from remit.workspaces.keeper._edit import edit_file
from remit.workspaces.keeper._line_ends import adapt_ends, split_lines
from remit.workspaces.keeper._operations import OPERATIONS

BODIES = st.binary(max_size=8).map(lambda data: data.replace(b"\n", b"").rstrip(b"\r"))
ENDS = st.sampled_from([b"\n", b"\r\n"])
FILES = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf"]), st.lists(st.tuples(BODIES, ENDS), max_size=8), st.booleans()
)
NEW_LINES = st.lists(st.sampled_from(["new", "other", "", "  in"]), min_size=1, max_size=4)


def changed(operation: str, data: bytes, **arguments: object) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(data)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            OPERATIONS[operation](fd, arguments)
        finally:
            os.close(fd)
        assert os.listdir(folder) == ["file"]
        return path.read_bytes()


@st.composite
def marked_files(draw: st.DrawFn) -> tuple[bytes, bytes, bytes, bool]:
    """What comes before two marked lines, these, what comes after, and whether the last line has an end."""
    mark, lines, last_end = draw(FILES)
    at = draw(st.integers(0, len(lines)))
    ends = draw(ENDS), draw(ENDS)
    before = mark + b"".join(body + end for body, end in lines[:at])
    after = b"".join(body + end for body, end in lines[at:])
    middle = b"needle one" + ends[0] + b"needle two" + ends[1]
    if not last_end:
        if after:
            after = after.removesuffix(b"\n").removesuffix(b"\r")
        else:
            middle = middle.removesuffix(b"\n").removesuffix(b"\r")
    assume(b"needle" not in before + after)
    return before, middle, after, last_end


@given(marked_files(), NEW_LINES)
def test_files_edit_leaves_the_rest_alone(file: tuple[bytes, bytes, bytes, bool], new: list[str]) -> None:
    """R45: random bytes around, random ends, LF-only text: only the named lines change."""
    before, middle, after, _ = file
    text = "\n".join(new)
    result = changed(
        "edit_file", before + middle + after, relative_path="file", old="needle one\nneedle two", new=text
    )
    assert result.startswith(before)
    rest = middle[middle.index(b"needle two") + len(b"needle two") :] + after
    assert result.endswith(rest)
    inner = result[len(before) : len(result) - len(rest)]
    assert inner.replace(b"\r\n", b"\n") == text.encode()


@given(marked_files(), NEW_LINES)
def test_files_patch_leaves_the_rest_alone(file: tuple[bytes, bytes, bytes, bool], new: list[str]) -> None:
    """R45: the same for a patch; whole lines are replaced, a missing last end stays missing."""
    before, middle, after, _ = file
    lines = ["*** Begin Patch", "*** Update File: file", "-needle one", "-needle two"]
    lines += [f"+{line}" for line in new] + ["*** End Patch"]
    assume(not before or before.endswith(b"\n"))
    result = changed("apply_patch", before + middle + after, patch="\n".join(lines))
    assert result.startswith(before)
    assert result.endswith(after)
    inner = result[len(before) : len(result) - len(after)]
    expected = "".join(f"{line}\n" for line in new).encode()
    if not middle.endswith(b"\n"):
        expected = expected.removesuffix(b"\n")
    assert inner.replace(b"\r\n", b"\n") == expected


@given(st.binary(max_size=200))
def test_files_lines_join_to_their_file(data: bytes) -> None:
    """R45: cutting into lines loses nothing."""
    assert b"".join(line.whole for line in split_lines(data)) == data


@given(st.lists(st.tuples(BODIES, ENDS), max_size=6))
def test_files_the_same_lines_keep_their_ends(lines: list[tuple[bytes, bytes]]) -> None:
    """R45: a replacement that says the same changes no byte."""
    data = b"".join(body + end for body, end in lines)
    plain = b"".join(body + b"\n" for body, _ in lines)
    assert adapt_ends(plain, segment=data, default=b"\n") == data


@given(
    st.text(st.sampled_from("ab \n\r\t"), max_size=30),
    st.text(st.sampled_from("ab \n\r"), min_size=1, max_size=5),
)
def test_files_edit_never_half_works(text: str, old: str) -> None:
    """R45: an edit either replaces exactly one place, or refuses and changes nothing."""
    from remit.workspaces.keeper._refusals import OperationRefused

    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(text.encode())
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            edit_file(fd, {"relative_path": "file", "old": old, "new": "NEW"})
        except OperationRefused:
            assert path.read_bytes() == text.encode()
        else:
            assert path.read_bytes().count(b"NEW") == 1
        finally:
            os.close(fd)
