"""The work registry at 100 000 items, beside a naive one that looks at everything.

Run alone: `python -m bench.bench_work`. Each figure is the median of several rounds in one process; the naive
registry does the same job in the same run, so that a slow machine is slow for both.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from remit.contract import WorkKind
from remit.primitives import SystemClock
from remit.work import CleanupScope, ObservedStage, ScopeHandle, WorkRegistry, WorkSpec

ITEMS = 100_000
ROUNDS = 3
FAN_OUT = 100
"""Children per item: the tree is three levels deep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number beside its budget and its peer."""

    name: str
    value: float
    unit: str
    budget: float
    naive: float | None
    """The naive registry at the same job; None: it has no such job."""

    @property
    def kept(self) -> bool:
        """Whether the budget was kept."""
        return self.value <= self.budget


class NaiveRegistry:
    """The same answers from one dictionary: a cancel looks for children by looking at everything."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], dict[str, object]] = {}

    def register(self, session_id: str, spec: WorkSpec) -> None:
        """Take an item in."""
        parent = self._items.get((session_id, spec.parent_work_id or ""))
        born = parent is not None and parent["cancelled"]
        self._items[session_id, spec.work_id] = {"spec": spec, "cancelled": born, "stage": None}

    def observe(self, session_id: str, work_id: str, stage: ObservedStage) -> None:
        """Record where an item is."""
        self._items[session_id, work_id]["stage"] = stage

    def cancel(self, session_id: str, work_id: str) -> int:
        """Flag an item and all below it."""
        level, count = {work_id}, 0
        while level:
            for found in level:
                self._items[session_id, found]["cancelled"] = True
            count += len(level)
            level = {
                key[1]
                for key, item in self._items.items()
                if not item["cancelled"] and _parent(item) in level
            }
        return count

    def finish(self, session_id: str, work_id: str) -> None:
        """Let an item go."""
        del self._items[session_id, work_id]


def _parent(item: dict[str, object]) -> str | None:
    spec = item["spec"]
    assert isinstance(spec, WorkSpec)
    return spec.parent_work_id


def _specs() -> list[WorkSpec]:
    handle = ScopeHandle(lambda: None)
    return [
        WorkSpec(
            work_id=f"w{number:06d}",
            kind=WorkKind.TOOL,
            label="a label",
            handle=handle,
            parent_work_id=None if number == 0 else f"w{number // FAN_OUT:06d}",
        )
        for number in range(ITEMS)
    ]


def _timed(job: Callable[[], object]) -> float:
    gc.collect()
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def _naive_round(specs: list[WorkSpec]) -> dict[str, float]:
    registry = NaiveRegistry()
    each = 1e6 / ITEMS

    def observe_all() -> None:
        for spec in specs:
            registry.observe("s", spec.work_id, ObservedStage.DISPATCH)

    return {
        "register": _timed(lambda: [registry.register("s", spec) for spec in specs]) * each,
        "observe": _timed(observe_all) * each,
        "cancel leaf": _timed(lambda: registry.cancel("s", specs[-1].work_id)) * 1e6,
        "cancel tree": _timed(lambda: registry.cancel("s", specs[0].work_id)),
        "finish": _timed(lambda: [registry.finish("s", spec.work_id) for spec in specs]) * each,
    }


async def _round(specs: list[WorkSpec]) -> dict[str, float]:
    each = 1e6 / ITEMS
    async with CleanupScope() as scope:
        registry = WorkRegistry(clock=SystemClock(), cleanups=scope)
        figures = {"register": _timed(lambda: [registry.register("s", spec) for spec in specs]) * each}
        tokens = [
            token for spec in specs if (token := registry.observation_token("s", spec.work_id)) is not None
        ]
        stage = ObservedStage.DISPATCH
        figures["observe"] = _timed(lambda: [registry.observe(token, stage) for token in tokens]) * each
        leaves = [spec.work_id for spec in specs[-500:]]
        gc.collect()
        started = time.perf_counter()
        for leaf in leaves:
            registry.cancel("s", leaf)
        figures["cancel leaf"] = (time.perf_counter() - started) / len(leaves) * 1e6
        figures["cancel tree"] = _timed(lambda: registry.cancel("s", specs[0].work_id))
        started = time.perf_counter()
        while scope.pending:  # noqa: ASYNC110 - each turn of the loop is what is measured
            await asyncio.sleep(0)
        figures["fire handles"] = time.perf_counter() - started
        figures["finish"] = (
            _timed(lambda: [registry.finish("s", spec.work_id, "term") for spec in specs]) * each
        )
        assert registry.active_count() == 0
    return figures


UNITS = {
    "register": ("us", 5.0),
    "observe": ("us", 5.0),
    "finish": ("us", 5.0),
    "cancel leaf": ("us", 50.0),
    "cancel tree": ("s", 0.5),
    "fire handles": ("s", 2.0),
}
"""Unit and budget of each figure, at 100 000 items."""


def measure() -> list[Figure]:
    """Every figure of the registry, medians over the rounds."""
    specs = _specs()
    ours = [asyncio.run(_round(specs)) for _ in range(ROUNDS)]
    naive = [_naive_round(specs) for _ in range(ROUNDS)]
    return [
        Figure(
            name=f"registry: {name}",
            value=statistics.median(found[name] for found in ours),
            unit=unit,
            budget=budget,
            naive=statistics.median(found[name] for found in naive) if name in naive[0] else None,
        )
        for name, (unit, budget) in UNITS.items()
    ]


def main() -> int:
    """Print the figures; 1 when a budget is passed."""
    figures = measure()
    for figure in figures:
        naive = "" if figure.naive is None else f"   naive {figure.naive:12.3f} {figure.unit}"
        mark = "ok  " if figure.kept else "OVER"
        print(
            f"{mark} {figure.name:24} {figure.value:10.3f} {figure.unit:2} (budget {figure.budget:g}){naive}"
        )
    return 0 if all(figure.kept for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
