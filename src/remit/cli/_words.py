"""How the command line speaks to people: on stderr, one line at a time."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Sequence
from shutil import get_terminal_size, which
from typing import Final

from remit.primitives import show_hidden

EXIT_INTERRUPTED: Final = 130
EXIT_USAGE: Final = 2
_LOGGED_CHARS: Final = 2_000

_ESCAPES: Final = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"  # OSC, DCS
    "|\x1b[ -/]*[0-~]?"
)
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_WORDS: Final = re.compile(r"(?:[^\s`]|`[^`]*`|`)+")


def plain(text: str) -> str:
    """Text of a model or a tool, without anything that moves a terminal's cursor or turns letters around.

    Line ends and tabs stay. A line that was redrawn with carriage returns ends as its last state.
    """
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return show_hidden(_CONTROLS.sub("", text))


def one_line(text: str, *, width: int = 200) -> str:
    """The same on a single line, shortened to `width` characters."""
    flat = " ".join(plain(text).split())
    return flat if len(flat) <= width else flat[: max(1, width - 1)] + "…"


def some_lines(text: str, *, width: int = 200, most: int = 20) -> list[str]:
    """The same line by line, without blank ones, each shortened to `width` characters.

    Of many lines the first stays, which says what it is about, and the last ones, which say how it ended.
    """
    lines = [line.rstrip() for line in plain(text).expandtabs(4).split("\n") if line.strip()]
    if len(lines) > most:
        lines = [lines[0], f"… {len(lines) - most + 1} lines …", *lines[len(lines) - most + 2 :]]
    return [line if len(line) <= width else line[: max(1, width - 1)] + "…" for line in lines]


def program_name() -> str:
    """What to type to start this program again: its path where `remit` alone would not be found."""
    typed = sys.argv[0]
    return typed if os.path.basename(typed) == "remit" and which("remit") is None else "remit"


def recovered_words(run_id: str, root: str, how: str, left: Sequence[str]) -> str:
    """What was done about a delivery whose process died in the middle of it."""
    word = {"forward": "finished", "back": "taken back", "cleaned": "tidied up"}[how]
    text = f"a half-done delivery of run {run_id} to {root} was {word}"
    if left:
        text += f"; changed meanwhile, and left as they are: {one_line(', '.join(left), width=400)}"
    return text


def say(text: str) -> None:
    """Tell the user something on stderr; a stderr that is gone stops nothing."""
    with contextlib.suppress(OSError, ValueError):
        told = f"remit: {text}"
        if sys.stderr.isatty():
            told = broken_at_words(told, columns=get_terminal_size().columns)
        sys.stderr.write(_encodable(f"{told}\n"))
        sys.stderr.flush()


class PlainFormatter(logging.Formatter):
    """Log lines for a terminal: a record is one line, before its traceback, and moves nothing on the screen.

    What is logged may quote a tool, a model or a repository.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's own name
        """The record's line."""
        record.message = one_line(record.message, width=_LOGGED_CHARS)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback where there is one."""
        return plain(super().format(record))


def log_to_stderr() -> None:
    """Show the program's own log, from warnings up."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def broken_at_words(text: str, *, columns: int) -> str:
    """Text in lines that end between words; a path, and what is to be typed in backquotes, stay whole."""
    return "\n".join(_broken(line, columns=columns) for line in text.split("\n"))


def _broken(line: str, *, columns: int) -> str:
    lines: list[str] = []
    now = ""
    for word in _WORDS.findall(line):
        if now and len(now) + 1 + len(word) > columns:
            lines.append(now)
            now = word
        else:
            now = f"{now} {word}" if now else word
    return "\n".join([*lines, now])


def _encodable(text: str) -> str:
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    return text.encode(encoding, "replace").decode(encoding)
