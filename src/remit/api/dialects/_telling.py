"""A run's events as what a chat client can be shown: progress in words, text as it comes, and the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from remit.events import TERMINAL_TYPES, Event
from remit.primitives import clean_text

_PIECE_CHARS: Final = 1_500
_MOST_LABEL_CHARS: Final = 200
_STAGES: Final = {"plan": "Planning.", "work": "Working.", "review": "Reviewing."}


@dataclass(frozen=True, slots=True)
class Progress:
    """One line of what goes on, with its line end."""

    text: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of the answer, live."""

    text: str


@dataclass(frozen=True, slots=True)
class Over:
    """The run has ended, or nothing more will be heard of it here."""


Told: TypeAlias = Progress | Piece | Over


async def tell(events: AsyncIterator[Event], *, progress: bool, live: bool) -> AsyncGenerator[Told]:
    """What a client is shown of a run, ended by `Over`.

    Args:
        events: The run's, from the first on.
        progress: Whether it is shown what goes on.
        live: Whether the model's text is the answer, so that it may be shown while it comes.
    """
    text = _LiveText()
    async for event in events:
        if event.type in TERMINAL_TYPES:
            break
        if live and event.type == "message.delta":
            if piece := text.next(event.data):
                yield Piece(piece)
        elif progress and not (live and event.type == "stage.started"):
            line = progress_line(event)
            if line is not None:
                yield Progress(line + "\n")
    yield Over()


class _LiveText:
    """Joins pieces of text; once one is missing, or an attempt begins anew, nothing more is taken."""

    def __init__(self) -> None:
        self._attempt: str | None = None
        self._length = 0
        self._whole = True

    def next(self, data: dict[str, Any]) -> str:
        """The piece, if it goes on where the last one ended; else nothing."""
        attempt, piece = data.get("attempt_id"), data.get("text", "")
        if self._attempt is None:
            self._attempt = attempt
        self._whole = self._whole and attempt == self._attempt and data.get("offset_chars") == self._length
        if not self._whole:
            return ""
        self._length += len(piece)
        return clean_text(piece)[0]


def progress_line(event: Event) -> str | None:
    """What an event tells in one line, the same every time; None: nothing that a client wants to know."""
    data = event.data
    match event.type:
        case "stage.started":
            kind, _, number = str(data["stage_id"]).partition("-")
            again = number not in ("", "1")
            return f"{_STAGES[kind][:-1]} again." if again else _STAGES[kind]
        case "tool.started":
            return _plain(f"{data['name']} {data.get('label', '')}".strip())
        case "check.completed":
            check = data["check"]
            return _plain(f"Check {check['id']}: exit {check['exit']} ({check['gate']}).")
        case "review.decided":
            return f"The review says {data['review']['decision']}."
        case "limit.warning":
            return f"80 % of {data['kind']} is used."
        case _:
            return None


def _plain(text: str) -> str:
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown if len(shown) <= _MOST_LABEL_CHARS else shown[: _MOST_LABEL_CHARS - 1] + "…"


def pieces_of(text: str) -> Iterator[str]:
    """A whole text in pieces, always cut alike."""
    for start in range(0, len(text), _PIECE_CHARS):
        yield text[start : start + _PIECE_CHARS]
