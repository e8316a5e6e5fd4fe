"""The handle of one run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remit.contract import CancelReceipt, RunView
from remit.errors import NotFound, RunCancelled, RunFailed, RunIndeterminate
from remit.events import Event
from remit.runs import CancelBy

if TYPE_CHECKING:
    from remit.host._host import Host


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


class Run:
    """The handle of one run. It holds nothing: dropping it changes nothing."""

    def __init__(self, host: Host, run_id: str) -> None:
        self._host = host
        self.id = run_id

    def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Its events from `after` on, to its terminal; what isn't stored (`seq` None) comes in between.

        Cancellation: this viewer is gone; the run goes on.
        """
        return self._host._follow(self.id, after)  # pyright: ignore[reportPrivateUsage] - one package

    async def view(self) -> RunView:
        """The run as it stands now.

        Raises:
            NotFound: There is no such run.
        """
        view = await self._host.find_run(self.id)
        if view is None:
            raise NotFound(f"no run {self.id}", run_id=self.id)
        return view

    async def ended(self) -> RunView:
        """The run as it ended, however it ended. Cancellation: the wait just ends; the run goes on.

        Raises:
            NotFound: There is no such run.
            RemitError: This host lost the run, or couldn't store its end.
        """
        control = self._host._control(self.id)  # pyright: ignore[reportPrivateUsage] - one package
        return await control.wait() if control is not None else await self.view()

    async def wait(self) -> RunView:
        """The run, once it has completed.

        Raises:
            RunFailed: It failed.
            RunCancelled: It was cancelled.
            RunIndeterminate: How it ended, or what it cost, can't be proven.

        Cancellation: the wait just ends; the run goes on.
        """
        view = await self.ended()
        terminal = view.terminal
        if terminal is None or terminal.kind == "completed":
            return view
        kinds = {"failed": RunFailed, "cancelled": RunCancelled, "indeterminate": RunIndeterminate}
        raise kinds[terminal.kind](
            terminal.message or terminal.kind,
            **{"run_id": view.id, "kind": terminal.kind, "class": terminal.class_, "reason": terminal.code},
        )

    async def cancel(self, *, by: CancelBy = "caller", reason: str | None = None) -> CancelOutcome:
        """Stop the run and everything it started; returns once its terminal is durable.

        Cancellation: the cancel stands; only the wait ends.
        """
        control = self._host._control(self.id)  # pyright: ignore[reportPrivateUsage] - one package
        changed = control is not None and self._host._ask(control, by, reason)  # pyright: ignore[reportPrivateUsage]
        return CancelOutcome(changed=changed, run=await self.ended())

    def cancel_nowait(self, *, by: CancelBy = "caller", reason: str | None = None) -> bool:
        """Ask for the cancel without waiting for it. False: it changes nothing."""
        control = self._host._control(self.id)  # pyright: ignore[reportPrivateUsage] - one package
        return control is not None and self._host._ask(control, by, reason)  # pyright: ignore[reportPrivateUsage]

    def acknowledge(self, accepted: bool = True) -> bool:
        """Answer a `finalizing` run that asked for it. False: it isn't waiting, and nothing changed."""
        control = self._host._control(self.id)  # pyright: ignore[reportPrivateUsage] - one package
        return control is not None and control.acknowledge(accepted)
