"""Where a run is and what is next: its status table, supervisor, settlement, and the ports it needs."""

from remit.runs._context import RunContext, RunTimes
from remit.runs._control import CancelAsked, CancelBy, RunControl
from remit.runs._deadlines import StageClock, queue_terminal, stage_clock, wall_clock_terminal
from remit.runs._endings import Decision, classify_error
from remit.runs._feed import Feed
from remit.runs._ports import (
    AttemptRow,
    HistoryEntry,
    RunStore,
    StoredRun,
    Submission,
    Submitted,
)
from remit.runs._projection import VIEW_TYPES, fold_event, fold_payload
from remit.runs._states import TRANSITIONS, Trigger, next_status
from remit.runs._supervisor import Supervisor
from remit.runs._supported import refuse_later
from remit.runs._sweep import sweep_dead_runs

__all__ = [
    "TRANSITIONS",
    "VIEW_TYPES",
    "AttemptRow",
    "CancelAsked",
    "CancelBy",
    "Decision",
    "Feed",
    "HistoryEntry",
    "RunContext",
    "RunControl",
    "RunStore",
    "RunTimes",
    "StageClock",
    "StoredRun",
    "Submission",
    "Submitted",
    "Supervisor",
    "Trigger",
    "classify_error",
    "fold_event",
    "fold_payload",
    "next_status",
    "queue_terminal",
    "refuse_later",
    "stage_clock",
    "sweep_dead_runs",
    "wall_clock_terminal",
]
