"""Numbers as places on a page: bars of usage, and a run's timeline. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from remit.api.dashboard._story import Span, Story

MOST_MARKS: Final = 300
"""Marks in one lane; more would lie on each other."""
WIDTH: Final = 1000.0
"""Of a timeline, in its own units."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A piece of time in a lane."""

    x: float
    width: float
    kind: str
    """Its class: what it is and how it went."""
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One stage in time."""

    label: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run's stages in time."""

    lanes: tuple[Lane, ...]
    seconds: float


def timeline_of(story: Story, *, now: datetime) -> Timeline:
    """Where each stage, attempt and tool call lies in time."""
    start = story.first_at or now
    end = (story.last_at or now) if story.ended else now
    total = max((end - start).total_seconds(), 0.001)

    def mark(span: Span, kind: str, title: str) -> Mark:
        x = (span.started_at - start).total_seconds() / total * WIDTH
        width = max(span.seconds(end) / total * WIDTH, 1.5)
        x = min(max(x, 0.0), WIDTH - 1.5)
        return Mark(round(x, 1), round(min(width, WIDTH - x), 1), kind, title)

    lanes: list[Lane] = []
    for stage in story.stages:
        marks = [mark(stage, f"stage {stage.status}", f"{stage.id}: {stage.status}")]
        for told in stage.rounds[-MOST_MARKS:]:
            marks += [
                mark(one, f"attempt {one.status}", f"round {told.number}, {one.started.model}: {one.status}")
                for one in told.attempts
            ]
            marks += [
                mark(one, f"tool {one.status}", f"{one.started.name} {one.started.label}: {one.status}")
                for one in told.tools
            ]
        lanes.append(Lane(stage.id, (marks[0], *marks[1:][-MOST_MARKS:])))
    return Timeline(tuple(lanes), total)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a plot."""

    label: str
    value: float
    text: str
    share: float
    """Of the largest, in per cent."""


def bars_of(rows: Sequence[tuple[str, float, str]]) -> tuple[Bar, ...]:
    """Bars beside each other: label, value, and the value in words."""
    largest = max((value for _, value, _ in rows), default=0.0)
    return tuple(_bars(rows, largest))


def _bars(rows: Sequence[tuple[str, float, str]], largest: float) -> Iterator[Bar]:
    for label, value, text in rows:
        yield Bar(label, value, text, round(100 * value / largest, 1) if largest > 0 else 0.0)


COLUMN_WIDTH: Final = 20
"""A day's room, in a plot's own units."""
COLUMN_HEIGHT: Final = 120
"""Of the largest column."""
_LOWEST: Final = 2.0
"""Of a column that stands for something: it has to be seen."""


@dataclass(frozen=True, slots=True)
class Column:
    """One day of a plot."""

    x: int
    y: float
    height: float
    """0: nothing on that day."""
    title: str


@dataclass(frozen=True, slots=True)
class DayPlot:
    """Days beside each other, also those on which nothing was."""

    columns: tuple[Column, ...]
    ticks: tuple[tuple[int, str], ...]
    """Where a day is named below the plot: its place, and the day."""
    top: str
    """The largest value, in words."""
    width: int


def days_of(rows: Mapping[str, tuple[float, str]], *, first: date, last: date) -> DayPlot:
    """A column for each day from `first` to `last`; a day without a row is empty.

    Args:
        rows: Day in ISO form -> its value, and that in words.
        first: The first day.
        last: The last one, not before the first.
    """
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    largest, top = max(rows.values(), default=(0.0, ""))
    columns = [
        _column(place, day, rows.get(day.isoformat()), largest=largest) for place, day in enumerate(days)
    ]
    ticks = [
        (place * COLUMN_WIDTH + COLUMN_WIDTH // 2, f"{day.day} {day:%b}")
        for place, day in enumerate(days)
        if (len(days) - 1 - place) % 7 == 0
    ]
    return DayPlot(tuple(columns), tuple(ticks), top, len(days) * COLUMN_WIDTH)


def _column(place: int, day: date, row: tuple[float, str] | None, *, largest: float) -> Column:
    value, words = row or (0.0, "nothing")
    height = max(_LOWEST, round(COLUMN_HEIGHT * value / largest, 1)) if value > 0 else 0.0
    return Column(place * COLUMN_WIDTH + 2, round(COLUMN_HEIGHT - height, 1), height, f"{day}: {words}")
