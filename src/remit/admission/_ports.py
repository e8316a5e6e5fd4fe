"""What admission must be told by others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from remit.admission._permits import Share
from remit.contract import LimitRequest, RunView, WorkspaceRequest
from remit.errors import RequestError


class Catalog(Protocol):
    """Which models there are, and which of them have a price. Implemented where pools are built."""

    def models_of(self, pool: str) -> tuple[str, ...] | None:
        """`NAME:MODEL` of each member of a pool; None: no such pool."""
        ...

    def refusal(self, model: str) -> RequestError | None:
        """Why `NAME:MODEL` can't be asked at all; None: it can be.

        Its provider isn't configured, has no key or login, or doesn't serve such a model.
        """
        ...

    def takes_images(self, model: str, *, pool: str | None) -> bool:
        """Whether a model may be shown pictures, as a member of this pool; None: named on its own."""
        ...

    def is_priced(self, model: str) -> bool:
        """Whether the model has a price, or is free."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and what its key allows."""

    tenant: str = "local"
    bindings: frozenset[str] | None = None
    """The bindings that its key names; None: all. Any other answers as an unknown one."""
    limits: LimitRequest = field(default_factory=LimitRequest)
    """What its key allows at most; `max_cost_usd` over all its runs together, and so for each."""
    key_id: str | None = None
    """The key's id, put on record with each run; None: the owner of the machine, in this process."""
    origin: str | None = None
    """The address that it asks from; None: not over the network."""
    ask: str | None = None
    """What a repetition of this very call has in common with it; None: its door knows none."""
    max_running: int | None = None
    """Runs of its key that go on at once; more of them wait. None: no bound of its own."""
    max_queued: int | None = None
    """Runs of its key that wait; one more is refused. None: no bound of its own."""

    @property
    def share(self) -> Share | None:
        """What its runs have in common when places are given out; None: it came without a key."""
        if self.key_id is None:
            return None
        return Share(name=self.key_id, max_running=self.max_running, max_queued=self.max_queued)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """What was so when the request was looked at."""

    active_run_id: str | None = None
    """The session's active root run; None: there is none, or the session is new."""
    continued: RunView | None = None
    """The run that `continues` names, of the same tenant; None: there is none."""
    continued_workspace: WorkspaceRequest | None = None
    """What that run's request said of its workspace."""


class Sessions(Protocol):
    """Threads of runs. Implemented in `runs`."""

    async def look(self, *, session_id: str | None, continues: str | None, tenant: str) -> SessionFacts:
        """The facts that a request's `session_id` and `continues` call for."""
        ...
