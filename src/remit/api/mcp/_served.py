"""The runs of a host in this process, as the tools see them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final

from remit.admission import Caller
from remit.api._ports import ServedHost
from remit.api._runs import cancel_answer, unknown_run
from remit.contract import RunView, Scope
from remit.errors import Unauthenticated
from remit.events import Event
from remit.primitives import clean_text
from remit.requests import parse_request
from remit.runs import StoredRun, with_newest_delivery

_FOR_EVER_MS: Final = 7 * 24 * 3_600_000
_CANCEL_WAIT_MS: Final = 10_000


async def _always() -> bool:
    return True


class ServedRuns:
    """Implements `ToolRuns`.

    Args:
        host: The host.
        caller: Who asks.
        require: Raises `Forbidden` where the caller lacks a scope.
        is_allowed: Whether the caller's key is still good.
    """

    def __init__(
        self,
        host: ServedHost,
        caller: Caller,
        *,
        require: Callable[[Scope], None] = lambda scope: None,
        is_allowed: Callable[[], Awaitable[bool]] = _always,
    ) -> None:
        self._host = host
        self._caller = caller
        self._require = require
        self._is_allowed = is_allowed

    async def check(self) -> None:
        """Raise `Unauthenticated` where the key has ended meanwhile."""
        if not await self._is_allowed():
            raise Unauthenticated("this key isn't good any more")

    async def start(self, body: Mapping[str, Any]) -> RunView:
        """Start a run; see `ToolRuns`."""
        self._require("run")
        parsed = parse_request(body)
        return (await self._host.start(parsed, caller=self._caller, idempotency_key=None)).run.view

    def events(self, run_id: str) -> AsyncGenerator[Event]:
        """The run's events, to its terminal."""
        return self._host.feed.follow(run_id, tenant=self._caller.tenant)

    async def wait(self, run_id: str, *, wait_ms: int | None = None) -> RunView:
        """The run, once it has ended, or the time has run out."""
        await self._get(run_id)
        within_ms = _FOR_EVER_MS if wait_ms is None else wait_ms
        if within_ms:
            await self._host.wait_ended(run_id, tenant=self._caller.tenant, wait_ms=within_ms)
        return await self.get(run_id)

    async def get(self, run_id: str) -> RunView:
        """The run as it stands now, with what was done with its patch since."""
        view = (await self._get(run_id)).view
        if not view.status.ended or view.patch is None:
            return self._host.placed(view, tenant=self._caller.tenant)
        history = await self._host.store.read_history(view.id, tenant=self._caller.tenant)
        return with_newest_delivery(view, history)

    async def patch(self, run_id: str) -> str | None:
        """The run's patch; None: it has none."""
        stored = await self._get(run_id)
        artifact = await self._host.store.read_artifact(stored.view.id, "patch", tenant=self._caller.tenant)
        return None if artifact is None else artifact.text

    async def cancel(self, run_id: str, *, reason: str | None, tombstone: bool = False) -> Mapping[str, Any]:
        """Stop a run; see `ToolRuns`."""
        self._require("run")
        outcome = await self._host.cancel(
            run_id,
            caller=self._caller,
            reason=None if reason is None else clean_text(reason)[0],
            tombstone=tombstone,
            wait_ms=_CANCEL_WAIT_MS,
        )
        return cancel_answer(outcome).model_dump(mode="json")

    async def _get(self, run_id: str) -> StoredRun:
        self._require("read")
        stored = await self._host.store.find_run(run_id, tenant=self._caller.tenant)
        if stored is None:
            raise unknown_run(run_id)
        return stored
