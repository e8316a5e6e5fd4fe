"""A caller's own bounds around what it started: a way to say stop, and a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from remit.errors import MisuseError
from remit.primitives import Clock, SystemClock

Deadline: TypeAlias = datetime | timedelta
"""A moment (aware), or a length of time from now."""
ScopeCode = Literal["caller", "deadline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeEnd:
    """Why a scope ended what was started in it."""

    code: ScopeCode
    """A code of the terminal class `cancelled`."""
    reason: str | None = None
    """The caller's own words."""


class Scope:
    """Bounds what is started in it: aborted by hand, or by its deadline; the first of the two counts.

        scope = Scope(deadline=timedelta(minutes=10))
        run = await host.start(request, scope=scope)
        ...
        scope.abort("nobody needs it any more")

    It may hold any number of runs. A run that has ended isn't touched. Belongs to one loop.

    Args:
        deadline: When it expires: an aware moment, or a length from now; None: never.
        clock: Tells what now is.

    Raises:
        MisuseError: The deadline is a moment without a zone, or neither a moment nor a length.
    """

    def __init__(self, *, deadline: Deadline | None = None, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._expires_at = None if deadline is None else self._clock.monotonic() + self._seconds(deadline)
        self._listeners: dict[object, Callable[[ScopeEnd], object]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.ended: ScopeEnd | None = None
        """Set once, when the scope is aborted or has expired while somebody listened."""

    def _seconds(self, deadline: Deadline) -> float:
        if isinstance(deadline, timedelta):
            return deadline.total_seconds()
        if not isinstance(deadline, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise MisuseError("a deadline is a datetime with a zone, or a timedelta", param="deadline")
        if deadline.tzinfo is None:
            raise MisuseError("a deadline that is a moment must name its zone", param="deadline")
        return (deadline - self._clock.now()).total_seconds()

    @property
    def expired(self) -> bool:
        """Whether its deadline has passed."""
        return self._expires_at is not None and self._clock.monotonic() >= self._expires_at

    @property
    def aborted(self) -> bool:
        """Whether what is started in it is to end at once."""
        return self.ended is not None or self.expired

    def abort(self, reason: str | None = None) -> bool:
        """End what was started in it, and what will be. False: it had ended already."""
        return self._end(ScopeEnd(code="caller", reason=reason))

    def on_abort(self, listener: Callable[[ScopeEnd], object]) -> Callable[[], None]:
        """Have somebody told, once; at once where the scope has ended. The listener must not wait, nor raise.

        Returns:
            What ends the listening. Whoever listens calls it: only while somebody listens does a timer run.
        """
        if self.ended is None and self.expired:
            self._end(ScopeEnd(code="deadline"))
        if self.ended is not None:
            listener(self.ended)
            return lambda: None
        key = object()
        self._listeners[key] = listener
        self._arm()
        return lambda: self._forget(key)

    def _end(self, end: ScopeEnd) -> bool:
        if self.ended is not None:
            return False
        self.ended = end
        listeners, self._listeners = tuple(self._listeners.values()), {}
        self._disarm()
        for listener in listeners:
            listener(end)
        return True

    def _forget(self, key: object) -> None:
        self._listeners.pop(key, None)
        if not self._listeners:
            self._disarm()

    def _arm(self) -> None:
        if self._timer is None and self._expires_at is not None:
            left_s = max(0.0, self._expires_at - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(left_s, self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if self.expired:
            self._end(ScopeEnd(code="deadline"))
        elif self._listeners:
            self._arm()  # the loop's clock and ours needn't agree to the last digit
