"""Output of commands: bounded, readable, cut at characters."""

import tracemalloc

import pytest

from remit.workspaces.keeper._output import BoundedOutput, HeadTail, clip_text


def shown(data: bytes, *, max_bytes: int = 1 << 20) -> str:
    output = BoundedOutput(max_bytes)
    output.feed(data)
    return output.text()


def test_output_keeps_raw_head_and_tail() -> None:
    """R43: the first and last bytes stay, the total is true."""
    kept = HeadTail(10)
    for piece in (b"abc", b"defghij", b"klmnop", b"", b"q"):
        kept.feed(piece)
    assert kept.raw() == b"abcdemnopq"
    assert kept.total_bytes == 17
    assert kept.truncated


def test_output_tail_is_bounded_while_it_comes() -> None:
    """R43: what lies between head and tail is dropped as it comes, however small the pieces."""
    kept = HeadTail(1_000)
    tracemalloc.start()
    try:
        for number in range(20_000):
            kept.feed(number.to_bytes(2, "big") * 100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.total_bytes == 4_000_000
    assert peak < 100_000
    assert kept.raw()[-2:] == (19_999).to_bytes(2, "big")


def test_output_that_fits_is_whole() -> None:
    """R43: exactly the bound isn't cut."""
    output = BoundedOutput(10)
    output.feed(b"0123456789")
    assert (output.text(), output.raw(), output.truncated) == ("0123456789", b"0123456789", False)
    output.feed(b"x")
    assert output.truncated
    assert output.raw_truncated


@pytest.mark.parametrize("max_bytes", [0, -1])
def test_output_refuses_a_bound_of_nothing(max_bytes: int) -> None:
    """R55: a limit out of range is refused."""
    with pytest.raises(ValueError, match="max_bytes"):
        HeadTail(max_bytes)


def test_output_decodes_with_replacement() -> None:
    """R41: bytes that aren't UTF-8 neither fail nor hide the rest, and stay as raw bytes."""
    data = b"head\xff\xf0tail\n"
    output = BoundedOutput(100)
    output.feed(data)
    assert output.text() == "head\ufffd\ufffdtail\n"
    assert output.raw() == data


def test_output_shows_utf16_text() -> None:
    """R41, R44: UTF-16 stays readable, no NUL comes through."""
    text = shown("hello".encode("utf-16"))
    assert text.endswith("hello")
    assert "\0" not in text


@pytest.mark.parametrize("filler", ["中", "😀", "é"])
@pytest.mark.parametrize("shift", range(4))
def test_output_cuts_at_a_character_border(filler: str, shift: int) -> None:
    """R42: no split character, one mark with the true total."""
    data = ("x" * shift + filler * 40_000 + "\n").encode()
    text = shown(data, max_bytes=16_384)
    assert "\ufffd" not in text
    assert text.count("left out here") == 1
    assert f"{len(data)} bytes in all" in text
    assert text.startswith("x" * shift + filler)
    assert text.endswith(filler + "\n")
    assert len(text.encode()) <= 16_384 + 100


def test_output_mark_counts_what_is_missing() -> None:
    """R42: shown bytes and left-out bytes make the total."""
    data = b"".join(b"line %d\n" % number for number in range(10_000))
    head, mark, tail = shown(data, max_bytes=1000).partition("\n[... ")
    left_out, _, rest = mark.join(("", tail))[6:].partition(" bytes left out")
    body = rest.partition(" ...]\n")[2]
    assert len(head) + int(left_out) + len(body) == len(data)
    assert data.decode().startswith(head)
    assert data.decode().endswith(body)


def test_output_shows_progress_bars_in_their_last_state() -> None:
    """R49: 2000 redraws are one line, escape sequences vanish."""
    data = b"".join(b"\r%d%%" % step for step in range(1, 2001)) + b"\n\x1b]0;owned\x07\x1b[2Jred\n"
    assert shown(data) == "2000%\nred\n"


def test_output_progress_does_not_push_out_what_was_said_around_it() -> None:
    """R49, R43: the bound holds after redraws are collapsed; raw bytes are bounded apart."""
    data = b"start\n" + b"".join(b"\rpart %d" % step for step in range(20_000)) + b"\nend\n"
    output = BoundedOutput(1000)
    output.feed(data)
    assert output.text() == "start\npart 19999\nend\n"
    assert not output.truncated
    assert output.raw_truncated


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[31mred\x1b[0m plain", "red plain"),
        (b"\x1b[38;2;1;2;3mx\x1b[m", "x"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bPq#0;2;0\x1b\\after", "after"),
        (b"\x1b_secret\x1b\\a\x1b^b\x1b\\c", "ac"),
        (b"\x1b(B\x1b7\x1b=\x1bcx", "x"),
        (b"a\x00b\x07c\x7fd\x0ee", "abcde"),
        ("a\x9b31mb\x9dtitle\x9cc".encode(), "abc"),
        ("a\x85b".encode(), "a\nb"),
        (b"a\x0bb\x0cc", "a\nb\nc"),
        (b"one\r\ntwo\r\n", "one\ntwo\n"),
        (b"loading   \rdone", "doneing   "),
        (b"long state\rab\rc", "cbng state"),
        (b"loading\r\x1b[Kdone\n", "done\n"),
        (b"loading\x1b[2K\x1b[1Gdone\n", "done\n"),
        (b"working |\b/\b-\b\\", "working \\"),
        (b"_\bb_\bo_\bl_\bd", "bold"),
        (b"abc\x1b[1D\x1b[1KX\x1b[1D\x1b[1D\x1b[1KY", " YX"),
        (b"a\x1b[3Cb", "a   b"),
        (b"abc\x1b[2K\x1b[1D\x1b[0Kz", "  z"),
        (b"50%\r", "50%"),
        (b"cut \x1b[3", "cut "),
        (b"cut \x1b", "cut "),
        (b"\x1b]0;never ended\nnext line\n", "\nnext line\n"),
        (b"\x1b[\nx", "\nx"),
        (b"tab\tstays", "tab\tstays"),
        ("sep\u2028stays".encode(), "sep\u2028stays"),
    ],
)
def test_output_reads_as_on_a_terminal(data: bytes, text: str) -> None:
    """R49: what the model sees is plain text; single bytes give the same."""
    assert shown(data) == text
    single = BoundedOutput(1000)
    for byte in data:
        single.feed(bytes([byte]))
    assert single.text() == text


def test_output_puts_interleaved_streams_together() -> None:
    """R42: a character cut by a write to the other stream isn't lost."""
    output = BoundedOutput(1000)
    output.feed("中".encode()[:2], source=1)
    output.feed(b"\x1b[3", source=2)
    output.feed("中".encode()[2:] + b" out\n", source=1)
    output.feed(b"1merr\n", source=2)
    assert output.text() == "中 out\nerr\n"


def test_output_text_may_be_read_before_the_end() -> None:
    """R50: partial output is readable at any moment, without changing what follows."""
    output = BoundedOutput(1000)
    output.feed(b"half \xe4\xb8")
    assert output.text() == "half \ufffd"
    output.feed(b"\xad\n")
    assert output.text() == "half 中\n"


def test_output_memory_is_bounded() -> None:
    """R43: 24 MB in one line, in redraws and in escape sequences leave a few MB at most."""
    for piece in (b"x" * 65_537, b"\rabc" * 16_384, b"\x1b]" + b"y" * 65_535, b"\x1b[31m" * 13_000):
        tracemalloc.start()
        output = BoundedOutput(100_000)
        for _ in range(24):
            output.feed(piece)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 4_000_000
        assert output.total_bytes == 24 * len(piece)


def test_clip_text_keeps_head_and_tail_within_the_bound() -> None:
    """R42: the text for the model is bounded, mark included, and names the true total."""
    clipped = clip_text("中" * 20_000, max_bytes=16_384, total_bytes=123_456)
    assert clipped.truncated
    assert len(clipped.text.encode()) <= 16_384
    assert "123456 bytes in all" in clipped.text
    assert "\ufffd" not in clipped.text
    assert clip_text("short", max_bytes=16_384).text == "short"


@pytest.mark.parametrize("max_bytes", [600, 999, 1000, 1001, 1040, 1099])
def test_clip_text_leaves_one_mark(max_bytes: int) -> None:
    """R42: clipping what was already cut doesn't leave a second mark or a piece of the first."""
    inner = shown(bytes(range(48, 58)) * 1000, max_bytes=1040)
    clipped = clip_text(inner, max_bytes=max_bytes, total_bytes=10_000)
    assert clipped.text.count("left out") == 1
    assert clipped.text.count("[...") == clipped.text.count("...]") == 1
