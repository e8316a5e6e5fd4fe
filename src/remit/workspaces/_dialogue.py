"""A program in a checkout that is talked to by its standard streams, from the node's side."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Final

from remit.workspaces._command import CommandResult, Stopped
from remit.workspaces._failures import KeeperLost, WorkspaceOperationError
from remit.workspaces._link import KeeperLink

__all__ = ["Dialogue"]

_SAID_BYTES: Final = 262_144
"""How much goes to the keeper at once."""
_GRACE_MS: Final = 500


class Dialogue:
    """One running program. One task may listen at a time; any number may speak, one after the other."""

    def __init__(
        self, link: KeeperLink, call_id: str, sent: tuple[int, asyncio.Future[dict[str, Any]]]
    ) -> None:
        self._link = link
        self._call_id = call_id
        self._number, self._end = sent
        self._speaking = asyncio.Lock()
        self._rest_taken = False

    @property
    def ended(self) -> bool:
        """Whether the program, and everything that it had started, is gone."""
        return self._end.done()

    async def hear(self) -> bytes:
        """What it says next on its stdout, as soon as there is something; empty: it says no more.

        Raises:
            KeeperLost: the checkout is gone, and with it the program.

        Cancellation: what was said meanwhile may be lost; nobody listens on after that.
        """
        try:
            answer = await self._link.ask("hear", {"call_id": self._call_id})
        except WorkspaceOperationError:  # it has ended
            return await self._take_rest()
        return base64.b64decode(answer["data"]) or await self._take_rest()

    async def _take_rest(self) -> bytes:
        if self._rest_taken:
            return b""
        self._rest_taken = True
        answer = await asyncio.shield(self._end)
        return base64.b64decode(answer.get("rest", ""))

    async def say(self, data: bytes) -> None:
        """Writes to its stdin; returns once all of it is in the pipe.

        Raises:
            WorkspaceOperationError: it reads no more.
            KeeperLost: the checkout is gone.

        Cancellation: some of it may have been written; what follows would be garbled, so stop the program.
        """
        async with self._speaking:
            for begin in range(0, len(data), _SAID_BYTES):
                part = base64.b64encode(data[begin : begin + _SAID_BYTES]).decode("ascii")
                await self._link.ask("say", {"call_id": self._call_id, "data": part})

    async def wait(self) -> CommandResult:
        """How it ended, with the last of its stderr.

        Raises:
            WorkspaceOperationError: it wasn't started.
            KeeperLost: the checkout is gone.
        """
        answer = dict(await asyncio.shield(self._end))
        answer.pop("rest", None)
        return CommandResult.from_answer(answer)

    async def stop(self, *, grace_ms: int = _GRACE_MS) -> Stopped | None:
        """Closes its stdin and ends it: TERM, the grace, KILL; None: it had ended.

        Cancellation: it is ended all the same.
        """
        try:
            answer = await self._link.ask("stop", {"call_id": self._call_id, "grace_ms": grace_ms})
        except KeeperLost:  # and with it the program
            return None
        stopped = [Stopped.from_answer(item) for item in answer["stopped"]]
        return stopped[0] if stopped else None
