"""From a checked request to a run that is stored and driven: decide, take a place, store, start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from weakref import WeakValueDictionary

from remit.admission import (
    Admission,
    Admitted,
    Binding,
    Decision,
    Deferred,
    PermitRefused,
    SessionFacts,
    Sessions,
    queue_full,
)
from remit.contract import DeliveryMode, RunRequest
from remit.primitives import Clock
from remit.requests import ParsedRequest, fingerprint
from remit.runs._control import CancelAsked, CancelBy, RunControl
from remit.runs._ports import RunStore, StoredRun, Submission
from remit.runs._shield import despite_cancel
from remit.runs._supported import refuse_later
from remit.work import Residencies


class RunDriver(Protocol):
    """Who takes runs up in this process. Implemented by the engine."""

    def start(self, run_id: str, *, residencies: Residencies | None = None) -> RunControl:
        """Take up an admitted run; joins the one that is going on. Never waits."""
        ...

    def find_control(self, run_id: str) -> RunControl | None:
        """The control of a run that this process drives now; None when it doesn't."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run that is stored."""

    run: StoredRun
    created: bool
    """False: the same request was started before, and this is its run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """Starts runs, each once."""

    store: RunStore
    epoch: str
    admission: Admission
    sessions: Sessions
    driver: RunDriver
    clock: Clock
    check: Callable[[Binding], object]
    """Raises a RequestError where what a binding needs isn't there, such as a provider's key."""
    make_ready: Callable[[RunRequest], Awaitable[object]]
    """Loads what the decision on a request needs."""
    door_delivery: DeliveryMode = "patch"
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=WeakValueDictionary[str, asyncio.Lock]
    )

    async def consider(self, parsed: ParsedRequest) -> Admitted:
        """What a request would become, whether or not there is room for it; nothing is taken or stored.

        Raises:
            RequestError: It must be changed, or the settings must.
        """
        facts = replace(await self._look(parsed.request), active_run_id=None)
        return self._checked(self.admission.consider(parsed, facts=facts, door_delivery=self.door_delivery))

    async def _decide(self, parsed: ParsedRequest) -> Admitted | Deferred:
        facts = await self._look(parsed.request)
        decision = self.admission.decide(parsed, facts=facts, door_delivery=self.door_delivery)
        return decision if isinstance(decision, Deferred) else self._checked(decision)

    async def _look(self, request: RunRequest) -> SessionFacts:
        refuse_later(request)
        await self.make_ready(request)
        return await self.sessions.look(
            session_id=request.session_id, continues=request.continues, tenant="local"
        )

    def _checked(self, decision: Decision) -> Admitted:
        if not isinstance(decision, Admitted):
            raise decision.error
        self.check(decision.binding)
        return decision

    async def start(
        self,
        parsed: ParsedRequest,
        *,
        idempotency_key: str | None = None,
        residencies: Residencies | None = None,
    ) -> Started | Deferred:
        """Start a run, or join the one that the same request had started; `Deferred`: not now.

        Raises:
            RequestError: It must be changed; nothing was stored.
            StorageError: It couldn't be stored.

        Cancellation: the run is stored and started, or neither; whoever knows its id finds out which.
        """
        async with self._session_lock(parsed.request):
            decision = await self._decide(parsed)
            if isinstance(decision, Admitted):
                return await despite_cancel(self._submit(decision, idempotency_key, residencies))
            repeated = await self._find_repeated(parsed.request)
            return Started(run=repeated, created=False) if repeated is not None else decision

    def _session_lock(self, request: RunRequest) -> AbstractAsyncContextManager[Any]:
        """Held while a request of a session is admitted, so that two can't both find it free."""
        name = request.session_id or request.continues
        if name is None:
            return nullcontext()
        return self._locks.setdefault(name, asyncio.Lock())

    async def _find_repeated(self, request: RunRequest) -> StoredRun | None:
        """The run that was admitted for the same request, under the same id of the caller's, before."""
        if request.id is None:
            return None
        stored = await self.store.find_run(request.id)
        return stored if stored is not None and stored.fingerprint == fingerprint(request) else None

    async def _submit(
        self, admitted: Admitted, idempotency_key: str | None, residencies: Residencies | None
    ) -> Started | Deferred:
        """Take a place, then store the run: what is stored always has a place."""
        permits, run_id = self.admission.permits, admitted.run.id
        held = permits.holds(run_id)
        answer = permits.ask(run_id)
        if isinstance(answer, PermitRefused):
            return Deferred(error=queue_full(answer))
        if admitted.interrupts is not None:
            self.ask_to_stop(admitted.interrupts, by="caller", reason="another run of its session")
        begun = False
        try:
            submitted = await self.store.submit(self._submission(admitted, idempotency_key))
            # A dead id's run is stored with its end.
            begun = submitted.created and not submitted.run.view.status.ended
        finally:
            if not begun and not held:
                permits.release(run_id)
        if begun:
            self.driver.start(run_id, residencies=residencies)
        return Started(run=submitted.run, created=submitted.created)

    def _submission(self, admitted: Admitted, idempotency_key: str | None) -> Submission:
        return Submission(
            run=admitted.run,
            request=admitted.request,
            fingerprint=admitted.fingerprint,
            epoch=self.epoch,
            idempotency_key=idempotency_key,
            text_replaced=admitted.text_replaced,
        )

    def ask_to_stop(self, run_id: str, *, by: CancelBy, reason: str | None) -> bool:
        """The first half of a stop: ask, without waiting. False: it changes nothing."""
        control = self.driver.find_control(run_id)
        if control is None:
            return False
        now = self.clock.now()
        return control.ask(CancelAsked(by=by, reason=reason, at=now, at_monotonic=self.clock.monotonic()))
