"""The two streams: stdout for the result alone, stderr for people."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TextIO, cast

from rich.console import Console

from remit.cli._failing import STANDARD_OUTPUT, quiet
from remit.primitives import dump_json

_PADDING: Final = re.compile(" +\n")
_PIPED_COLUMNS: Final = 110
"""How wide tables are where no terminal says."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs of the tree; plain letters where the terminal's encoding has no others."""

    done: str = "✓"
    failed: str = "✗"
    running: str = "●"
    waiting: str = "·"
    branch: str = "├─ "
    last: str = "└─ "
    bar: str = "│  "
    blank: str = "   "
    dot: str = "·"
    arrow: str = "→"


_PLAIN: Final = Glyphs(
    done="+", failed="x", running="*", waiting=".", branch="|- ", last="`- ", bar="|  ", dot="-", arrow="->"
)


def glyphs_of(stream: TextIO) -> Glyphs:
    """The signs that a stream can show."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    fancy = Glyphs()
    try:
        "".join((fancy.done, fancy.failed, fancy.running, fancy.branch, fancy.last, fancy.arrow)).encode(
            encoding
        )
    except (UnicodeEncodeError, LookupError):
        return _PLAIN
    return fancy


class Steady:
    """A stream for people, whose end stops nothing: once nobody reads it, it is left alone.

    Args:
        stream: The stream.
        keeps: Whether what is written must be kept, as on stdout: then only a reader that left is forgiven.
    """

    def __init__(self, stream: TextIO, *, keeps: bool) -> None:
        self._stream = stream
        self._forgiven = (BrokenPipeError,) if keeps else (OSError, ValueError)
        self._gone = False

    @property
    def encoding(self) -> str:
        """As the stream's own."""
        return getattr(self._stream, "encoding", None) or "ascii"

    def write(self, text: str) -> int:
        """Write, while there is somebody; the blanks that fill a line to its end are for terminals alone."""
        if not self._gone:
            shown = text if self.isatty() else _PADDING.sub("\n", text)
            try:
                self._stream.write(shown)
            except self._forgiven:
                self._gone = True
            except OSError as error:
                raise _of_stdout(error) from None
        return len(text)

    def flush(self) -> None:
        """Flush, while there is somebody."""
        if not self._gone:
            try:
                self._stream.flush()
            except self._forgiven:
                self._gone = True
            except OSError as error:
                raise _of_stdout(error) from None

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return is_a_terminal(self._stream)

    def fileno(self) -> int:
        """As the stream's own."""
        return self._stream.fileno()


def _of_stdout(error: OSError) -> OSError:
    """The error with its place, which the system leaves out."""
    return OSError(error.errno, error.strerror, STANDARD_OUTPUT)


def console_on(stream: TextIO, *, environment: Mapping[str, str] = os.environ) -> Console:
    """A console that respects NO_COLOR, TERM, COLUMNS; text that isn't ours is never taken for markup."""
    with contextlib.suppress(AttributeError, ValueError, OSError):  # it flushes what is there
        stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - text streams have it
    is_terminal = is_a_terminal(stream)
    columns = environment.get("COLUMNS", "")
    width = int(columns) if columns.isdigit() and int(columns) > 0 else None
    return Console(
        file=cast("TextIO", Steady(stream, keeps=stream is sys.stdout)),
        force_terminal=is_terminal,
        no_color=bool(environment.get("NO_COLOR")) or None,
        width=width if width or is_terminal else _PIPED_COLUMNS,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )


def is_a_terminal(stream: TextIO) -> bool:
    """Whether a person looks at it."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def wants_live(stream: TextIO, *, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a tree may be redrawn there: a terminal that can move its cursor, and nobody's CI log."""
    if not is_a_terminal(stream) or environment.get("TERM", "") in ("", "dumb"):
        return False
    return environment.get("CI", "").lower() in ("", "0", "false")


class Results:
    """stdout: what programs read. A reader that has gone stops the writing, and nothing else."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.error: OSError | None = None
        """Why not everything could be written."""

    @property
    def reader_left(self) -> bool:
        """Whether whoever read has closed the pipe."""
        return isinstance(self.error, BrokenPipeError)

    def require_written(self) -> None:
        """Raise why not everything could be written, unless the reader simply left.

        Raises:
            OSError: The disk is full, or the like.
        """
        if self.error is not None and not self.reader_left:
            raise _of_stdout(self.error)

    def write_json(self, value: object) -> None:
        """One line of JSON, flushed; control characters of any kind are escaped in it."""
        self.write_bytes(_escape_controls(dump_json(value)).encode() + b"\n")

    def write_text(self, text: str) -> None:
        """Text, with an end of line at its end."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self.write_bytes((text if text.endswith("\n") else text + "\n").encode(encoding, "replace"))

    def write_bytes(self, data: bytes) -> None:
        """Bytes as they are."""
        if self.error is not None:
            return
        try:
            binary = getattr(self._stream, "buffer", None)
            if binary is None:
                self._stream.write(data.decode())
            else:
                binary.write(data)
            self._stream.flush()
        except OSError as error:
            self.error = error
            quiet(self._stream)


_CONTROLS: Final = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def _escape_controls(text: str) -> str:
    """JSON leaves DEL and the C1 controls as they are; some terminals obey them."""
    return text.translate(_CONTROLS)
