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
    Caller,
    Decision,
    Deferred,
    PermitRefused,
    SessionFacts,
    Sessions,
    queue_full,
)
from remit.contract import DeliveryMode, RunRequest
from remit.errors import AdmissionError, RequestError
from remit.primitives import Clock
from remit.requests import ParsedRequest, fingerprint
from remit.runs._auditing import audit_of_admission
from remit.runs._control import CancelAsked, CancelBy, RunControl
from remit.runs._naming import name_in_host
from remit.runs._ports import RunStore, StoredRun, Submission
from remit.runs._shield import despite_cancel
from remit.work import Residencies


class RunDriver(Protocol):
    """Who takes runs up in this process. Implemented by the engine."""

    def start(
        self,
        run_id: str,
        *,
        tenant: str = "local",
        claimed: StoredRun | None = None,
        residencies: Residencies | None = None,
    ) -> RunControl:
        """Take up an admitted run; joins the one that is going on. Never waits."""
        ...

    def find_control(self, run_id: str, *, tenant: str = "local") -> RunControl | None:
        """The control of a run that this process drives now; None when it doesn't."""
        ...


async def _unbounded(caller: Caller) -> None:
    return


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
    check_money: Callable[[Caller], Awaitable[object]] = _unbounded
    """Raises CapSpent or AdmissionError where the caller's key has no money left to start a run with."""
    door_delivery: DeliveryMode = "patch"
    on_stop: Callable[[], object] = lambda: None
    """Called when a run was asked to stop."""
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=WeakValueDictionary[str, asyncio.Lock]
    )

    async def consider(self, parsed: ParsedRequest, *, caller: Caller | None = None) -> Admitted:
        """What a request would become, whether or not there is room for it; nothing is taken or stored.

        Raises:
            RequestError: It must be changed, or the settings must.
        """
        caller = caller or Caller()
        facts = replace(await self._look(parsed.request, caller), active_run_id=None)
        return self._checked(
            self.admission.consider(parsed, caller=caller, facts=facts, door_delivery=self.door_delivery)
        )

    async def _decide(self, parsed: ParsedRequest, caller: Caller) -> Admitted | Deferred:
        facts = await self._look(parsed.request, caller)
        decision = self.admission.decide(parsed, caller=caller, facts=facts, door_delivery=self.door_delivery)
        return decision if isinstance(decision, Deferred) else self._checked(decision)

    async def _look(self, request: RunRequest, caller: Caller) -> SessionFacts:
        await self.make_ready(request)
        return await self.sessions.look(
            session_id=request.session_id, continues=request.continues, tenant=caller.tenant
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
        caller: Caller | None = None,
        idempotency_key: str | None = None,
        residencies: Residencies | None = None,
    ) -> Started | Deferred:
        """Start a run, or join the one that the same request had started; `Deferred`: not now.

        Raises:
            RequestError: It must be changed; nothing was stored.
            StorageError: It couldn't be stored.

        Cancellation: the run is stored and started, or neither; whoever knows its id finds out which.
        """
        caller = caller or Caller()
        async with await self._session_lock(parsed.request, caller):
            decision = await self._answer(parsed, caller)
            if isinstance(decision, Admitted):
                return await despite_cancel(self._submit(decision, caller, idempotency_key, residencies))
            repeated = await self.find_repeated(parsed.request, caller, idempotency_key)
            if repeated is not None:
                return Started(run=repeated, created=False)
        if isinstance(decision, RequestError):
            raise decision
        return decision

    async def _answer(self, parsed: ParsedRequest, caller: Caller) -> Admitted | Deferred | RequestError:
        """What a request is told that was never sent before."""
        try:
            decision = await self._decide(parsed, caller)
            if isinstance(decision, Admitted):
                await self.check_money(caller)
        except RequestError as error:
            return error
        except AdmissionError as error:
            return Deferred(error=error)
        return decision

    async def _session_lock(self, request: RunRequest, caller: Caller) -> AbstractAsyncContextManager[Any]:
        """Held while a request of a session is admitted, so that two can't both find it free."""
        name = request.session_id
        if request.continues is not None:
            continued = await self.store.find_run(request.continues, tenant=caller.tenant)
            name = continued.view.session_id if continued is not None else None
        if name is None:
            return nullcontext()
        return self._locks.setdefault(name_in_host(caller.tenant, name), asyncio.Lock())

    async def find_repeated(
        self, request: RunRequest, caller: Caller, idempotency_key: str | None
    ) -> StoredRun | None:
        """The run that was admitted for the same request before, under the caller's same id or key.

        A repetition is answered as the first was, whatever stands against the request by now.
        """
        stored: StoredRun | None = None
        if request.id is not None:
            stored = await self.store.find_run(request.id, tenant=caller.tenant)
        if stored is None and idempotency_key is not None:
            stored = await self.store.find_by_key(idempotency_key, tenant=caller.tenant)
        if stored is None or stored.fingerprint != fingerprint(request):
            return None
        return stored if caller.bindings is None or stored.view.binding in caller.bindings else None

    async def _submit(
        self,
        admitted: Admitted,
        caller: Caller,
        idempotency_key: str | None,
        residencies: Residencies | None,
    ) -> Started | Deferred:
        """Take a place, then store the run: what is stored always has a place."""
        permits, run_id = self.admission.permits, admitted.run.id
        name = name_in_host(caller.tenant, run_id)
        held = permits.holds(name)
        # What waits for another run takes no place from those who could go on.
        ready = admitted.waits_for is None and admitted.interrupts is None
        answer = permits.ask(name, tenant=caller.tenant, share=caller.share, ready=ready)
        if isinstance(answer, PermitRefused):
            return Deferred(error=queue_full(answer))
        begun = False
        try:
            submitted = await self.store.submit(self._submission(admitted, caller, idempotency_key))
            # A dead id's run is stored with its end.
            begun = submitted.created and not submitted.run.view.status.ended
        finally:
            if not begun and not held:
                permits.release(name)
        if begun and admitted.interrupts is not None:  # only now: a repeated request stops nothing again
            reason = f"run {run_id} of its session came with on_busy = interrupt"
            self.ask_to_stop(admitted.interrupts, by="caller", reason=reason, tenant=caller.tenant)
        if begun:
            self.driver.start(run_id, tenant=caller.tenant, claimed=submitted.run, residencies=residencies)
        return Started(run=submitted.run, created=submitted.created)

    def _submission(self, admitted: Admitted, caller: Caller, idempotency_key: str | None) -> Submission:
        return Submission(
            run=admitted.run,
            request=admitted.request,
            fingerprint=admitted.fingerprint,
            epoch=self.epoch,
            claimed=True,
            tenant=caller.tenant,
            key_id=caller.key_id,
            idempotency_key=idempotency_key,
            text_replaced=admitted.text_replaced,
            ask=caller.ask,
            audit=audit_of_admission(admitted, caller),
        )

    def ask_to_stop(self, run_id: str, *, by: CancelBy, reason: str | None, tenant: str = "local") -> bool:
        """The first half of a stop: ask, without waiting. False: it changes nothing."""
        control = self.driver.find_control(run_id, tenant=tenant)
        if control is None:
            return False
        now = self.clock.now()
        asked = CancelAsked(by=by, reason=reason, at=now, at_monotonic=self.clock.monotonic())
        if not control.ask(asked):
            return False
        self.on_stop()
        return True
