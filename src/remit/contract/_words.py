"""The closed vocabularies of a run."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class RunStatus(StrEnum):
    """Where a run is. The edges between them are in `remit.runs`."""

    QUEUED = "queued"
    PLANNING = "planning"
    WORKING = "working"
    REVIEWING = "reviewing"
    FINALIZING = "finalizing"
    SETTLING = "settling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INDETERMINATE = "indeterminate"

    @property
    def ended(self) -> bool:
        """Whether nothing will happen to the run any more."""
        return self in _ENDED


_ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.INDETERMINATE})


class WorkKind(StrEnum):
    """What an entry of the work registry stands for."""

    RUN = "run"
    STAGE = "stage"
    MODEL_TURN = "model_turn"
    TOOL = "tool"
    NODE_CALL = "node_call"
    PLUGIN_INVOCATION = "plugin_invocation"
    EVENT_DELIVERY = "event_delivery"
    WORKFLOW = "workflow"
    WORKFLOW_NODE = "workflow_node"


Profile = Literal["reviewed", "direct", "answer"]
StageKind = Literal["plan", "work", "review"]
Isolation = Literal["overlay", "copy", "in_place"]
SandboxLevel = Literal["bubblewrap", "landlock", "external", "none"]
Gate = Literal["no_worse", "all_pass", "report"]
GateVerdict = Literal["pass", "worse", "skipped"]
DeliveryMode = Literal["apply", "branch", "patch"]
DeliveryStatus = Literal["delivered", "conflict", "skipped", "awaiting_approval", "discarded"]
ReviewDecision = Literal["pass", "revise", "reject"]
Preserve = Literal["never", "failed", "always"]
OnBusy = Literal["reject", "enqueue", "interrupt"]
How = Literal["not_started", "already_ended", "closed", "term", "kill", "notified", "abandoned"]
"""How one piece of work was stopped."""
ToolStatus = Literal[
    "success",
    "denied",
    "not_found",
    "too_large",
    "invalid_arguments",
    "conflict",
    "timed_out",
    "cancelled",
    "failed",
    "outcome_unknown",
]
"""What came of a tool call. A command that exited non-zero is `success`; its exit code tells."""
