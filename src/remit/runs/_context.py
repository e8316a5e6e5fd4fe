"""What a run is given to work with. Chosen once, in the composition root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from remit.admission import Binding
from remit.contract import StageKind
from remit.models import ModelPool
from remit.nodes import NodeLink
from remit.primitives import Clock, Ids
from remit.runs._control import RunControl
from remit.runs._feed import Feed
from remit.runs._lineage import Parentage
from remit.runs._ports import RunStore, StoredRun
from remit.usage import Budget, PriceBook
from remit.work import WorkRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """How long the parts of an end may take."""

    link_grace_ms: int = 30_000
    """How long a lost link is waited for; 0 for the embedded node of one run."""
    cancel_grace_ms: int = 2_000
    """Between TERM and KILL."""
    acknowledge_ms: int = 30_000
    """How long a run waits for an acknowledgement that was asked for."""
    drain_slack_ms: int = 15_000
    """Beyond the link's grace, for what is still running when the end is decided."""

    @property
    def stop_within_s(self) -> float:
        """How long a node is waited for that was asked to stop something."""
        return (self.link_grace_ms + self.drain_slack_ms) / 1000


class RunPlace(Protocol):
    """What bounds how many runs go on at once, from the side of one of them."""

    async def acquire(self) -> None:
        """Wait for it."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...


def _attach_nowhere(tenant: str, run_id: str, control: RunControl) -> AbstractContextManager[object]:
    return nullcontext()


async def _no_allowance() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """One run's surroundings."""

    stored: StoredRun
    """As it was claimed; its generation fences every write."""
    binding: Binding
    pools: Mapping[StageKind, ModelPool]
    store: RunStore
    link: NodeLink | None
    """None for a run without workspace."""
    registry: WorkRegistry
    feed: Feed
    prices: PriceBook
    clock: Clock
    ids: Ids
    control: RunControl
    place: RunPlace
    """Of the bounded number of runs that go on at once; asked for at admission."""
    times: RunTimes = field(default_factory=RunTimes)
    allowance: Callable[[], Awaitable[Budget | None]] = _no_allowance
    """What its key may spend over all its runs; none: no bound. A child spends from its parent's."""
    parentage: Parentage | None = None
    """Where a child run comes from; None: nobody's child."""
    attach: Callable[[str, str, RunControl], AbstractContextManager[object]] = _attach_nowhere
    """Lets others find a child by tenant and id for as long as it is driven here."""
