"""How a run stands in the queue of this host."""

from __future__ import annotations

from remit.admission import Permits
from remit.contract import RunStatus, RunView
from remit.runs._naming import LOCAL_TENANT, name_in_host


def with_position(run: RunView, permits: Permits, *, tenant: str = LOCAL_TENANT) -> RunView:
    """The run, with its place among its tenant's waiting ones; as it is where it doesn't wait here. Pure."""
    if run.status is not RunStatus.QUEUED:
        return run
    position = permits.find_position(name_in_host(tenant, run.id))
    return run if position is None else run.model_copy(update={"queue_position": position})
