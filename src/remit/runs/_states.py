"""Where a run is, and how it gets on.

    queued ──plan──> planning ──work──> working ──review──> reviewing ──finalize──> finalizing
      │                                  │  ^  ^               │  ^                    │   │
      └──────────────work────────────────┘  │  └────work───────┘  └──────review────────┘   │
                                            └───────────────────work───────────────────────┘
    working ──finalize──> finalizing          (profile direct)
    any of these ──settle──> settling ──complete|fail|cancel|lose──> one of the four ends

What may be trusted in a status, also after a crash:

    queued        nothing has been spent; the base may be pinned; no checkout was opened
    planning      `started_at` and `deadline_at` are set; no checkout unless a planner's tool opened it
    working       the plan is an artifact (profile reviewed); the checkout's open was sent
    reviewing     a work stage answered; its completion is in the log
    finalizing    the last `review.decided` is a pass bound to a content hash (direct: the completion);
                  after `delivery.intent` the tree may be half way, and the journal on the node says how far
    settling      `run.settling` holds the decision; it is finished, never retaken
    the four ends the terminal event is the last of the log, and nothing of the run is left to do

Cancel-requested and lease-lost are flags, never statuses.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from remit.contract import RunStatus
from remit.errors import InternalError


class Trigger(StrEnum):
    """What moves a run on."""

    PLAN = "plan"
    WORK = "work"
    REVIEW = "review"
    FINALIZE = "finalize"
    SETTLE = "settle"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    LOSE = "lose"


_S = RunStatus
_T = Trigger

TRANSITIONS: Final[dict[tuple[RunStatus, Trigger], RunStatus]] = {
    (_S.QUEUED, _T.PLAN): _S.PLANNING,
    (_S.QUEUED, _T.WORK): _S.WORKING,
    (_S.PLANNING, _T.WORK): _S.WORKING,
    (_S.WORKING, _T.REVIEW): _S.REVIEWING,
    (_S.WORKING, _T.FINALIZE): _S.FINALIZING,
    (_S.REVIEWING, _T.WORK): _S.WORKING,
    (_S.REVIEWING, _T.FINALIZE): _S.FINALIZING,
    (_S.FINALIZING, _T.WORK): _S.WORKING,
    (_S.FINALIZING, _T.REVIEW): _S.REVIEWING,
    (_S.QUEUED, _T.SETTLE): _S.SETTLING,
    (_S.PLANNING, _T.SETTLE): _S.SETTLING,
    (_S.WORKING, _T.SETTLE): _S.SETTLING,
    (_S.REVIEWING, _T.SETTLE): _S.SETTLING,
    (_S.FINALIZING, _T.SETTLE): _S.SETTLING,
    (_S.SETTLING, _T.COMPLETE): _S.COMPLETED,
    (_S.SETTLING, _T.FAIL): _S.FAILED,
    (_S.SETTLING, _T.CANCEL): _S.CANCELLED,
    (_S.SETTLING, _T.LOSE): _S.INDETERMINATE,
}
"""(where it is, what happens) -> where it is then. What isn't here can't happen."""


def next_status(status: RunStatus, trigger: Trigger) -> RunStatus:
    """The status after a trigger.

    Raises:
        InternalError: That can't happen in this status.
    """
    try:
        return TRANSITIONS[status, trigger]
    except KeyError:
        raise InternalError(
            f"a {status} run can't {trigger}", status=str(status), trigger=str(trigger)
        ) from None
