"""How many runs go on at once, and how many may wait; pure in shape, with one awaitable on top."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal, TypeAlias

from remit.admission._lanes import Lane, Lanes
from remit.errors import MisuseError


@dataclass(frozen=True, slots=True)
class PermitGranted:
    """The run may go on now."""

    kind: Literal["granted"] = "granted"


@dataclass(frozen=True, slots=True)
class PermitQueued:
    """The run waits; so many of its own tenant are before it."""

    ahead: int
    kind: Literal["queued"] = "queued"


@dataclass(frozen=True, slots=True)
class PermitRefused:
    """As many wait as may; nothing was taken."""

    running: int
    queued: int
    of_share: bool = False
    """Whether it is the share's own bound that was reached, and these are its own runs."""
    kind: Literal["refused"] = "refused"


PermitAnswer: TypeAlias = PermitGranted | PermitQueued | PermitRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What several runs have in common, such as those of one key. None: no bound of its own."""

    name: str
    max_running: int | None = None
    max_queued: int | None = None


@dataclass(frozen=True, slots=True)
class _Bound:
    name: str
    max_running: int


@dataclass(slots=True)
class _Waiting:
    lane: Lane
    bounds: tuple[_Bound, ...]
    ready: bool
    granted: asyncio.Future[None] | None = None


class Permits:
    """Places for runs. Whoever waits gets the next one in turn with the others: see `Lanes`.

    A tenant or key at its own bound waits without holding up the others. Belongs to the loop's thread.

    Args:
        max_running: Runs that go on at once.
        max_queued: Runs that wait beside them.
        max_running_per_tenant: Of one tenant; None: no bound of its own.
    """

    def __init__(
        self, *, max_running: int, max_queued: int, max_running_per_tenant: int | None = None
    ) -> None:
        self._max_running = max_running
        self._max_queued = max_queued
        self._max_per_tenant = max_running_per_tenant
        self._running: dict[str, tuple[Lane, tuple[_Bound, ...]]] = {}
        self._queued: dict[str, _Waiting] = {}
        self._of_bound: dict[str, int] = {}
        self._lanes = Lanes()

    @property
    def running(self) -> int:
        """Runs that have a place."""
        return len(self._running)

    @property
    def queued(self) -> int:
        """Runs that wait for one."""
        return len(self._queued)

    def would_refuse(self, *, tenant: str = "local", share: Share | None = None) -> PermitRefused | None:
        """Whether one more run of this share would be refused now."""
        if self._fits(self._bounds(tenant, share)):
            return None
        return self._refusal(tenant, share)

    def would_wait(self, *, tenant: str = "local", share: Share | None = None) -> bool:
        """Whether one more run of this share would wait, or be refused, now."""
        return not self._fits(self._bounds(tenant, share))

    def holds(self, run_id: str) -> bool:
        """Whether the run has a place, or waits for one."""
        return run_id in self._running or run_id in self._queued

    def find_position(self, run_id: str) -> int | None:
        """Its place among its tenant's waiting runs, from 1, as things stand; None: it doesn't wait.

        What other tenants have waiting shows nowhere in it.
        """
        waiting = self._queued.get(run_id)
        return None if waiting is None else self._lanes.position(waiting.lane.tenant, run_id)

    def ask(
        self, run_id: str, *, tenant: str = "local", share: Share | None = None, ready: bool = True
    ) -> PermitAnswer:
        """Ask for a place; the run has it, or waits, or is refused. Asking again changes nothing.

        Args:
            run_id: What names the run over all tenants.
            tenant: Whose it is.
            share: What it has in common with others, such as its key.
            ready: Whether it could go on now. One that waits for something else gets no place, and holds up
                nobody, until somebody waits for its place.
        """
        if run_id in self._running:
            return PermitGranted()
        if run_id in self._queued:
            return self._waits(run_id)
        lane, bounds = Lane(tenant, share.name if share is not None else ""), self._bounds(tenant, share)
        # Whoever is ready and waits can't run now (its tenant or key is at its bound): nobody is overtaken.
        if ready and self._fits(bounds):
            self._grant(run_id, lane, bounds)
            return PermitGranted()
        refused = self._refusal(tenant, share)
        if refused is not None:
            return refused
        self._queued[run_id] = _Waiting(lane, bounds, ready)
        self._lanes.add(lane, run_id, ready=ready)
        return self._waits(run_id)

    def release(self, run_id: str) -> tuple[str, ...]:
        """Give a place, or a place in the queue, back; returns the runs that may go on now, in order.

        Releasing what holds nothing changes nothing.
        """
        left = self._queued.pop(run_id, None)
        if left is not None:
            self._lanes.leave(left.lane, run_id)
            _wake(left)
        lane, bounds = self._running.pop(run_id, (None, ()))
        if lane is not None:
            self._lanes.ended(lane)
        for bound in bounds:
            self._of_bound[bound.name] -= 1
            if self._of_bound[bound.name] == 0:
                del self._of_bound[bound.name]
        return self._grant_waiting()

    def place(self, run_id: str) -> Place:
        """The run's place, to be waited for. It must have been asked for."""
        return Place(self, run_id)

    async def wait_granted(self, run_id: str) -> None:
        """Return once the run has a place. From the call on it is ready for it.

        Raises:
            MisuseError: It never asked, or gave its place back.

        Cancellation: it goes on waiting in the queue until `release`.
        """
        if run_id in self._running:
            return
        waiting = self._queued.get(run_id)
        if waiting is None:
            raise MisuseError(f"run {run_id} hasn't asked for a place")
        if not waiting.ready:
            waiting.ready = True
            self._lanes.make_ready(waiting.lane, run_id)
            self._grant_waiting()
            if run_id in self._running:
                return
        if waiting.granted is None:
            waiting.granted = asyncio.get_running_loop().create_future()
        await asyncio.shield(waiting.granted)
        if run_id not in self._running:
            raise MisuseError(f"run {run_id} left the queue while somebody waited for its place")

    def _waits(self, run_id: str) -> PermitQueued:
        return PermitQueued(ahead=(self.find_position(run_id) or 1) - 1)

    def _bounds(self, tenant: str, share: Share | None) -> tuple[_Bound, ...]:
        bounds = [
            ("tenant", tenant, self._max_per_tenant),
            (f"share of {tenant}", share.name if share else "", share.max_running if share else None),
        ]
        return tuple(_Bound(f"{kind} {name}", most) for kind, name, most in bounds if most is not None)

    def _refusal(self, tenant: str, share: Share | None) -> PermitRefused | None:
        if share is not None and share.max_queued is not None:
            running, queued = self._lanes.counts(Lane(tenant, share.name))
            if queued >= share.max_queued:
                return PermitRefused(running=running, queued=queued, of_share=True)
        if len(self._queued) >= self._max_queued:
            return PermitRefused(running=self.running, queued=self.queued)
        return None

    def _fits(self, bounds: tuple[_Bound, ...]) -> bool:
        if len(self._running) >= self._max_running:
            return False
        return all(self._of_bound.get(bound.name, 0) < bound.max_running for bound in bounds)

    def _grant(self, run_id: str, lane: Lane, bounds: tuple[_Bound, ...]) -> None:
        self._running[run_id] = lane, bounds
        self._lanes.granted(lane)
        for bound in bounds:
            self._of_bound[bound.name] = self._of_bound.get(bound.name, 0) + 1

    def _grant_waiting(self) -> tuple[str, ...]:
        granted: list[str] = []
        while len(self._running) < self._max_running:
            run_id = self._lanes.find_next(lambda run_id: self._fits(self._queued[run_id].bounds))
            if run_id is None:
                break
            waiting = self._queued.pop(run_id)
            self._grant(run_id, waiting.lane, waiting.bounds)
            self._lanes.leave(waiting.lane, run_id)
            granted.append(run_id)
            _wake(waiting)
        return tuple(granted)


def _wake(waiting: _Waiting) -> None:
    if waiting.granted is not None and not waiting.granted.done():
        waiting.granted.set_result(None)


class Place:
    """One run's place."""

    __slots__ = ("_permits", "_run_id")

    def __init__(self, permits: Permits, run_id: str) -> None:
        self._permits = permits
        self._run_id = run_id

    async def acquire(self) -> None:
        """Wait for it. Cancellation: it goes on waiting in the queue until `release`."""
        await self._permits.wait_granted(self._run_id)

    def release(self) -> None:
        """Give it back, or leave the queue."""
        self._permits.release(self._run_id)
