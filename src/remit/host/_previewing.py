"""Says what a request would become: who would be asked at what price, on which base, with which checks."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from remit.admission import STAGES_OF, Admitted, Caller
from remit.config import Config
from remit.contract import (
    DryRun,
    DryWorkspace,
    FoundCheck,
    ModelPrice,
    Prepared,
    PrepareRequest,
    RunRequest,
    StageKind,
)
from remit.errors import NodeError
from remit.host._states import HostStatus
from remit.primitives import Clock
from remit.requests import ParsedRequest, default_branch
from remit.runs import name_outside
from remit.usage import Price, PriceBook

if TYPE_CHECKING:
    from remit.host._host import Host
    from remit.host._parts import Parts

_MICROS = Decimal(1_000_000)
_WITHIN_MS = 60_000


async def preview(host: Host, parts: Parts, parsed: ParsedRequest, *, caller: Caller) -> DryRun:
    """What a request would become. Nothing is taken, stored, run or spent.

    Raises:
        RequestError: It must be changed, or the settings must.
    """
    admitted = await parts.starter.consider(parsed, caller=caller)
    await parts.allowances.check(caller)
    looked = _Preview(host.config, parts.prices, host.clock, admitted)
    shown: dict[str, object] = {
        "would": _would(host, parts, admitted, caller),
        "run": admitted.run,
        "delivery": admitted.binding.delivery,
        "models": looked.models(),
        "prices": looked.prices(),
        "max_cost_usd": admitted.run.limits.max_cost_usd,
        "text_replaced": admitted.text_replaced,
    }
    try:
        workspace = await _look(admitted, parsed.request, parts, caller.tenant)
    except NodeError as error:
        return DryRun.model_validate({**shown, "problem": error.message})
    return DryRun.model_validate({**shown, "workspace": workspace})


def _would(host: Host, parts: Parts, admitted: Admitted, caller: Caller) -> str:
    permits = parts.admission.permits
    refused = permits.would_refuse(tenant=caller.tenant, share=caller.share)
    if host.status is not HostStatus.READY or refused is not None:
        return "be_deferred"
    waits = admitted.waits_for or permits.would_wait(tenant=caller.tenant, share=caller.share)
    return "wait" if waits else "start"


@dataclass(frozen=True, slots=True)
class _Preview:
    """The models of a request, and what they cost."""

    _config: Config
    _book: PriceBook
    _clock: Clock
    _admitted: Admitted

    def models(self) -> dict[StageKind, tuple[str, ...]]:
        """Who would be asked, by stage, in order."""
        admitted = self._admitted
        models: dict[StageKind, tuple[str, ...]] = {}
        for kind in STAGES_OF[admitted.binding.profile]:
            stage = admitted.binding.stage(kind)
            pool = self._config.pools.get(stage.pool or "default")
            members = () if pool is None else tuple(member.model for member in pool.members)
            models[kind] = members if stage.model is None else (stage.model,)
        return models

    def prices(self) -> dict[str, ModelPrice | None]:
        """What each of them costs; None: it isn't known."""
        asked = {model for members in self.models().values() for model in members}
        return {model: self._price(model) for model in sorted(asked)}

    def _price(self, model: str) -> ModelPrice | None:
        table = self._config.find_provider(model.partition(":")[0])
        if table is None:
            return None
        price = self._book.find(model, kind=table.kind, at=self._clock.now(), base_url=table.base_url)
        return None if price is None else _as_shown(price)


def _as_shown(price: Price) -> ModelPrice:
    return ModelPrice(
        input_usd_per_mtok=float(price.input_micros / _MICROS),
        output_usd_per_mtok=float(price.output_micros / _MICROS),
        cache_read_usd_per_mtok=float(price.cache_read_micros / _MICROS),
        source=price.version,
    )


async def _look(admitted: Admitted, request: RunRequest, parts: Parts, tenant: str) -> DryWorkspace | None:
    view, asked = admitted.run, request.workspace
    if view.workspace is None:
        return None
    link = parts.nodes.find_link(view.workspace.ref) or parts.link
    branch = None
    if admitted.binding.delivery == "branch":
        named = request.delivery.branch if request.delivery is not None else None
        branch = named or default_branch(view.id)
    return _as_workspace(
        await link.prepare(
            PrepareRequest(
                run_id=name_outside(tenant, view.id),
                workspace_ref=view.workspace.ref,
                base=asked.base if asked else None,
                subdir=(asked.subdir if asked else None) or "",
                isolation="in_place" if request.in_place else None,
                continues=name_outside(tenant, view.continues) if view.continues is not None else None,
                branch=branch,
                dry=True,
                timeout_ms=_WITHIN_MS,
            )
        )
    )


def _as_workspace(prepared: Prepared) -> DryWorkspace:
    return DryWorkspace(
        base=prepared.base,
        isolation=prepared.isolation,
        sandbox=prepared.sandbox,
        checks=tuple(
            FoundCheck(id=check.id, command=check.command, why=check.why, problem=check.problem)
            for check in prepared.checks
        ),
        notes=prepared.notes,
    )
