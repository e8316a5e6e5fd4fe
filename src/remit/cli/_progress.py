"""What a person sees on stderr while a run goes on: a live tree, plain lines, or nothing."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Generator, Mapping
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from remit.cli._lines import line_of
from remit.cli._screen import console_on, glyphs_of, wants_live
from remit.cli._story import Story
from remit.cli._tree import Tree
from remit.cli._words import some_lines
from remit.events import Event
from remit.primitives import Clock

_STILL_CALLS: Final = 8
"""Tool calls of a stage in the picture that stays; `remit show` has them all."""


class Progress(Protocol):
    """Whoever follows a run."""

    story: Story

    def add(self, event: Event) -> None:
        """One more event."""
        ...

    def tick(self) -> None:
        """Time has passed."""
        ...

    def say(self, text: str, *, style: str = "") -> None:
        """A line that stays."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LiveProgress:
    """The live tree. What ends stays above it; it is redrawn below, and ends as a still picture."""

    def __init__(self, console: Console, stream: TextIO, clock: Clock) -> None:
        self.story = Story()
        self._console = console
        self._glyphs = glyphs_of(stream)
        self._clock = clock
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        self.tick()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        if self.story.stages:
            self._console.print(self._tree(live=False), end="")

    def add(self, event: Event) -> None:
        """One more event."""
        self.story.add(event)
        if event.seq is not None:
            self.tick()

    def tick(self) -> None:
        """Draw it as of now."""
        self._live.update(self._tree(live=True), refresh=True)

    def say(self, text: str, *, style: str = "") -> None:
        """A line above the tree."""
        self._console.print(Text(text, style=style))

    def _tree(self, *, live: bool) -> Tree:
        now = self._clock.now()
        return Tree(self.story, self._glyphs, now=now, live=live, most_calls=None if live else _STILL_CALLS)


class LineProgress:
    """One line for each stage, tool and check."""

    def __init__(self, console: Console, stream: TextIO) -> None:
        self.story = Story()
        self._console = console
        self._glyphs = glyphs_of(stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def add(self, event: Event) -> None:
        """One more event."""
        self.story.add(event)
        line = line_of(event, self.story, self._glyphs)
        if line is not None:
            self.say(line)

    def tick(self) -> None:
        """Nothing is redrawn here."""

    def say(self, text: str, *, style: str = "") -> None:
        """A line."""
        self._console.print(Text(text, style=style), soft_wrap=True)


class QuietProgress(LineProgress):
    """Nothing but what the user must know."""

    def add(self, event: Event) -> None:
        """One more event."""
        self.story.add(event)

    def say(self, text: str, *, style: str = "") -> None:
        """Only what is wrong is said."""
        if style in _LOUD_STYLES:
            super().say(text, style=style)


_LOUD_STYLES = frozenset({"red", "yellow"})


def make_progress(
    stream: TextIO, *, clock: Clock, quiet: bool, environment: Mapping[str, str] = os.environ
) -> Progress:
    """What suits a stream."""
    console = console_on(stream, environment=environment)
    if quiet:
        return QuietProgress(console, stream)
    if wants_live(stream, environment=environment):
        return LiveProgress(console, stream, clock)
    return LineProgress(console, stream)


class LogToProgress(logging.Handler):
    """Warnings of the program's own log as lines of the progress."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.WARNING)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        """Say it; a traceback only where it was asked for."""
        try:
            text = "\n  ".join(some_lines(record.getMessage(), width=2_000))
            if record.exc_info and os.environ.get("REMIT_DEBUG") == "1":
                text += "\n" + logging.Formatter().formatException(record.exc_info)
            self._progress.say(f"remit: {text}", style="yellow")
        except Exception:  # noqa: BLE001 - a log that can't be written mustn't end a run
            self.handleError(record)


@contextlib.contextmanager
def logging_to(progress: Progress) -> Generator[None]:
    """Send the program's warnings to the progress for the length of a block."""
    handler = LogToProgress(progress)
    log = logging.getLogger()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
