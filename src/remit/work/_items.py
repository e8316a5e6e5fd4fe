"""What the registry is given about a piece of work, and what it shows of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from remit.contract import How, WorkKind
from remit.work._handles import Handle


class ObservedStage(StrEnum):
    """Where a piece of work was last seen. The order isn't enforced."""

    DISPATCH = "dispatch"
    """On its way to whoever does it, or waiting to be sent again."""
    RECEIPT_WAIT = "receipt_wait"
    """Sent: the answer of a provider, a node, a child run or a receiver is waited for."""
    CLEANUP = "cleanup"
    """Being stopped, or put away."""
    RETIREMENT = "retirement"
    """It has ended, and that is being put on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSpec:
    """A piece of work, as data, before it is a task."""

    work_id: str
    """Unique within its session."""
    kind: WorkKind
    label: str
    """For people: what it is about. Never part of a metric."""
    handle: Handle
    """What a cancel fires."""
    tool_call_id: str | None = None
    plugin_id: str | None = None
    service_interface: str | None = None
    operation: str | None = None
    parent_work_id: str | None = None
    parent_session_id: str | None = None
    """The parent's session where that is another one; None: the item's own."""
    guard: object | None = None
    """Ownership that ends when whoever takes the spec drops it."""


class Registration(NamedTuple):
    """The answer to `register`."""

    cancellable: bool
    newly_registered: bool
    """False: the id was registered already, and this replaced it. No second start is due."""


class WorkId(NamedTuple):
    """A piece of work's full name."""

    session_id: str
    work_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Where a piece of work was last seen, and for how long it has been there."""

    stage: ObservedStage
    elapsed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSnapshot:
    """What the registry shows of one item: these seven fields and no more."""

    work_id: str
    kind: WorkKind
    label: str
    tool_call_id: str | None
    status: Literal["running", "cancelling"]
    observation: Observation | None
    """None until a stage was observed."""
    cancellable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageEntry:
    """One line of an observation page."""

    work_id: str
    stage: ObservedStage | None
    elapsed_ms: int | None
    cancelled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationPage:
    """At most 128 items of one session, ordered by work id."""

    entries: tuple[PageEntry, ...]
    next_after: str | None
    """The cursor of the next page; None: this was the last."""


@dataclass(frozen=True, slots=True)
class ActivityCount:
    """How much goes on in a session, counted up to a budget."""

    count: int
    complete: bool
    """False: there is more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedItem:
    """A piece of work that ended after a cancel had reached it."""

    session_id: str
    work_id: str
    kind: WorkKind
    label: str
    how: How
    ms: int
    """From the cancel that was asked for to the end of this work."""
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenItem:
    """A piece of work that hasn't ended yet."""

    session_id: str
    work_id: str
    kind: WorkKind
    label: str
