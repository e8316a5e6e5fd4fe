"""The run's status table."""

from __future__ import annotations

import pytest

from remit.contract import RunStatus
from remit.errors import InternalError
from remit.runs._states import TRANSITIONS, Trigger, next_status

LIVE = [status for status in RunStatus if not status.ended]
ENDED = [status for status in RunStatus if status.ended]


@pytest.mark.parametrize("status", [s for s in LIVE if s is not RunStatus.SETTLING])
def test_every_live_status_can_settle(status: RunStatus) -> None:
    """A run can be decided from wherever it is (R11)."""
    assert next_status(status, Trigger.SETTLE) is RunStatus.SETTLING


@pytest.mark.parametrize("status", ENDED)
@pytest.mark.parametrize("trigger", list(Trigger))
def test_nothing_leaves_an_end(status: RunStatus, trigger: Trigger) -> None:
    """The first terminal wins, whatever comes later (R5)."""
    with pytest.raises(InternalError):
        next_status(status, trigger)


@pytest.mark.parametrize("status", list(RunStatus))
@pytest.mark.parametrize("trigger", list(Trigger))
def test_what_is_not_in_the_table_is_refused(status: RunStatus, trigger: Trigger) -> None:
    """Every pair of status and trigger either has its edge or is refused."""
    if (status, trigger) in TRANSITIONS:
        assert next_status(status, trigger) is TRANSITIONS[status, trigger]
    else:
        with pytest.raises(InternalError):
            next_status(status, trigger)


def test_every_status_is_reached() -> None:
    """No status stands in the table that no run can come to."""
    assert set(TRANSITIONS.values()) == set(RunStatus) - {RunStatus.QUEUED}


def test_revise_broken_gate_and_void_pass_go_back() -> None:
    """A revise and a broken gate go back to work, a void pass to review."""
    assert next_status(RunStatus.REVIEWING, Trigger.WORK) is RunStatus.WORKING
    assert next_status(RunStatus.FINALIZING, Trigger.WORK) is RunStatus.WORKING
    assert next_status(RunStatus.FINALIZING, Trigger.REVIEW) is RunStatus.REVIEWING
