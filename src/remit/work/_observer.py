"""Says where a piece of work is, for whoever does it."""

from __future__ import annotations

from typing import Protocol

from remit.work._entry import ObservationToken
from remit.work._items import ObservedStage


class Observable(Protocol):
    """What an observer needs of the work registry."""

    def observation_token(self, session_id: str, work_id: str) -> ObservationToken | None:
        """The right to observe an item as it is now; None when there is no such item."""
        ...

    def observe(self, token: ObservationToken, stage: ObservedStage) -> ObservationToken | None:
        """Record where an item is; the token that supersedes this one, or None."""
        ...


class Observer:
    """Moves the present registration of one item from stage to stage.

    Once that registration is replaced or gone, or somebody else moves it, this changes nothing any more: what
    an old owner still says isn't true of the new one's work.

    Args:
        registry: Where the item is registered.
        session_id: The item's session.
        work_id: The item; one that isn't registered is never seen anywhere.
    """

    __slots__ = ("_registry", "_token")

    def __init__(self, registry: Observable, session_id: str, work_id: str) -> None:
        self._registry = registry
        self._token = registry.observation_token(session_id, work_id)

    def see(self, stage: ObservedStage) -> None:
        """It is here now; seen there before, its time there starts anew."""
        if self._token is not None:
            self._token = self._registry.observe(self._token, stage)
