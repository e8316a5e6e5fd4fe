"""Counters and histograms with a few labels, kept in memory for whoever shows them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

BOUNDS_MS: Final = (1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)
"""Upper bounds of a histogram's buckets, in ms; one more bucket is without bound."""
_LARGEST: Final = 2**53 - 1

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSeries:
    """One counter with one set of labels."""

    name: str
    labels: Mapping[str, str]
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramSeries:
    """One histogram with one set of labels."""

    name: str
    labels: Mapping[str, str]
    count: int
    sum_ms: int
    buckets: tuple[int, ...]
    """Per bucket of `BOUNDS_MS`, then the one without bound; not cumulative."""


@dataclass(slots=True)
class _Histogram:
    count: int = 0
    sum_ms: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))


class Metrics:
    """A set of counters and histograms. Not thread-safe: it belongs to the loop's thread."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, Labels], int] = {}
        self._histograms: dict[tuple[str, Labels], _Histogram] = {}

    def count(self, name: str, *, labels: Mapping[str, str], by: int = 1) -> None:
        """Raise a counter."""
        key = name, tuple(sorted(labels.items()))
        self._counters[key] = min(self._counters.get(key, 0) + by, _LARGEST)

    def record_ms(self, name: str, value_ms: int, *, labels: Mapping[str, str]) -> None:
        """Add one length of time to a histogram; it saturates at both ends."""
        value_ms = min(max(value_ms, 0), _LARGEST)
        histogram = self._histograms.setdefault((name, tuple(sorted(labels.items()))), _Histogram())
        histogram.count += 1
        histogram.sum_ms = min(histogram.sum_ms + value_ms, _LARGEST)
        histogram.buckets[bisect_left(BOUNDS_MS, value_ms)] += 1

    def snapshot(self) -> dict[str, int]:
        """Each counter's name with its sum over all labels."""
        sums: dict[str, int] = {}
        for (name, _), value in self._counters.items():
            sums[name] = sums.get(name, 0) + value
        return sums

    def counters(self) -> tuple[CounterSeries, ...]:
        """Every counter, one entry per set of labels, ordered by name and labels."""
        return tuple(
            CounterSeries(name=name, labels=dict(labels), value=value)
            for (name, labels), value in sorted(self._counters.items())
        )

    def histograms(self) -> tuple[HistogramSeries, ...]:
        """Every histogram, one entry per set of labels, ordered by name and labels."""
        return tuple(
            HistogramSeries(
                name=name,
                labels=dict(labels),
                count=found.count,
                sum_ms=found.sum_ms,
                buckets=tuple(found.buckets),
            )
            for (name, labels), found in sorted(self._histograms.items(), key=lambda entry: entry[0])
        )
