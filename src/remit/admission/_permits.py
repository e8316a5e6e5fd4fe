"""How many runs go on at once, and how many may wait; pure in shape, with one awaitable on top."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal, TypeAlias

from remit.errors import MisuseError


@dataclass(frozen=True, slots=True)
class PermitGranted:
    """The run may go on now."""

    kind: Literal["granted"] = "granted"


@dataclass(frozen=True, slots=True)
class PermitQueued:
    """The run waits; so many are before it."""

    ahead: int
    kind: Literal["queued"] = "queued"


@dataclass(frozen=True, slots=True)
class PermitRefused:
    """As many wait as may; nothing was taken."""

    running: int
    queued: int
    kind: Literal["refused"] = "refused"


PermitAnswer: TypeAlias = PermitGranted | PermitQueued | PermitRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A bound that several runs have in common, such as those of one key."""

    name: str
    max_running: int


@dataclass(slots=True)
class _Waiting:
    shares: tuple[Share, ...]
    granted: asyncio.Future[None] | None = None


class Permits:
    """Places for runs, given out in the order in which they were asked for.

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
        self._running: dict[str, tuple[Share, ...]] = {}
        self._queued: dict[str, _Waiting] = {}
        self._of_share: dict[str, int] = {}

    @property
    def running(self) -> int:
        """Runs that have a place."""
        return len(self._running)

    @property
    def queued(self) -> int:
        """Runs that wait for one."""
        return len(self._queued)

    def would_refuse(self) -> PermitRefused | None:
        """Whether one more run would be refused now."""
        if len(self._queued) < self._max_queued or len(self._running) < self._max_running:
            return None
        return PermitRefused(running=self.running, queued=self.queued)

    def holds(self, run_id: str) -> bool:
        """Whether the run has a place, or waits for one."""
        return run_id in self._running or run_id in self._queued

    def ask(self, run_id: str, *, tenant: str = "local", share: Share | None = None) -> PermitAnswer:
        """Ask for a place; the run has it, or waits, or is refused. Asking again changes nothing.

        Args:
            run_id: What names the run over all tenants.
            tenant: Whose it is.
            share: A bound of its own that it shares with others, such as its key's.
        """
        if run_id in self._running:
            return PermitGranted()
        if run_id in self._queued:
            return PermitQueued(ahead=tuple(self._queued).index(run_id))
        shares = self._shares(tenant, share)
        # Whoever waits can't run now (its tenant or key is at its bound), so nobody is overtaken here.
        if self._fits(shares):
            self._grant(run_id, shares)
            return PermitGranted()
        if len(self._queued) >= self._max_queued:
            return PermitRefused(running=self.running, queued=self.queued)
        self._queued[run_id] = _Waiting(shares)
        return PermitQueued(ahead=len(self._queued) - 1)

    def release(self, run_id: str) -> tuple[str, ...]:
        """Give a place, or a place in the queue, back; returns the runs that may go on now.

        Releasing what holds nothing changes nothing.
        """
        left = self._queued.pop(run_id, None)
        if left is not None and left.granted is not None and not left.granted.done():
            left.granted.set_result(None)
        for share in self._running.pop(run_id, ()):
            self._of_share[share.name] -= 1
            if self._of_share[share.name] == 0:
                del self._of_share[share.name]
        return self._grant_waiting()

    def place(self, run_id: str) -> Place:
        """The run's place, to be waited for. It must have been asked for."""
        return Place(self, run_id)

    async def wait_granted(self, run_id: str) -> None:
        """Return once the run has a place.

        Raises:
            MisuseError: It never asked, or gave its place back.

        Cancellation: it goes on waiting in the queue until `release`.
        """
        if run_id in self._running:
            return
        waiting = self._queued.get(run_id)
        if waiting is None:
            raise MisuseError(f"run {run_id} hasn't asked for a place")
        if waiting.granted is None:
            waiting.granted = asyncio.get_running_loop().create_future()
        await asyncio.shield(waiting.granted)
        if run_id not in self._running:
            raise MisuseError(f"run {run_id} left the queue while somebody waited for its place")

    def _shares(self, tenant: str, share: Share | None) -> tuple[Share, ...]:
        own = () if share is None else (Share(name=f"share {share.name}", max_running=share.max_running),)
        if self._max_per_tenant is None:
            return own
        return (Share(name=f"tenant {tenant}", max_running=self._max_per_tenant), *own)

    def _fits(self, shares: tuple[Share, ...]) -> bool:
        if len(self._running) >= self._max_running:
            return False
        return all(self._of_share.get(share.name, 0) < share.max_running for share in shares)

    def _grant(self, run_id: str, shares: tuple[Share, ...]) -> None:
        self._running[run_id] = shares
        for share in shares:
            self._of_share[share.name] = self._of_share.get(share.name, 0) + 1

    def _grant_waiting(self) -> tuple[str, ...]:
        granted: list[str] = []
        for run_id, waiting in tuple(self._queued.items()):
            if len(self._running) >= self._max_running:
                break
            if self._fits(waiting.shares):
                del self._queued[run_id]
                self._grant(run_id, waiting.shares)
                granted.append(run_id)
                if waiting.granted is not None and not waiting.granted.done():
                    waiting.granted.set_result(None)
        return tuple(granted)


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
