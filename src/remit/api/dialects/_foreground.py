"""Runs that somebody waits for on an open connection: the last one to hang up ends the run."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Final

from remit.admission import Caller
from remit.api._ports import ServedHost
from remit.contract import RunStatus, RunView
from remit.runs import StoredRun

_JOINED_FOR: Final = timedelta(minutes=10)
_STARTED_WITHIN: Final = timedelta(hours=24)
"""How far back a run is looked for that completed just now: longer ones are rare, and only run again."""
_REMEMBERED: Final = 10_000


def ask_id(*parts: bytes) -> str:
    """What makes two calls the same: who asks, where, in which session, every byte of the body (R80)."""
    sizes = b" ".join(b"%d" % len(part) for part in parts)
    return sha256(sizes + b"\n" + b"".join(parts)).hexdigest()


@dataclass(slots=True)
class _Asked:
    """A call that was made before."""

    run_id: str
    hung_up: bool = False
    """Nobody waits for it any more, and it was cancelled for that."""


class Foreground:
    """The connections that wait for runs, and the calls that client libraries may repeat.

    Args:
        host: Where the runs are.
    """

    def __init__(self, host: ServedHost) -> None:
        self._host = host
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._asked: OrderedDict[str, _Asked] = OrderedDict()

    async def find_joinable(self, ask: str, *, tenant: str) -> StoredRun | None:
        """The run that a repeated call is to wait for: one that goes on, or has completed just now.

        Never one that its own hang-up has cancelled.
        """
        asked = self._asked.get(ask)
        if asked is None:
            return await self._find_of_earlier_host(ask, tenant)
        stored = await self._host.store.find_run(asked.run_id, tenant=tenant)
        if stored is None:
            return None
        view = stored.view
        if view.status is RunStatus.COMPLETED and view.ended_at is not None:
            return stored if self._host.clock.now() - view.ended_at <= _JOINED_FOR else None
        return None if view.status.ended or view.cancel_requested or asked.hung_up else stored

    async def _find_of_earlier_host(self, ask: str, tenant: str) -> StoredRun | None:
        """The same after a restart: what went on then has ended, so only what completed can be joined."""
        now = self._host.clock.now()
        stored = await self._host.store.find_asked(ask, tenant=tenant, since=now - _STARTED_WITHIN)
        if stored is None or stored.view.status is not RunStatus.COMPLETED:
            return None
        ended = stored.view.ended_at
        return stored if ended is not None and now - ended <= _JOINED_FOR else None

    def remember(self, ask: str, run_id: str) -> None:
        """This call has led to that run."""
        self._asked[ask] = _Asked(run_id)
        self._asked.move_to_end(ask)
        while len(self._asked) > _REMEMBERED:
            self._asked.popitem(last=False)

    def enter(self, view: RunView, *, tenant: str) -> None:
        """Somebody waits for a run."""
        self._waiting[tenant, view.id] += 1

    async def leave(self, view: RunView, *, caller: Caller, ask: str, answered: bool) -> None:
        """Somebody doesn't any more.

        Args:
            view: The run.
            caller: Who waited.
            ask: The call.
            answered: Whether the end was told; if not, the connection was hung up.
        """
        key = caller.tenant, view.id
        self._waiting[key] -= 1
        if self._waiting[key] > 0:
            return
        del self._waiting[key]
        binding = self._host.bindings.get(view.binding)
        if answered or (binding is not None and binding.on_disconnect == "continue"):
            return
        asked = self._asked.get(ask)
        if asked is not None and asked.run_id == view.id:
            asked.hung_up = True
        await self._host.cancel(
            view.id,
            caller=caller,
            by="client_disconnected",
            reason="the client hung up",
            tombstone=False,
            wait_ms=0,
        )
