"""A caller's own bounds around what it started: a way to say stop, and a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from remit.errors import MisuseError
from remit.primitives import Clock, SystemClock, check_has
from remit.runs._control import check_reason

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

    It may hold any number of runs. A run that has ended isn't touched. While it holds some it belongs to
    their loop: an abort from elsewhere is refused, and ends nothing (`remit.SyncScope` takes it).

    Args:
        deadline: When it expires: an aware moment, or a length from now; None: never.
        clock: Tells what now is.

    Raises:
        MisuseError: The deadline is a moment without a zone, or neither a moment nor a length; or the clock
            is none.
    """

    def __init__(self, *, deadline: Deadline | None = None, clock: Clock | None = None) -> None:
        if clock is not None:
            check_has("clock", clock, "now", "monotonic")
        self._clock = clock if clock is not None else SystemClock()
        self._expires_at = None if deadline is None else self._clock.monotonic() + self._seconds(deadline)
        self._listeners: dict[object, Callable[[ScopeEnd], object]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
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
        """End what was started in it, and what will be. False: it had ended already.

        Args:
            reason: The caller's own words, for the receipts.

        Raises:
            MisuseError: The reason is no text or too long, or this isn't the loop of what was started in it.
                Nothing has ended.
        """
        check_reason(reason)
        self.check_loop()
        return self._end(ScopeEnd(code="caller", reason=reason))

    def check_loop(self) -> None:
        """Refuse what comes from elsewhere than the loop of what was started in it.

        Raises:
            MisuseError: Another loop runs here, or none.
        """
        if self._listeners and self._loop is not _running_loop():
            raise MisuseError("a scope belongs to the event loop of its runs; see `remit.SyncScope`")

    def on_abort(self, listener: Callable[[ScopeEnd], object]) -> Callable[[], None]:
        """Have somebody told, once; at once where the scope has ended. The listener must not wait, nor raise.

        Raises:
            MisuseError: Others listen already, on another loop.

        Returns:
            What ends the listening. Whoever listens calls it: only while somebody listens does a timer run.
        """
        self.check_loop()
        if self.ended is None and self.expired:
            self._end(ScopeEnd(code="deadline"))
        if self.ended is not None:
            listener(self.ended)
            return lambda: None
        key = object()
        self._loop = _running_loop()
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


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
