"""The states of a host."""

from __future__ import annotations

import itertools

import pytest

from remit.errors import InternalError
from remit.host import HOST_TRANSITIONS, HostStatus, HostTrigger, next_host_status


@pytest.mark.parametrize(("status", "trigger"), list(itertools.product(HostStatus, HostTrigger)))
def test_every_status_and_trigger(status: HostStatus, trigger: HostTrigger) -> None:
    """What is in the table happens; what isn't, can't."""
    if (status, trigger) in HOST_TRANSITIONS:
        assert next_host_status(status, trigger) is HOST_TRANSITIONS[status, trigger]
    else:
        with pytest.raises(InternalError):
            next_host_status(status, trigger)


def test_a_drain_is_for_ever() -> None:
    """R62: from every status there is a way to draining, and none back."""
    for status in HostStatus:
        assert next_host_status(status, HostTrigger.DRAIN) is HostStatus.DRAINING
    for trigger in HostTrigger:
        assert next_host_status(HostStatus.DRAINING, trigger) is HostStatus.DRAINING
