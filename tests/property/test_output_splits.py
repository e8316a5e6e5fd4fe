"""However the bytes come, the text is the same."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from remit.workspaces.keeper._output import BoundedOutput
from remit.workspaces.keeper._terminal import EscapeFilter, LineScreen

# fmt: off
PIECES = st.sampled_from([
    b"\r", b"\n", b"\b", b"\x1b", b"[", b"]", b"K", b"2K", b"31m", b"\x1b[1G", b"\x1b[2D", b"\x1b[3C",
    b"\x1b[1K", b"\x07", b"\\", b"\x1b]0;", b"\x1bP", b"\x9b", "\x9b".encode(), "\x9d".encode(),
    b"abc", b"x", b" ", b"0", b";", b"(", b"\x00", "中".encode(), "😀".encode(), b"\xe4", b"\xff",
    "\u2028".encode(), b"\x18", b"5" * 70,
])
# fmt: on
STREAMS = st.lists(PIECES | st.binary(max_size=4), max_size=60).map(b"".join)


def screen_text(pieces: list[bytes]) -> str:
    """Feeds filter and screen piece by piece, without the blocks that BoundedOutput makes."""
    lines: list[str] = []
    escapes, screen = EscapeFilter(), LineScreen(lines.append)
    for piece in pieces:
        screen.feed(escapes.feed(piece))
    screen.feed(escapes.feed(b"", final=True))
    return "".join(lines) + screen.pending()


def cut(data: bytes, points: list[int]) -> list[bytes]:
    borders = [0, *sorted(point % (len(data) + 1) for point in points), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(borders)]


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=20))
def test_output_text_does_not_depend_on_the_pieces(data: bytes, points: list[int]) -> None:
    """R41, R42, R49: any split of the bytes gives the same text, single bytes too."""
    whole = screen_text([data])
    assert screen_text(cut(data, points)) == whole
    assert screen_text([bytes([byte]) for byte in data]) == whole


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=20), st.integers(min_value=1, max_value=200))
def test_output_bounded_text_does_not_depend_on_the_pieces(
    data: bytes, points: list[int], max_bytes: int
) -> None:
    """R42, R43: cutting depends on the bytes alone; raw head and tail are exact."""
    whole, pieces = BoundedOutput(max_bytes), BoundedOutput(max_bytes)
    whole.feed(data)
    for piece in cut(data, points):
        pieces.feed(piece)
    assert pieces.text() == whole.text()
    assert pieces.raw() == whole.raw()
    assert (whole.raw() == data) is not whole.raw_truncated or len(data) <= max_bytes
    assert len(whole.text().encode()) <= max_bytes + 100


@given(STREAMS)
def test_output_text_holds_no_control_characters(data: bytes) -> None:
    """R44, R49: nothing that a terminal acts on comes through, but newline and tab."""
    output = BoundedOutput(10_000)
    output.feed(data)
    assert not [
        char for char in output.text() if (char < " " and char not in "\n\t") or "\x7f" <= char <= "\x9f"
    ]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.just("\n"), max_size=300))
def test_output_plain_text_is_unchanged(text: str) -> None:
    """R41: text without control characters comes through as it is."""
    output = BoundedOutput(10_000)
    output.feed(text.encode())
    assert output.text() == text


@given(
    st.lists(
        st.sampled_from(["a" * 16_383, "b", "\r", "\b", "c" * 16_385, "\n", "\x01", "\x03", "dd"]),
        max_size=12,
    )
)
def test_output_long_lines_do_not_depend_on_the_pieces(parts: list[str]) -> None:
    """R43: lines longer than the screen's own limit give the same text however they come."""
    whole: list[str] = []
    screen = LineScreen(whole.append)
    screen.feed("".join(parts))
    pieces: list[str] = []
    other = LineScreen(pieces.append)
    for part in "".join(parts):
        other.feed(part)
    assert "".join(pieces) + other.pending() == "".join(whole) + screen.pending()
