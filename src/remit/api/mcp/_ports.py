"""What the tools need of a host, wherever it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from remit.contract import RunView
from remit.events import Event


class ToolRuns(Protocol):
    """Runs of one caller. Every method raises a `RemitError` where it can't be done."""

    async def check(self) -> None:
        """Raise `Unauthenticated` where the caller may not look on any more."""
        ...

    async def start(self, body: Mapping[str, Any]) -> RunView:
        """Start a run of this request's fields, its id among them."""
        ...

    def events(self, run_id: str) -> AsyncGenerator[Event]:
        """The run's events, to its terminal."""
        ...

    async def wait(self, run_id: str, *, wait_ms: int | None = None) -> RunView:
        """The run, once it has ended, or the time has run out; None: however long it takes."""
        ...

    async def get(self, run_id: str) -> RunView:
        """The run as it stands now."""
        ...

    async def patch(self, run_id: str) -> str | None:
        """The run's patch; None: it has none."""
        ...

    async def cancel(self, run_id: str, *, reason: str | None, tombstone: bool = False) -> Mapping[str, Any]:
        """Stop a run, and say what that did: `{changed, run, receipt}`, as JSON.

        Args:
            run_id: The run.
            reason: The caller's words.
            tombstone: Whether an id that nobody knows is to be dead for ever.
        """
        ...
