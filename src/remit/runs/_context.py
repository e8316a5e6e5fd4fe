"""What a run is given to work with. Chosen once, in the composition root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from remit.admission import Binding, Place
from remit.contract import StageKind
from remit.models import ModelPool
from remit.nodes import NodeLink
from remit.primitives import Clock, Ids
from remit.runs._control import RunControl
from remit.runs._feed import Feed
from remit.runs._ports import RunStore, StoredRun
from remit.usage import PriceBook
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
    place: Place
    """Of the bounded number of runs that go on at once; asked for at admission."""
    times: RunTimes = field(default_factory=RunTimes)
