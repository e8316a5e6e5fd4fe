"""May it run, and may it run now: one pure decision over facts that were gathered before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from remit.admission._bindings import STAGES_OF, Binding, Override, StageBinding
from remit.admission._continuing import continued_request
from remit.admission._effective import asked_overrides, effective_binding
from remit.admission._ports import Caller, Catalog, SessionFacts
from remit.contract import DeliveryMode, LimitRequest, Limits, RunRequest, RunView, RunWorkspace
from remit.errors import (
    AdmissionError,
    InvalidRequest,
    NotFound,
    PriceUnknown,
    RequestError,
    SessionBusy,
)
from remit.requests import ParsedRequest, fingerprint, narrow_limits, resolve_limits

DEFAULT_POOL = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """It may run. Everything that a submission needs."""

    run: RunView
    """Queued, with its limits."""
    request: RunRequest
    binding: Binding
    """With the request's overrides."""
    fingerprint: str
    text_replaced: int
    overrides: frozenset[Override] = frozenset()
    """What it sets beside its binding."""
    waits_for: str | None = None
    """The session's active run, which is to end first."""
    interrupts: str | None = None
    """The session's active run, which is to be cancelled first."""
    kind: Literal["admitted"] = "admitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """Not now: the same request may be admitted later."""

    error: AdmissionError
    kind: Literal["deferred"] = "deferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Not like this: the caller must change what was asked."""

    error: RequestError
    kind: Literal["rejected"] = "rejected"


Decision: TypeAlias = Admitted | Deferred | Rejected


def decide(
    parsed: ParsedRequest,
    bindings: Mapping[str, Binding],
    *,
    catalog: Catalog,
    run_id: str,
    now: datetime,
    caller: Caller | None = None,
    facts: SessionFacts | None = None,
    default_binding: str | None = None,
    door_delivery: DeliveryMode = "patch",
    host_limits: LimitRequest | None = None,
) -> Decision:
    """Decide on one request. Pure; nothing is taken or stored.

    Whether its id or key was used before is the store's to say, and whether there is a place the permits'.

    Args:
        parsed: The request, as `parse_request` gave it.
        bindings: By public name.
        catalog: Which models there are.
        run_id: The id that the run gets where the request has none.
        now: When it was asked.
        caller: Who asks; None: the owner of the machine.
        facts: What the request's session and `continues` call for.
        default_binding: Taken where the request names none.
        door_delivery: What the door delivers where neither request nor binding says.
        host_limits: Limits that nothing may widen.
    """
    caller, facts, asked = caller or Caller(), facts or SessionFacts(), parsed.request
    try:
        request = continued_request(asked, facts)
        configured = _find_binding(request, bindings, caller, default_binding)
        binding = effective_binding(configured, request, door_delivery=door_delivery)
        _check_models(binding, catalog)
        _check_images(binding, request, catalog)
        limits = _limits(binding, request, caller, host_limits)
        _check_prices(binding, limits, catalog, caller)
        session_id = _session_id(request, facts, request.id or run_id)
    except RequestError as error:
        return Rejected(error=error)
    busy = facts.active_run_id
    if busy is not None and (request.on_busy or "reject") == "reject":
        message = f"session {session_id} has an active run, {busy}: wait for its end, or say `on_busy`"
        return Deferred(error=SessionBusy(message, session_id=session_id, run_id=busy))
    return Admitted(
        run=_view(request, binding, limits, run_id=request.id or run_id, session_id=session_id, now=now),
        request=request,
        binding=binding,
        fingerprint=fingerprint(asked),
        text_replaced=parsed.text_replaced,
        overrides=frozenset(asked_overrides(request, configured)),
        waits_for=busy if request.on_busy == "enqueue" else None,
        interrupts=busy if request.on_busy == "interrupt" else None,
    )


