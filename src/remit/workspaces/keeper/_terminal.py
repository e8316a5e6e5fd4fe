"""What a terminal would show at the end, computed from a stream, in bounded memory.

Two stages: `EscapeFilter` (one per byte stream) drops escape sequences and control characters and keeps those
that edit a line as single marks; `LineScreen` (one per output) applies these marks, so that a progress bar
of a thousand redraws ends as its last state. Both give the same text however the input was cut into pieces.
"""

import codecs
import io
import re
from collections.abc import Callable
from typing import Final

ERASE_TO_END: Final = "\x01"
ERASE_TO_START: Final = "\x02"
ERASE_LINE: Final = "\x03"

_LINE_LIMIT_CHARS: Final = 16_384
"""A longer line is committed in pieces of this size; a redraw reaches back to the last piece only."""
_MAX_CURSOR_STEPS: Final = 80
_PARTIAL_WINDOW_CHARS: Final = 80

# Carriage return and backspace are left to LineScreen, newline and tab are text.
_CONTROL: Final = "[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]"
_HAS_CONTROL: Final = re.compile(_CONTROL)
_SEQUENCE: Final = re.compile(
    "(?:\x1b\\[|\x9b)(?P<parameters>[0-?]{0,64})[ -/]{0,8}(?P<final>[@-~])?"  # CSI
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d\x9e\x9f])(?P<body>[^\x07\x18\x1a\x1b\x9c\n]*)(?P<end>[\x07\x18\x1a\x9c])?"
    "|\x1b[ -/]{0,8}[0-~]?"
    "|[\x0b\x0c\x85]"
    "|[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x8f\x91-\x97\x99\x9a\x9c]+"
)
_STRING_REST: Final = re.compile("[^\x07\x18\x1a\x1b\x9c\n]*(?P<end>[\x07\x18\x1a\x9c])?")
_PARTIAL: Final = re.compile("(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,8}|\x1b[ -/]{0,8}")
_ERASE: Final = {"": ERASE_TO_END, "0": ERASE_TO_END, "1": ERASE_TO_START, "2": ERASE_LINE}
_AS_NEWLINE: Final = {"\x0b": "\n", "\x0c": "\n", "\x85": "\n"}
_EDITS: Final = re.compile("([\r\b\x01-\x03])")
_RARE_EDITS: Final = re.compile("[\b\x01-\x03]")


class EscapeFilter:
    """Decodes one byte stream as UTF-8 and drops its escape sequences and control characters.

    Invalid bytes become U+FFFD. A string sequence (OSC, DCS, ...) that nobody ends stops at the line's end,
    so that it can't swallow what follows.
    """

    __slots__ = ("_carry", "_decoder", "_in_string")

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._carry = ""
        self._in_string = False

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Takes the next bytes and returns text that holds only printable characters and line edits."""
        text = self._carry + self._decoder.decode(data, final)
        self._carry = ""
        if self._in_string:
            text = self._skip_string(text)
        if _HAS_CONTROL.search(text) is None:
            return text
        if not final:
            text = self._hold_partial(text)
        return _SEQUENCE.sub(self._replace, text)

    def _skip_string(self, text: str) -> str:
        rest = _STRING_REST.match(text)
        assert rest is not None  # the pattern matches the empty string
        self._in_string = rest.end() == len(text) and rest["end"] is None
        return text[rest.end() :]

    def _hold_partial(self, text: str) -> str:
        """Keeps a sequence that the next bytes may complete."""
        start = max(text.rfind("\x1b"), text.rfind("\x9b"))
        if start < len(text) - _PARTIAL_WINDOW_CHARS or start < 0 or _PARTIAL.fullmatch(text, start) is None:
            return text
        self._carry = text[start:]
        return text[:start]

    def _replace(self, match: re.Match[str]) -> str:
        final = match["final"]
        if final is not None:
            return _line_edit(final, match["parameters"])
        if match["body"] is not None:
            self._in_string = match["end"] is None and match.end() == len(match.string)
            return ""
        return _AS_NEWLINE.get(match[0], "")


def _line_edit(final: str, parameters: str) -> str:
    """What a CSI sequence does to its own line, as marks; "" for colours and for moves between lines."""
    if final == "K":
        return _ERASE.get(parameters, "")
    if final == "J":
        return ERASE_TO_END if parameters in ("", "0") else ""
    if final == "G":
        return "\r" if parameters in ("", "0", "1") else ""
    if final in "CD":
        steps = min(int(parameters[:4]), _MAX_CURSOR_STEPS) if parameters[:4].isdecimal() else 1
        return (" " if final == "C" else "\b") * max(steps, 1)
    return ""


class LineScreen:
    """Applies line edits, and passes finished lines on to `commit`."""

    __slots__ = ("_commit", "_cursor", "_length", "_line")

    def __init__(self, commit: Callable[[str], None]) -> None:
        self._commit = commit
        self._line = io.StringIO(newline="\n")
        self._cursor = 0
        self._length = 0

    def feed(self, text: str) -> None:
        """Takes the next filtered text."""
        if "\r" in text:
            text = text.replace("\r\n", "\n")  # of no effect, and common
        if self._cursor == self._length and _EDITS.search(text) is None:
            self._append_plain(text)
            return
        *lines, rest = text.split("\n")
        for line in lines:
            self._edit(line)
            self._commit(self.pending() + "\n")
            self._clear()
        self._edit(rest)

    def pending(self) -> str:
        """The unfinished last line in its present state."""
        self._line.seek(0)
        return self._line.read(self._length)

    def _append_plain(self, text: str) -> None:
        cut = text.rfind("\n") + 1
        if cut:
            self._commit(self.pending() + text[:cut])
            self._clear()
        self._write(text[cut:])

    def _edit(self, text: str) -> None:
        if _RARE_EDITS.search(text) is None:
            self._redraw(text.split("\r"))
            return
        for edit in _EDITS.split(text):
            self._apply(edit)

    def _redraw(self, states: list[str]) -> None:
        """Writes the states of a line over each other; one that its successor covers is never seen."""
        self._write(states[0])
        for index in range(1, len(states)):
            state = states[index]
            covered = index + 1 < len(states) and len(state) <= len(states[index + 1])
            self._cursor = 0
            if not covered or len(state) >= _LINE_LIMIT_CHARS:
                self._write(state)

    def _apply(self, edit: str) -> None:
        if edit == "\r":
            self._cursor = 0
        elif edit == "\b":
            self._cursor = max(0, self._cursor - 1)
        elif edit == ERASE_TO_END:
            self._length = min(self._length, self._cursor)
        elif edit == ERASE_LINE:
            self._length = 0
        elif edit == ERASE_TO_START:
            blank, self._cursor = self._cursor, 0
            self._write(" " * min(blank + 1, self._length))
            self._cursor = blank
        else:
            self._write(edit)

    def _write(self, text: str) -> None:
        if text and self._cursor > self._length:
            text, self._cursor = " " * (self._cursor - self._length) + text, self._length
        while text:
            room = _LINE_LIMIT_CHARS - self._cursor
            self._line.seek(self._cursor)
            self._line.write(text[:room])
            self._cursor += min(room, len(text))
            self._length = max(self._length, self._cursor)
            text = text[room:]
            if self._length == _LINE_LIMIT_CHARS:
                self._commit(self.pending())
                self._clear()

    def _clear(self) -> None:
        self._line.seek(0)
        self._line.truncate()
        self._cursor = self._length = 0
