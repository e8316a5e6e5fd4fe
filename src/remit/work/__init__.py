"""What is running, and who stops it.

The work registry holds every run, stage, provider attempt, tool call and node call as data before it is a
task, in the tree in which they started one another. A cancel flags a part of that tree in one step, also for
what is registered there later, and fires each item's handle in a task of its own; waiting for the end is a
second tool. `Residencies` are the counted reasons why a run, or the host, can't be settled yet. No I/O here.
"""

from remit.work._cleanup import (
    CLEANUP_DURATION_MS,
    CLEANUP_TOTAL,
    Cleanup,
    CleanupFailure,
    Cleanups,
    CleanupScope,
)
from remit.work._entry import ObservationToken
from remit.work._handles import (
    CancelToken,
    DeliveryHandle,
    DurableFlagHandle,
    Handle,
    InvocationHandle,
    NodeCallHandle,
    ProbeHandle,
    ScopeHandle,
    ServiceCallHandle,
    StreamHandle,
)
from remit.work._items import (
    ActivityCount,
    ClosedItem,
    Observation,
    ObservationPage,
    ObservedStage,
    OpenItem,
    PageEntry,
    Registration,
    WorkId,
    WorkSnapshot,
    WorkSpec,
)
from remit.work._metrics import BOUNDS_MS, CounterSeries, HistogramSeries, Metrics
from remit.work._observer import Observable, Observer
from remit.work._permits import SharedExecutionLink, SharedExecutionObservation, SharedExecutionPermit
from remit.work._registry import WorkRegistry
from remit.work._residencies import Residencies, Residency

__all__ = [
    "BOUNDS_MS",
    "CLEANUP_DURATION_MS",
    "CLEANUP_TOTAL",
    "ActivityCount",
    "CancelToken",
    "Cleanup",
    "CleanupFailure",
    "CleanupScope",
    "Cleanups",
    "ClosedItem",
    "CounterSeries",
    "DeliveryHandle",
    "DurableFlagHandle",
    "Handle",
    "HistogramSeries",
    "InvocationHandle",
    "Metrics",
    "NodeCallHandle",
    "Observable",
    "Observation",
    "ObservationPage",
    "ObservationToken",
    "ObservedStage",
    "Observer",
    "OpenItem",
    "PageEntry",
    "ProbeHandle",
    "Registration",
    "Residencies",
    "Residency",
    "ScopeHandle",
    "ServiceCallHandle",
    "SharedExecutionLink",
    "SharedExecutionObservation",
    "SharedExecutionPermit",
    "StreamHandle",
    "WorkId",
    "WorkRegistry",
    "WorkSnapshot",
    "WorkSpec",
]
