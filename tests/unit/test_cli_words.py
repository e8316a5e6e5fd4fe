"""Text of models and tools on its way to a terminal, and numbers on their way to people."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.cli._formats import check_words, duration, limit_amount, money, tokens
from remit.cli._screen import Results, glyphs_of
from remit.cli._words import PlainFormatter, broken_at_words, one_line, plain
from remit.contract import CheckResult

HOSTILE = {
    "colour": ("\x1b[31mred\x1b[0m", "red"),
    "title": ("\x1b]0;owned\x07text", "text"),
    "title ended by ST": ("\x1b]0;owned\x1b\\text", "text"),
    "title that never ends": ("a\x1b]0;owned\nnext", "a\nnext"),
    "cursor": ("a\x1b[2J\x1b[Hb", "ab"),
    "C1": ("a\x9b31mb\x9d0;x\x9cc", "abc"),
    "device control": ("\x1bPq#0\x1b\\x", "x"),
    "bell and backspace": ("a\x07\x08b", "ab"),
    "redrawn line": ("10%\r50%\r100%\nend", "100%\nend"),
    "line ends": ("a\r\nb", "a\nb"),
    "turned around": ("a\u202eb\u2066c", "a\ufffdb\ufffdc"),
    "lone surrogate": ("a\ud800b", "a\ufffdb"),
    "cut sequence": ("a\x1b[", "a"),
    "tabs and lines stay": ("a\tb\nc", "a\tb\nc"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_nothing_moves_the_terminal(case: str) -> None:
    """R49: no raw control code of a tool or model is emitted; what can be read stays."""
    text, expected = HOSTILE[case]
    assert plain(text) == expected


@given(st.text())
def test_whatever_comes_is_plain(text: str) -> None:
    """R49: for any text: no control but line end and tab, and it can be encoded."""
    shown = plain(text)
    assert not any((ord(sign) < 32 and sign not in "\n\t") or 0x7F <= ord(sign) < 0xA0 for sign in shown)
    shown.encode()
    assert plain(shown) == shown


@given(st.text(), st.integers(min_value=2, max_value=50))
def test_a_line_is_one_line(text: str, width: int) -> None:
    """A label never takes a second line, nor more than its room."""
    shown = one_line(text, width=width)
    assert len(shown) <= width
    assert len(shown.splitlines()) <= 1


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999.4, "999 ms"),
        (1_000, "1.0 s"),
        (59_900, "59.9 s"),
        (59_960, "1 min 00 s"),
        (185_000, "3 min 05 s"),
        (7_620_000, "2 h 07 min"),
    ],
)
def test_lengths_of_time(ms: float, text: str) -> None:
    """A duration is said in the unit that one would use."""
    assert duration(ms) == text


def test_numbers_that_arent_known_are_not_zero() -> None:
    """An unknown number is said to be unknown."""
    assert (money(None), tokens(None)) == ("unknown", "?")
    assert (money(0), money(0.0123), money(5), tokens(4120)) == ("$0.00", "$0.0123", "$5.00", "4,120")
    assert limit_amount("wall_clock_ms", 1_800_000) == "30 min 00 s"
    assert limit_amount("max_cost_usd", 2) == "$2.00"
    assert limit_amount("max_tool_rounds", 3) == "3"


class Gone(io.BytesIO):
    """A pipe whose reader has left."""

    def write(self, data: object) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_reader_that_left_stops_the_writing_alone() -> None:
    """A closed stdout is remembered, not raised."""
    results = Results(io.TextIOWrapper(Gone(), encoding="utf-8"))
    results.write_text("one")
    results.write_text("two")
    assert results.reader_left


def test_json_on_stdout_holds_no_control_code() -> None:
    """Controls are escaped, also those that JSON itself lets through; the value stays the same."""
    raw = io.BytesIO()
    value = {"text": "\x1b[31m\x9b\x7f\x85\u2028 ä"}
    stream = io.TextIOWrapper(raw, encoding="utf-8")
    Results(stream).write_json(value)
    line = raw.getvalue().decode()
    assert json.loads(line) == value
    assert plain(line) == line
    assert line.count("\n") == 1


@pytest.mark.parametrize(("encoding", "sign"), [("utf-8", "✓"), ("ascii", "+"), ("latin-1", "+")])
def test_signs_follow_the_encoding(encoding: str, sign: str) -> None:
    """A terminal that has no such signs gets letters."""
    assert glyphs_of(io.TextIOWrapper(io.BytesIO(), encoding=encoding)).done == sign


def test_a_log_line_moves_nothing() -> None:
    """R49: what is logged may quote a tool or a repository: one line, no control codes; a traceback, too."""
    try:
        raise ValueError("bad\x1b[2J value")
    except ValueError:
        raised = sys.exc_info()
    record = logging.LogRecord(
        "remit", logging.WARNING, "x.py", 1, "why: %s", ("a\x1b]0;owned\x07b\nERROR forged\x9b2J",), raised
    )
    shown = PlainFormatter("%(levelname)s %(message)s").format(record)
    assert shown.splitlines()[0] == "WARNING why: ab ERROR forged"
    assert shown.endswith("ValueError: bad value")
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("one two three", 80, ["one two three"]),
        ("one two three", 7, ["one two", "three"]),
        ("see `remit patch RUN --apply`, then", 12, ["see", "`remit patch RUN --apply`,", "then"]),
        ("at /a/long/path/of/a/file: gone", 10, ["at", "/a/long/path/of/a/file:", "gone"]),
        ("a lone ` is a word", 10, ["a lone `", "is a word"]),
        ("first\nsecond line", 80, ["first", "second line"]),
        ("", 80, [""]),
    ],
)
def test_sentences_break_between_words(text: str, columns: int, lines: list[str]) -> None:
    """A terminal cuts a word in two at its edge; what is to be typed or copied stays in one piece."""
    assert broken_at_words(text, columns=columns).split("\n") == lines


@pytest.mark.parametrize(
    ("base", "result", "words"),
    [
        (0, 1, "worse than before"),
        (1, 2, "worse than before"),
        (2, 2, "still fails, but must pass"),
        (1, None, "worse than before"),
        (None, 1, "fails, but must pass"),
    ],
)
def test_a_check_that_fails_as_it_did_is_not_called_worse(
    base: int | None, result: int | None, words: str
) -> None:
    """A gate that wants every check to pass stops what is no worse, too: the report says which it was."""
    assert check_words(CheckResult(id="lint", base_exit=base, exit=result, gate="worse")) == words
