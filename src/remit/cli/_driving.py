"""Drives one run in this process: opens a host, starts it, follows it, stops it when a signal says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from remit.cli._first_line import first_lines
from remit.cli._place import Place
from remit.cli._progress import Progress
from remit.cli._signals import Signals
from remit.cli._words import recovered_words
from remit.contract import DeliveryMode, RunRequest, RunView
from remit.events import Event
from remit.host import Host, Run
from remit.results import exit_code
from remit.runs import RunTimes
from remit.workspaces import SandboxUnavailable, WorkspaceSettings, choose_sandbox

_TICK_S: Final = 0.125


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a command's run."""

    view: RunView | None
    """The run as it ended; None: there was none, since a signal came first."""
    exit_code: int
    patch: str = ""


class Driver:
    """One run of this command.

    Args:
        place: Settings and workspace.
        request: What is asked.
        progress: Where people look.
        door_delivery: What becomes of the result where neither request nor settings say.
    """

    def __init__(
        self,
        place: Place,
        request: RunRequest,
        *,
        progress: Progress,
        door_delivery: DeliveryMode = "apply",
    ) -> None:
        self._door_delivery: DeliveryMode = door_delivery
        self._place = place
        self._request = request
        self._progress = progress
        self.on_start: Callable[[Run], None] = lambda run: None
        """Told of the run, once it is admitted."""
        self.on_event: Callable[[Event], None] = lambda event: None
        """Told of every stored event, in order; the first comes once the run can be cancelled."""
        self._task: asyncio.Task[Outcome] | None = None
        self._signals = Signals(stop=self._stop_opening)

    async def drive(self) -> Outcome:
        """The whole way.

        Raises:
            RemitError: The run couldn't be started, or this host lost it.
        """
        self._task = asyncio.current_task()
        with self._signals.handled():
            try:
                outcome = await self._drive_in_a_host(self._place)
                # It has ended by its own result: a signal that comes now must not take its exit code away.
                self._signals.ended = True
                return outcome
            except asyncio.CancelledError:
                if self._signals.received is None:
                    raise
                return Outcome(view=None, exit_code=self._signals.exit_code)

    async def _drive_in_a_host(self, place: Place) -> Outcome:
        try:
            return await self._in_a_host(place)
        except SandboxUnavailable:
            unconfined = _unconfined(place)
            if unconfined is None:
                raise
            self._progress.say(
                "remit: there is no sandbox here: commands of this run can do whatever you can",
                style="yellow",
            )
            return await self._in_a_host(unconfined)

    async def _in_a_host(self, place: Place) -> Outcome:
        host = make_host(place, door_delivery=self._door_delivery)
        async with host:
            self._tell_what_was_found(host)
            await self._require_sandbox(host, place)
            # From here to the run's admission a signal is only remembered: a run that is being stored is
            # stored, and must then be cancelled as one.
            await asyncio.sleep(0)
            self._signals.stop = lambda: None
            run = await host.start(self._request)
            self._signals.stop = partial(self._cancel, run)
            if self._signals.received is not None:
                self._cancel(run)
            self.on_start(run)
            view = await self._follow(run)
            artifact = await host.store.read_artifact(view.id, "patch")
            return Outcome(
                view=view, exit_code=self._exit_code(view), patch=artifact.text if artifact else ""
            )

    async def _require_sandbox(self, host: Host, place: Place) -> None:
        """Find out before anything is stored whether commands can be confined.

        Raises:
            SandboxUnavailable: They can't; the message says what to do.
        """
        keeper = await host.node.service.get_keeper()
        self._signals.zygote_pid = lambda: keeper.pid
        choose_sandbox(place.workspace.sandbox, keeper.probe, allow_unconfined=place.config.allow_unconfined)

    def _tell_what_was_found(self, host: Host) -> None:
        for view in host.swept:
            self._progress.say(
                f"remit: run {view.id} was left behind by a process that died; it ended as indeterminate",
                style="yellow",
            )
        for found in host.node.service.recovered:
            words = recovered_words(found.run_id, found.root, found.how, found.left)
            self._progress.say(f"remit: {words}", style="yellow")

    # ---- while it goes on

    async def _follow(self, run: Run) -> RunView:
        async with asyncio.TaskGroup() as group:
            ticker = group.create_task(self._tick(), name="progress")
            ended = group.create_task(run.ended(), name="end of the run")
            async for event in run.events():
                self._take(event)
            view = await ended
            ticker.cancel()
        return view

    def _take(self, event: Event) -> None:
        self._progress.add(event)
        if event.type == "run.started":
            for line in first_lines(self._place, self._request, self._progress.story):
                self._progress.say(line.text, style=line.style)
        if event.seq is not None:
            self.on_event(event)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._progress.tick()

    # ---- signals

    def _stop_opening(self) -> None:
        """No run is there yet: whatever is being opened is closed again."""
        if self._task is not None:
            self._task.cancel()

    def _cancel(self, run: Run) -> None:
        reason = f"{self._signals.name} at the command line"
        if run.cancel_nowait(by="caller", reason=reason):
            text = "cancelling: waiting until everything has ended (Ctrl-C again ends it at once)"
        else:
            text = "too late to cancel: waiting for the end that is decided (Ctrl-C again ends it at once)"
        self._progress.say(f"remit: {text}", style="yellow")

    def _exit_code(self, view: RunView) -> int:
        cancelled = view.terminal is not None and view.terminal.kind == "cancelled"
        if cancelled and self._signals.received is not None:
            return self._signals.exit_code
        return exit_code(view)


def make_host(place: Place, *, door_delivery: DeliveryMode = "apply") -> Host:
    """The host of one run: a cancel of it drains the host, and a lost link is waited for by nobody."""
    times = RunTimes(link_grace_ms=0)
    return Host(place.config, times=times, door_delivery=door_delivery, single_run=True)


def _unconfined(place: Place) -> Place | None:
    """The same place without a sandbox, where that was allowed by hand and nothing else was chosen."""
    if not place.config.allow_unconfined or place.workspace.sandbox != "auto":
        return None
    workspace: WorkspaceSettings = place.workspace.model_copy(update={"sandbox": "none"})
    return replace(place, workspace=workspace, config=place.config.with_workspace(workspace))
