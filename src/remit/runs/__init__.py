"""Where a run is and what is next: its status table, supervisor, settlement, and the ports it needs."""

from remit.runs._allowances import Allowances, KeyLedger
from remit.runs._auditing import act_of, audit_of_admission, audit_of_event, audit_of_log, check_trim
from remit.runs._by_hand import may_be_delivered_later, read_newest_view
from remit.runs._context import RunContext, RunTimes
from remit.runs._control import CancelAsked, CancelBy, RunControl, check_reason
from remit.runs._deadlines import StageClock, queue_terminal, stage_clock, wall_clock_terminal
from remit.runs._deliveries import newest_delivery, with_newest_delivery
from remit.runs._dispatcher import DECLARED, Dispatcher, snapshot_of
from remit.runs._endings import Decision, classify_error
from remit.runs._feed import Feed
from remit.runs._hosted import HostedInput, HostedRun
from remit.runs._hosted_results import HostedResult, IndeterminateRun, SettledRun
from remit.runs._naming import LOCAL_TENANT, id_of_name, name_in_host, name_outside, no_run, tenant_of_name
from remit.runs._operations import (
    Answer,
    Done,
    HostedOperations,
    ModelTarget,
    Operation,
    OperationContext,
    OperationError,
    Refused,
    Session,
    SessionCreate,
    SessionCreated,
    SessionSpec,
    SkillInvocation,
    TurnBlocked,
    TurnQuery,
    TurnSnapshot,
    TurnSpec,
    TurnStart,
    TurnStarted,
    TurnStop,
    UsageCoverage,
    UsageProvenance,
    UsageQuery,
    UsageRange,
    UsageSummarised,
    UsageSummary,
    UsageTotals,
)
from remit.runs._placing import with_position
from remit.runs._ports import (
    AttemptRow,
    BilledAttempt,
    HistoryEntry,
    RunStore,
    SessionRow,
    StoredRun,
    Submission,
    Submitted,
)
from remit.runs._projection import VIEW_TYPES, fold_event, fold_payload
from remit.runs._salvage import Salvage, Salvaged, salvage_checkout
from remit.runs._scope import Deadline, Scope, ScopeEnd
from remit.runs._sessions import MAX_CONTEXT_CHARS, StoreSessions, describe_run
from remit.runs._shield import despite_cancel
from remit.runs._specs import join_request, split_request
from remit.runs._starting import RunDriver, Started, Starter
from remit.runs._states import TRANSITIONS, Trigger, next_status
from remit.runs._supervisor import Supervisor
from remit.runs._sweep import sweep_dead_runs
from remit.runs._telling import MAX_MESSAGE_CHARS, tell_run
from remit.runs._tombstones import Tombstone, end_buried

__all__ = [
    "DECLARED",
    "LOCAL_TENANT",
    "MAX_CONTEXT_CHARS",
    "MAX_MESSAGE_CHARS",
    "TRANSITIONS",
    "VIEW_TYPES",
    "Allowances",
    "Answer",
    "AttemptRow",
    "BilledAttempt",
    "CancelAsked",
    "CancelBy",
    "Deadline",
    "Decision",
    "Dispatcher",
    "Done",
    "Feed",
    "HistoryEntry",
    "HostedInput",
    "HostedOperations",
    "HostedResult",
    "HostedRun",
    "IndeterminateRun",
    "KeyLedger",
    "ModelTarget",
    "Operation",
    "OperationContext",
    "OperationError",
    "Refused",
    "RunContext",
    "RunControl",
    "RunDriver",
    "RunStore",
    "RunTimes",
    "Salvage",
    "Salvaged",
    "Scope",
    "ScopeEnd",
    "Session",
    "SessionCreate",
    "SessionCreated",
    "SessionRow",
    "SessionSpec",
    "SettledRun",
    "SkillInvocation",
    "StageClock",
    "Started",
    "Starter",
    "StoreSessions",
    "StoredRun",
    "Submission",
    "Submitted",
    "Supervisor",
    "Tombstone",
    "Trigger",
    "TurnBlocked",
    "TurnQuery",
    "TurnSnapshot",
    "TurnSpec",
    "TurnStart",
    "TurnStarted",
    "TurnStop",
    "UsageCoverage",
    "UsageProvenance",
    "UsageQuery",
    "UsageRange",
    "UsageSummarised",
    "UsageSummary",
    "UsageTotals",
    "act_of",
    "audit_of_admission",
    "audit_of_event",
    "audit_of_log",
    "check_reason",
    "check_trim",
    "classify_error",
    "describe_run",
    "despite_cancel",
    "end_buried",
    "fold_event",
    "fold_payload",
    "id_of_name",
    "join_request",
    "may_be_delivered_later",
    "name_in_host",
    "name_outside",
    "newest_delivery",
    "next_status",
    "no_run",
    "queue_terminal",
    "read_newest_view",
    "salvage_checkout",
    "snapshot_of",
    "split_request",
    "stage_clock",
    "sweep_dead_runs",
    "tell_run",
    "tenant_of_name",
    "wall_clock_terminal",
    "with_newest_delivery",
    "with_position",
]
