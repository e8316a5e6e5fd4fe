"""The handle of one run, and what it reaches of its host."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol, get_args

from remit.admission import Caller, Permits
from remit.contract import CancelReceipt, Delivery, RunView
from remit.errors import (
    InvalidRequest,
    MisuseError,
    RunCancelled,
    RunError,
    RunExpired,
    RunFailed,
    RunIndeterminate,
)
from remit.events import Event
from remit.host._watching import Watch
from remit.primitives import check_count, check_flag, check_text
from remit.runs import (
    MAX_MESSAGE_CHARS,
    CancelBy,
    Dispatcher,
    Feed,
    OperationContext,
    RunDriver,
    RunStore,
    StoredRun,
    TurnStop,
    check_reason,
    no_run,
    read_newest_view,
    tell_run,
    with_position,
)

_ERRORS: Final = {"failed": RunFailed, "cancelled": RunCancelled, "indeterminate": RunIndeterminate}


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelOutcome:
    """What a cancel did."""

    changed: bool
    """False: the run had ended, or was committed to its end; nothing changed."""
    run: RunView
    """The run as it ended."""

    @property
    def receipt(self) -> CancelReceipt | None:
        """Each piece of work, how it was stopped and how fast; None where no cancel counted."""
        return self.run.cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a handle reaches of an open host."""

    store: RunStore
    feed: Feed
    driver: RunDriver
    dispatcher: Dispatcher
    context: OperationContext
    door: Callable[[], Delivering]
    permits: Permits


class Delivering(Protocol):
    """What is done with a run's patch by hand."""

    async def deliver(
        self,
        run: StoredRun,
        *,
        caller: Caller,
        unreviewed: bool,
        allow_protected: bool,
        branch: str | None = None,
    ) -> Delivery:
        """Let a waiting run deliver, or deliver the patch of an ended one."""
        ...

    async def discard(self, run: StoredRun, *, caller: Caller) -> Delivery:
        """Let the patch never be delivered."""
        ...


