"""Whose turn it is: runs wait in lanes, one for each key of a tenant. Pure, and the same each time.

The next place goes to the tenant that has the fewest runs going on; among equals to the one whose last grant
is the longest ago. Within the tenant the same is asked of its keys, and within a key who came first goes
first. So neither a hundred waiting runs of one key nor a hundred keys of one tenant hold up another's first.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


class Lane(NamedTuple):
    """Runs that wait behind one another."""

    tenant: str
    share: str
    """What they have in common, such as a key's id; empty for none."""


@dataclass(slots=True)
class _Turn:
    """What a tenant's or a lane's turn depends on."""

    running: int = 0
    last_grant: int = 0
    """The number of its newest grant; 0: none since it came."""


@dataclass(slots=True)
class _Line:
    turn: _Turn = field(default_factory=_Turn)
    ready: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """(number of arrival, run id), in order."""
    held_back: dict[str, int] = field(default_factory=dict[str, int])
    """Waits for something else than a place -> number of arrival."""

    @property
    def queued(self) -> int:
        return len(self.ready) + len(self.held_back)


class Lanes:
    """The waiting runs of all lanes, and the order in which they go on."""

    def __init__(self) -> None:
        self._lines: dict[Lane, _Line] = {}
        self._tenants: dict[str, _Turn] = {}
        self._arrivals = 0
        self._grants = 0
        self._positions: dict[str, dict[str, int]] = {}
        """Worked out when asked for, forgotten with every change."""

    def add(self, lane: Lane, run_id: str, *, ready: bool) -> None:
        """Let a run wait at the end of its lane."""
        self._positions.clear()
        self._arrivals += 1
        line = self._line(lane)
        if ready:
            line.ready.append((self._arrivals, run_id))
        else:
            line.held_back[run_id] = self._arrivals

    def make_ready(self, lane: Lane, run_id: str) -> None:
        """What a run had waited for is there: it takes the place in its lane that it came for."""
        self._positions.clear()
        line = self._lines[lane]
        insort(line.ready, (line.held_back.pop(run_id), run_id))

    def leave(self, lane: Lane, run_id: str) -> None:
        """A waiting run waits no more: it goes on, or gave up."""
        self._positions.clear()
        line = self._lines[lane]
        if line.held_back.pop(run_id, None) is None:
            line.ready = [entry for entry in line.ready if entry[1] != run_id]
        self._forget_empty(lane)

    def granted(self, lane: Lane) -> None:
        """A run of the lane goes on."""
        self._positions.clear()
        self._grants += 1
        for turn in (self._line(lane).turn, self._tenants[lane.tenant]):
            turn.running += 1
            turn.last_grant = self._grants

    def ended(self, lane: Lane) -> None:
        """A run of the lane goes on no more."""
        self._positions.clear()
        self._lines[lane].turn.running -= 1
        self._tenants[lane.tenant].running -= 1
        self._forget_empty(lane)

    def counts(self, lane: Lane) -> tuple[int, int]:
        """How many of the lane go on, and how many wait."""
        line = self._lines.get(lane)
        return (0, 0) if line is None else (line.turn.running, line.queued)

    def find_next(self, fits: Callable[[str], bool]) -> str | None:
        """The run whose turn it is, of those that are first in their lane and fit; None: none does."""
        best: tuple[tuple[int, ...], str] | None = None
        for lane, line in self._lines.items():
            if not line.ready:
                continue
            arrival, run_id = line.ready[0]
            tenant, own = self._tenants[lane.tenant], line.turn
            rank = (tenant.running, tenant.last_grant, own.running, own.last_grant, arrival)
            if (best is None or rank < best[0]) and fits(run_id):
                best = rank, run_id
        return None if best is None else best[1]

    def position(self, tenant: str, run_id: str) -> int:
        """Its place among the tenant's waiting runs, from 1, were places given out now and none back."""
        known = self._positions.get(tenant)
        if known is None:
            known = self._positions[tenant] = {one: place for place, one in enumerate(self._order(tenant), 1)}
        return known[run_id]

    def _order(self, tenant: str) -> list[str]:
        lines = [line for lane, line in self._lines.items() if lane.tenant == tenant]
        order, grants = list[str](), self._grants
        heap = [
            (line.turn.running, line.turn.last_grant, line.ready[0][0], place, 0)
            for place, line in enumerate(lines)
            if line.ready
        ]
        heapq.heapify(heap)
        while heap:
            running, _, _, place, index = heapq.heappop(heap)
            ready = lines[place].ready
            order.append(ready[index][1])
            grants += 1
            if index + 1 < len(ready):
                heapq.heappush(heap, (running + 1, grants, ready[index + 1][0], place, index + 1))
        held_back = sorted((arrival, one) for line in lines for one, arrival in line.held_back.items())
        return [*order, *(one for _, one in held_back)]

    def _line(self, lane: Lane) -> _Line:
        self._tenants.setdefault(lane.tenant, _Turn())
        return self._lines.setdefault(lane, _Line())

    def _forget_empty(self, lane: Lane) -> None:
        line = self._lines[lane]
        if line.queued or line.turn.running:
            return
        del self._lines[lane]
        if not any(other.tenant == lane.tenant for other in self._lines):
            del self._tenants[lane.tenant]
