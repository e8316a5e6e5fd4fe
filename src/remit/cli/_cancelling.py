"""Cancels a run in the middle of a command, once its processes are there to be seen."""

from __future__ import annotations

import asyncio
from typing import Final

from remit.cli._processes import Seen, descendants
from remit.events import Event
from remit.host import Run

_LOOK_EVERY_S: Final = 0.05
_LOOKS_AT_MOST: Final = 60
_PROCESSES_WANTED: Final = 2


class CancelInTool:
    """Watches a run for a tool call, waits until what it starts is running, then cancels.

    Args:
        tool: The tool to wait for.
        program: The program that the call starts, twice.
    """

    def __init__(self, *, tool: str, program: str) -> None:
        self._tool = tool
        self._program = program
        self._run: Run | None = None
        self._looks = 0
        self.seen: tuple[Seen, ...] = ()
        """What was running below this process when the cancel was asked for."""

    def on_start(self, run: Run) -> None:
        """The run to cancel."""
        self._run = run

    def on_event(self, event: Event) -> None:
        """One more event."""
        if event.type == "tool.started" and event.data["name"] == self._tool:
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        assert self._run is not None, "a tool call comes after its run"
        self.seen = descendants()
        self._looks += 1
        running = sum(process.name == self._program for process in self.seen)
        if running < _PROCESSES_WANTED and self._looks < _LOOKS_AT_MOST:
            asyncio.get_running_loop().call_later(_LOOK_EVERY_S, self._look)
            return
        self._run.cancel_nowait(by="caller", reason="the demonstration cancels here")