def _find_binding(
    request: RunRequest, bindings: Mapping[str, Binding], caller: Caller, default: str | None
) -> Binding:
    allowed = [name for name in bindings if caller.bindings is None or name in caller.bindings]
    name = request.binding or default or (allowed[0] if len(allowed) == 1 else None)
    if name is None:
        raise InvalidRequest(
            f"name a `binding`: {', '.join(sorted(allowed)) or 'none is configured'}", param="binding"
        )
    if name not in allowed:
        raise NotFound(f"no binding `{name}`", param="binding")
    return bindings[name]


def models_of(stage: StageBinding, catalog: Catalog) -> tuple[str, ...]:
    """Every model that may serve a stage.

    Raises:
        InvalidRequest: There is no such pool.
    """
    if stage.model is not None:
        return (stage.model,)
    models = catalog.models_of(stage.pool or DEFAULT_POOL)
    if models is None:
        raise InvalidRequest(f"no pool `{stage.pool or DEFAULT_POOL}` is configured", param="model")
    return models


def _check_models(binding: Binding, catalog: Catalog) -> None:
    for kind in STAGES_OF[binding.profile]:
        for model in models_of(binding.stage(kind), catalog):
            refused = catalog.refusal(model)
            if refused is not None:
                raise refused


def _check_images(binding: Binding, request: RunRequest, catalog: Catalog) -> None:
    """Every stage is shown the request's pictures, so each needs a model that takes them."""
    if not request.shows_images():
        return
    for kind in STAGES_OF[binding.profile]:
        stage = binding.stage(kind)
        pool = None if stage.model is not None else stage.pool or DEFAULT_POOL
        models = models_of(stage, catalog)
        if not any(catalog.takes_images(model, pool=pool) for model in models):
            raise InvalidRequest(
                f"no model of stage {kind} takes pictures: {', '.join(models)}", param="content"
            )


def _limits(
    binding: Binding, request: RunRequest, caller: Caller, host_limits: LimitRequest | None
) -> Limits:
    limits = resolve_limits(binding.limits, caller.limits, request.limits)
    return limits if host_limits is None else narrow_limits(limits, host_limits)


def _check_prices(binding: Binding, limits: Limits, catalog: Catalog, caller: Caller) -> None:
    """A money cap holds only where every model has a price, unless tokens are capped too.

    Not so where the cap is a key's, over all its runs: no caller may put a run's tokens in its place.
    """
    tokens = (limits.max_total_tokens, limits.max_input_tokens, limits.max_output_tokens)
    key_is_capped = caller.limits.max_cost_usd is not None
    if limits.max_cost_usd is None or (not key_is_capped and any(cap is not None for cap in tokens)):
        return
    for kind in STAGES_OF[binding.profile]:
        for model in models_of(binding.stage(kind), catalog):
            if not catalog.is_priced(model):
                instead = (
                    "" if key_is_capped else ", or `max_total_tokens` in the limits of the request or binding"
                )
                whose = " of the key" if key_is_capped else ""
                raise PriceUnknown(
                    f"no price is known for `{model}`, so `max_cost_usd`{whose} can't be kept: set "
                    f'[prices."{model}"] to input_usd_per_mtok and output_usd_per_mtok (or free = true)'
                    f"{instead}",
                    param="limits.max_cost_usd",
                    model=model,
                )


def _session_id(request: RunRequest, facts: SessionFacts, run_id: str) -> str:
    if request.continues is None or facts.continued is None:
        return request.session_id or run_id
    return facts.continued.session_id


def _view(
    request: RunRequest, binding: Binding, limits: Limits, *, run_id: str, session_id: str, now: datetime
) -> RunView:
    workspace = None if binding.workspace is None else RunWorkspace(ref=binding.workspace)
    if workspace is not None and request.in_place:
        workspace = workspace.model_copy(update={"isolation": "in_place"})
    return RunView(
        id=run_id,
        session_id=session_id,
        root_run_id=run_id,
        continues=request.continues,
        binding=binding.name,
        profile=binding.profile,
        created_at=now,
        workspace=workspace,
        limits=limits,
        metadata=request.metadata,
    )
