"""What can be done to a run from outside while it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from remit.contract import AbandonedWork, RunView
from remit.errors import InternalError, MisuseError, RemitError
from remit.runs._telling import Messages
from remit.work import CleanupFailure, Residencies

CancelBy = Literal["caller", "operator", "client_disconnected", "deadline", "drain"]
_MAX_REASON_CHARS: Final = 1_000


def check_reason(reason: object) -> None:
    """A caller's own words for a cancel; None: there are none.

    Raises:
        MisuseError: It isn't a text, or it is too long.
    """
    if reason is not None and not isinstance(reason, str):
        raise MisuseError("a reason is a text", param="reason")
    if reason is not None and len(reason) > _MAX_REASON_CHARS:
        raise MisuseError(f"a reason has at most {_MAX_REASON_CHARS} characters", param="reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAsked:
    """The first cancel that a run was asked for; later ones join it."""

    by: CancelBy
    reason: str | None
    at: datetime
    at_monotonic: float


class RunControl:
    """The handle by which a run is stopped, answered and waited for.

    A cancel counts until the run is committed: from its delivery intent on (where none is due: from its
    decision on) it changes nothing.

    Args:
        residencies: Where what holds the run is counted; None: in no host's.
    """

    def __init__(self, *, residencies: Residencies | None = None) -> None:
        self.residencies = residencies if residencies is not None else Residencies()
        """What holds the run back from being settled."""
        self.asked: CancelAsked | None = None
        self.committed = False
        self.durable = asyncio.Event()
        """The terminal is stored; what is kept of the run may still be put away."""
        self.ended = asyncio.Event()
        self.final: RunView | None = None
        """The run as it ended; set before `ended`."""
        self.error: RemitError | None = None
        """Why this host can't tell how the run ended."""
        self.acknowledged: asyncio.Future[bool] | None = None
        """Set while the run waits for an acknowledgement."""
        self.approval: asyncio.Future[bool] | None = None
        """Set while the run waits for a person's word on its delivery."""
        self.messages = Messages()
        """Texts of the caller, to be read before the next round."""
        self.cleanup_failures: list[CleanupFailure] = []
        """Handles that raised after a cancel, to be put on record with the run's end."""
        self.unended: list[AbandonedWork] = []
        """What the node couldn't end before there was anything else of the run to drain."""
        self._when_ended: list[Callable[[], object]] = []
        self._stop: Callable[[CancelAsked], None] | None = None
        self._was_asked = asyncio.Event()

    def on_cancel(self, stop: Callable[[CancelAsked], None]) -> None:
        """Whom to tell; told at once when a cancel is already there."""
        self._stop = stop
        if self.asked is not None:
            stop(self.asked)

    def ask(self, asked: CancelAsked) -> bool:
        """Ask for a cancel, without waiting. False: ended, committed or asked before; nothing changes."""
        if self.committed or self.ended.is_set() or self.asked is not None:
            return False
        self.asked = asked
        self._was_asked.set()
        if self._stop is not None:
            self._stop(asked)
        return True

    async def wait_asked(self) -> CancelAsked:
        """The cancel, once there is one. Cancellation: the wait just ends."""
        await self._was_asked.wait()
        if self.asked is None:
            raise InternalError("a cancel was announced that nobody asked for")
        return self.asked

    def commit(self) -> bool:
        """From here on a cancel changes nothing. False: a cancel was there first."""
        if self.asked is not None:
            return False
        self.committed = True
        return True

    @property
    def waits_for_acknowledgement(self) -> bool:
        """Whether it waits for an acknowledgement now."""
        return self.acknowledged is not None and not self.acknowledged.done()

    @property
    def waits_for_approval(self) -> bool:
        """Whether it waits for a person's word on its delivery now."""
        return self.approval is not None and not self.approval.done()

    def acknowledge(self, accepted: bool) -> bool:
        """Answer a `finalizing` run that asked for it. False: none is waiting."""
        waiting = self.acknowledged
        if waiting is None or waiting.done():
            return False
        waiting.set_result(accepted)
        return True

    def approve(self, approved: bool) -> bool:
        """Say whether a run that waits for it delivers. False: none is waiting, or it was told before."""
        waiting = self.approval
        if waiting is None or waiting.done():
            return False
        waiting.set_result(approved)
        return True

    def end(self, view: RunView) -> None:
        """The terminal is durable, and nothing of the run goes on."""
        self.final = view
        self._set_ended()

    def fail(self, error: RemitError) -> None:
        """This host doesn't drive the run any more, and the run hasn't ended."""
        if not self.ended.is_set():
            self.error = error
            self._set_ended()

    def _set_ended(self) -> None:
        self._stop = None  # it leads to all that the run had, and from there back to here
        self.durable.set()
        self.ended.set()
        for told in self._when_ended:
            told()
        self._when_ended.clear()

    def when_ended(self, told: Callable[[], object]) -> None:
        """Have somebody told once the run has ended, or is lost to this host; at once where it has."""
        if self.ended.is_set():
            told()
        else:
            self._when_ended.append(told)

    async def wait(self) -> RunView:
        """The run as it ended.

        Raises:
            RemitError: This host lost the run, or couldn't store its end.

        Cancellation: the wait just ends; the run goes on.
        """
        await self.ended.wait()
        if self.final is None:
            raise self.error or InternalError("a run ended without an end")
        return self.final