class Run:
    """The handle of one run. It holds nothing: dropping it changes nothing.

    Every method raises `MisuseError` when its host is closed, or is used from another loop than its own.
    """

    def __init__(self, reach: Callable[[], Reach], run_id: str, *, watch: Watch | None = None) -> None:
        self._reach = reach
        self._watch = watch
        self.id = run_id

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    # ---- looking

    def events(self, *, after: int = 0) -> AsyncGenerator[Event]:
        """Its events behind number `after`, to its terminal; what isn't stored (`seq` None) comes in between.

        Behind the last event of an ended run there is nothing.

        Raises:
            MisuseError: `after` isn't a number of an event, or 0.
            NotFound: There is no such run; from the first step, as is the next one.
            InvalidRequest: The run has no event of that number yet.

        Cancellation: this viewer is gone; the run goes on.
        """
        check_count("after", after)
        return self._follow(self._reach(), after)

    async def _follow(self, reach: Reach, after: int) -> AsyncGenerator[Event]:
        stored = await self._stored()
        if after > stored.last_seq:
            last = stored.last_seq
            raise InvalidRequest(f"the run has no event {after} yet: its last one is {last}", param="after")
        if stored.view.status.ended and after == stored.last_seq:
            return
        async with aclosing(reach.feed.follow(self.id, after=after)) as events:
            async for event in events:
                yield event

    async def view(self) -> RunView:
        """The run as it stands now.

        Raises:
            NotFound: There is no such run.
        """
        stored = await self._stored()
        newest = await read_newest_view(self._reach().store, stored.view)
        return with_position(newest, self._reach().permits)

    async def ended(self) -> RunView:
        """The run as it ended, however it ended. Cancellation: the wait just ends; the run goes on.

        Raises:
            NotFound: There is no such run.
            RemitError: This host lost the run, or couldn't store its end.
        """
        reach = self._reach()
        while True:
            control = reach.driver.find_control(self.id)
            if control is not None:
                return await control.wait()
            stored = await reach.store.find_run(self.id)
            if stored is None:
                raise no_run(self.id)
            if stored.view.status.ended:
                return stored.view
            # Another process has it: its log is all that is seen of it here.
            await reach.store.wait_for_events(self.id, after=stored.last_seq)

    async def wait(self) -> RunView:
        """The run, once it has completed.

        Raises:
            RunFailed: It failed.
            RunExpired: The caller's own deadline ended it; also a `TimeoutError`.
            RunCancelled: It was cancelled. Where a callback of the caller's was why, that is its cause.
            RunIndeterminate: How it ended, or what it cost, can't be proven.

        Cancellation: the wait just ends; the run goes on.
        """
        view = await self.ended()
        error = error_of(view)
        if error is None:
            return view
        raise error from (self._watch.error if self._watch is not None else None)

    # ---- acting

    async def cancel(self, *, by: CancelBy = "caller", reason: str | None = None) -> CancelOutcome:
        """Stop the run and everything it started; returns once its terminal is durable.

        A second cancel joins the first. An ended run is left as it is.

        Args:
            by: On whose account: the code of its end.
            reason: The caller's own words, for the receipt.

        Raises:
            MisuseError: No such account, or a reason that is no text or too long.
            PreconditionFailed: Another host process drives the run.
            RemitError: This host lost the run, or couldn't store its end.

        Cancellation: the cancel stands; only the wait ends.
        """
        reach, stop = self._reach(), stop_of(self.id, by=by, reason=reason)
        changed = reach.dispatcher.ask_to_stop(stop, reach.context)
        (await reach.dispatcher.stop_turn(stop, reach.context)).get()
        return CancelOutcome(changed=changed, run=await self.view())

    def cancel_nowait(self, *, by: CancelBy = "caller", reason: str | None = None) -> bool:
        """Ask for the cancel without waiting for it. False: it changes nothing.

        Raises:
            MisuseError: No such account, or a reason that is no text or too long.
        """
        reach = self._reach()
        return reach.dispatcher.ask_to_stop(stop_of(self.id, by=by, reason=reason), reach.context)

    def acknowledge(self, accepted: bool = True) -> bool:
        """Answer a `finalizing` run that asked for it. False: it isn't waiting, and nothing changed.

        Raises:
            MisuseError: The answer is neither true nor false.
        """
        check_flag("accepted", accepted)
        control = self._reach().driver.find_control(self.id)
        return control is not None and control.acknowledge(accepted)

    async def input(self, text: str) -> None:
        """Add something while the run goes on: the model reads it before its next round, as the caller's.

        Where no round follows any more, nobody reads it. What stages have read stands in the transcript.

        Args:
            text: 1 to 32 768 characters.

        Raises:
            MisuseError: It isn't a text, or it is empty or too long.
            NotFound: There is no such run.
            PreconditionFailed: It has ended, or is about to; or another host process drives it.
            QuotaExceeded: Too many messages wait for the next round.
        """
        check_text("text", text, most_chars=MAX_MESSAGE_CHARS)
        reach = self._reach()
        await tell_run(self.id, text, store=reach.store, driver=reach.driver)

    async def deliver(
        self, *, branch: str | None = None, unreviewed: bool = False, allow_protected: bool = False
    ) -> Delivery:
        """Let a run that waits for approval deliver, or deliver the patch of an ended one, all or nothing.

        Args:
            branch: The new branch that an ended run's patch goes to; None: the workspace's tree.
            unreviewed: Whether a patch may be taken that no review has passed.
            allow_protected: Whether it may touch protected paths.

        Returns:
            What came of it: `delivered`, or `conflict`, and nothing was changed.

        Raises:
            MisuseError: The branch is no text, or what is allowed isn't said by True or False.
            NotFound: There is no such run, or its workspace is gone.
            PreconditionFailed: It can't be delivered as it is; the message says what would let it.

        Cancellation: it is delivered whole, or not.
        """
        if branch is not None:
            check_text("branch", branch)
        check_flag("unreviewed", unreviewed)
        check_flag("allow_protected", allow_protected)
        return (
            await self._reach()
            .door()
            .deliver(
                await self._stored(),
                caller=Caller(),
                unreviewed=unreviewed,
                allow_protected=allow_protected,
                branch=branch,
            )
        )

    async def discard(self) -> Delivery:
        """Let the patch of a run that waits for approval, or has ended, never be delivered.

        Raises:
            NotFound: There is no such run.
            PreconditionFailed: It was delivered, there is none, or the run goes on and doesn't wait.
        """
        return await self._reach().door().discard(await self._stored(), caller=Caller())

    async def _stored(self) -> StoredRun:
        stored = await self._reach().store.find_run(self.id)
        if stored is None:
            raise no_run(self.id)
        return stored


def checked_run_id(run_id: object) -> str:
    """A run's id, as far as that can be said without looking it up.

    Raises:
        MisuseError: It isn't a text.
    """
    if not isinstance(run_id, str):
        raise MisuseError("a run's id is a text", param="run_id")
    return run_id


def stop_of(run_id: str, *, by: CancelBy, reason: str | None, tombstone: bool = False) -> TurnStop:
    """The stop that a caller asks for.

    Raises:
        MisuseError: No such account, an id or a reason that is no text, or a reason that is too long.
    """
    checked_run_id(run_id)
    check_flag("tombstone", tombstone)
    if by not in get_args(CancelBy):
        raise MisuseError(f"a run is cancelled by one of {', '.join(get_args(CancelBy))}", param="by")
    check_reason(reason)
    return TurnStop(session_id=run_id, turn_id=run_id, by=by, reason=reason, tombstone=tombstone)


def error_of(view: RunView) -> RunError | None:
    """The error that says how an ended run ended; None where it completed."""
    terminal = view.terminal
    if terminal is None or terminal.kind == "completed":
        return None
    kind = RunExpired if terminal.code == "deadline" else _ERRORS[terminal.kind]
    return kind(
        terminal.message or terminal.kind,
        **{"run_id": view.id, "kind": terminal.kind, "class": terminal.class_, "reason": terminal.code},
    )
