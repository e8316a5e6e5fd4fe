"""Where a host is.

starting ──open──> recovering ──recover──> ready ──drain──> draining
└───────────────────┴───────drain───────────────────────────^

starting    nothing can be asked of it: store, epoch and node are being opened
recovering  what dead epochs left behind is being ended; nothing is admitted yet
ready       runs are admitted
draining    nothing is admitted any more; what runs goes on until it ends or is ended. No way back
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from remit.errors import InternalError


class HostStatus(StrEnum):
    """Where a host is."""

    STARTING = "starting"
    RECOVERING = "recovering"
    READY = "ready"
    DRAINING = "draining"


class HostTrigger(StrEnum):
    """What moves a host on."""

    OPEN = "open"
    RECOVER = "recover"
    DRAIN = "drain"


_S = HostStatus
_T = HostTrigger

HOST_TRANSITIONS: Final[dict[tuple[HostStatus, HostTrigger], HostStatus]] = {
    (_S.STARTING, _T.OPEN): _S.RECOVERING,
    (_S.RECOVERING, _T.RECOVER): _S.READY,
    (_S.STARTING, _T.DRAIN): _S.DRAINING,
    (_S.RECOVERING, _T.DRAIN): _S.DRAINING,
    (_S.READY, _T.DRAIN): _S.DRAINING,
    (_S.DRAINING, _T.DRAIN): _S.DRAINING,
    (_S.DRAINING, _T.OPEN): _S.DRAINING,
    (_S.DRAINING, _T.RECOVER): _S.DRAINING,
}
"""(where it is, what happens) -> where it is then. What isn't here can't happen."""


def next_host_status(status: HostStatus, trigger: HostTrigger) -> HostStatus:
    """The status after a trigger.

    Raises:
        InternalError: That can't happen in this status.
    """
    try:
        return HOST_TRANSITIONS[status, trigger]
    except KeyError:
        raise InternalError(f"a {status} host can't {trigger}") from None
