"""The door's own door: one object that knows bindings, places and whether the host still takes work."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from remit.admission._bindings import Binding
from remit.admission._decision import Admitted, Decision, Deferred, decide
from remit.admission._permits import PermitRefused, Permits
from remit.admission._ports import Caller, Catalog, SessionFacts
from remit.contract import DeliveryMode, LimitRequest, Model
from remit.errors import AdmissionError, Draining, QueueFull, QuotaExceeded
from remit.primitives import Clock, Ids
from remit.requests import ParsedRequest

_RETRY_AFTER_MS = 5_000


class AdmissionSettings(Model):
    """How much a host takes on."""

    max_running: int = Field(default=100, ge=1)
    """Runs that go on at once."""
    max_queued: int = Field(default=1_000, ge=0)
    """Runs that wait beside them."""
    max_running_per_tenant: int | None = Field(default=None, ge=1)
    default_binding: str | None = None
    """Taken where a request names none."""
    host_limits: LimitRequest = Field(default_factory=LimitRequest)
    """Limits that neither a binding nor a request may widen."""


class Admission:
    """Decides on requests, and gives out places."""

    def __init__(
        self,
        settings: AdmissionSettings,
        bindings: Mapping[str, Binding],
        *,
        catalog: Catalog,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._settings = settings
        self._bindings = dict(bindings)
        self._catalog = catalog
        self._clock = clock
        self._ids = ids
        self._draining = False
        self.permits = Permits(
            max_running=settings.max_running,
            max_queued=settings.max_queued,
            max_running_per_tenant=settings.max_running_per_tenant,
        )

    @property
    def bindings(self) -> Mapping[str, Binding]:
        """By public name."""
        return self._bindings

    @property
    def draining(self) -> bool:
        """Whether no more work is taken."""
        return self._draining

    def drain(self) -> None:
        """Take no more work."""
        self._draining = True

    def decide(
        self,
        parsed: ParsedRequest,
        *,
        caller: Caller | None = None,
        facts: SessionFacts | None = None,
        door_delivery: DeliveryMode = "patch",
    ) -> Decision:
        """Decide on a request; nothing is taken or stored yet.

        A request that must be changed is told so also while the host is full or draining.
        """
        decision = self.consider(parsed, caller=caller, facts=facts, door_delivery=door_delivery)
        if not isinstance(decision, Admitted):
            return decision
        if self._draining:
            return Deferred(error=Draining("the host takes no more work", retry_after_ms=_RETRY_AFTER_MS))
        caller = caller or Caller()
        full = self.permits.would_refuse(tenant=caller.tenant, share=caller.share)
        return decision if full is None else Deferred(error=queue_full(full))

    def consider(
        self,
        parsed: ParsedRequest,
        *,
        caller: Caller | None = None,
        facts: SessionFacts | None = None,
        door_delivery: DeliveryMode = "patch",
    ) -> Decision:
        """The same, whether or not the host has room for it now."""
        return decide(
            parsed,
            self._bindings,
            catalog=self._catalog,
            run_id=self._ids.new("run"),
            now=self._clock.now(),
            caller=caller,
            facts=facts,
            default_binding=self._settings.default_binding,
            door_delivery=door_delivery,
            host_limits=self._settings.host_limits,
        )


def queue_full(refused: PermitRefused) -> AdmissionError:
    """The error of a refused place."""
    if refused.of_share:
        return QuotaExceeded(
            f"{refused.running} runs of this key go on and {refused.queued} wait: as many as it may have",
            retry_after_ms=_RETRY_AFTER_MS,
        )
    return QueueFull(
        f"{refused.running} runs go on and {refused.queued} wait: as many as this host takes",
        retry_after_ms=_RETRY_AFTER_MS,
    )
