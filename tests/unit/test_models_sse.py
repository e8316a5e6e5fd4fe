"""Server-sent events, cut where the standard cuts and nowhere else."""

from __future__ import annotations

import pytest

from remit.models._sse import EventTooLongError, SseReader

ODD = "x\u0085y\u2028z\u2029w\u000bv\u000cu"


def read(*pieces: bytes) -> list[tuple[str | None, str, bool]]:
    reader = SseReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return [(event.name, event.data, event.whole) for event in (*events, *reader.finish())]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(end: str) -> None:
    """R70: CR, LF and CRLF end a line."""
    text = f"event: a{end}data: one{end}{end}: comment{end}data: two{end}data: three{end}{end}"
    assert read(text.encode()) == [("a", "one", True), (None, "two\nthree", True)]


def test_separators_of_unicode_end_no_line() -> None:
    """R70: U+0085, U+2028, U+2029, VT and FF are text."""
    assert read(f"data: {ODD}\n\n".encode()) == [(None, ODD, True)]


def test_a_border_inside_a_character() -> None:
    """R70: a character may come in pieces."""
    data = "data: 中😀\n\n".encode()
    for border in range(len(data)):
        assert read(data[:border], data[border:]) == [(None, "中😀", True)]


def test_crlf_over_a_border() -> None:
    """R70: the two halves of a CRLF are one line end."""
    assert read(b"data: a\r", b"\n\r", b"\ndata: b\r", b"\n\r\n") == [(None, "a", True), (None, "b", True)]
    # A second line end here would be an empty line, and that the end of the event.
    assert read(b"data: a\r", b"\ndata: b\r", b"\n\r\n") == [(None, "a\nb", True)]


def test_lone_cr_then_text() -> None:
    """R70: a lone CR over a border ends the line too."""
    assert read(b"data: a\r", b"\r", b"data: b\r\r") == [(None, "a", True), (None, "b", True)]


def test_an_event_that_nobody_closed() -> None:
    """R69: what stands at the end without its blank line is told apart."""
    assert read(b"data: a\n\ndata: b") == [(None, "a", True), (None, "b", False)]
    assert read(b"data: a\n") == [(None, "a", False)]


def test_bytes_that_are_not_utf_8() -> None:
    """They become U+FFFD, and the stream goes on."""
    assert read(b"data: a\xffb\n\n") == [(None, "a\ufffdb", True)]


def test_a_byte_order_mark() -> None:
    """R70: one at the very start is no text."""
    assert read(b"\xef\xbb\xbfdata: a\n\n") == [(None, "a", True)]


def test_fields_without_value_and_unknown_ones() -> None:
    """R70: as the standard says."""
    assert read(b"data\nid: 7\nretry: 3\nnonsense\n\ndata:x\ndata:  y\n\n") == [
        (None, "", True),
        (None, "x\n y", True),
    ]


def test_an_endless_line_is_refused() -> None:
    """An event has a bound, in one line or in many."""
    with pytest.raises(EventTooLongError):
        SseReader(max_event_chars=100).feed(b"data: " + b"x" * 200)
    with pytest.raises(EventTooLongError):
        SseReader(max_event_chars=100).feed(b"data: xxxxxxxxxx\n" * 20)


def test_the_bound_is_of_one_event() -> None:
    """An event of the whole bound passes, one more character doesn't, and many events never add up."""
    reader = SseReader(max_event_chars=20)
    for _ in range(5):
        (event,) = reader.feed(b"data: " + b"x" * 14 + b"\n\n")
        assert event.data == "x" * 14
    assert SseReader(max_event_chars=20).feed(b"data: " + b"x" * 14) == []
    with pytest.raises(EventTooLongError):
        SseReader(max_event_chars=20).feed(b"data: " + b"x" * 15)


def test_a_name_without_data_names_nothing() -> None:
    """R70: a blank line ends the event, its name too, also where there was nothing to hand out."""
    assert read(b"event: error\n\ndata: a\n\n") == [(None, "a", True)]


def test_what_is_left_over_is_told() -> None:
    """R69: part of a line is a rest, and so is a line whose event isn't closed."""
    reader = SseReader()
    assert not reader.has_rest
    for piece, rest in ((b"da", True), (b"ta: a\n", True), (b"\n", False), (b": comment\n", False)):
        reader.feed(piece)
        assert reader.has_rest is rest
