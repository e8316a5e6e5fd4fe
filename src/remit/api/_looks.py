"""Which looks of an administrator are news to the audit record."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from remit.api._keys import Identity
from remit.primitives import Clock

_NEWS_AFTER_S: Final = 3600.0
_REMEMBERED: Final = 1_000


class Looks:
    """Remembers who looked at what lately, from where, and how that ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[tuple[str | None, ...], float] = OrderedDict()

    def is_news(self, identity: Identity, operation_id: str, outcome: str) -> bool:
        """Whether this look isn't the same as one within the last hour."""
        last = self._seen.get(_look(identity, operation_id, outcome))
        return last is None or self._clock.monotonic() - last >= _NEWS_AFTER_S

    def remember(self, identity: Identity, operation_id: str, outcome: str) -> None:
        """This look is on record."""
        look = _look(identity, operation_id, outcome)
        self._seen[look] = self._clock.monotonic()
        self._seen.move_to_end(look)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)


def _look(identity: Identity, operation_id: str, outcome: str) -> tuple[str | None, ...]:
    return identity.key.id, identity.origin, operation_id, outcome
