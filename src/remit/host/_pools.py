"""Pools of models, made when they are first needed, and the providers that they share."""

from __future__ import annotations

from remit.admission import STAGES_OF, Binding
from remit.config import Config
from remit.contract import RunRequest, StageKind
from remit.models import ModelPool, Pool, Providers, build_pool
from remit.primitives import Clock, Ids, Redactor
from remit.usage import FREE_KINDS, PriceBook


class Pools:
    """The pools of one host.

    Args:
        config: Where pools and providers are described.
        prices: What their models cost.
        redactor: Told of each key that is read.
        clock: Where time comes from.
        ids: Where ids come from.
    """

    def __init__(
        self, config: Config, *, prices: PriceBook, redactor: Redactor, clock: Clock, ids: Ids
    ) -> None:
        self._config = config
        self._prices = prices
        self._redactor = redactor
        self._clock = clock
        self._ids = ids
        self._providers = Providers(clock=clock, ids=ids)
        self._pools: dict[str, Pool] = {}

    async def aclose(self) -> None:
        """Close what the providers hold open."""
        self._pools.clear()
        await self._providers.aclose()

    def of(self, binding: Binding) -> dict[StageKind, ModelPool]:
        """The pool of each stage of a binding.

        Raises:
            ConfigError: A pool or provider isn't there, or has no key; or a member wouldn't honour an option.
        """
        return {kind: self._pool(binding, kind) for kind in STAGES_OF[binding.profile]}

    def _pool(self, binding: Binding, kind: StageKind) -> ModelPool:
        bound = binding.stage(kind)
        settings = self._config.get_pool(bound)
        if settings.name not in self._pools:
            providers = {
                member.provider_name: self._config.get_provider(member.provider_name)
                for member in settings.members
            }
            for provider in providers.values():
                for secret in provider.secrets:
                    self._redactor.add(secret)
            self._pools[settings.name] = build_pool(
                settings,
                providers,
                clock=self._clock,
                ids=self._ids,
                prices=self._prices,
                shared=self._providers,
            )
        pool = self._pools[settings.name]
        pool.check_options(dict(bound.options))
        return pool

    def asks_for_prices(self, request: RunRequest) -> bool:
        """Whether the price book may be asked: half a second of reading that isn't for the loop's thread."""
        named = [request.model, *(stage.model for stage in request.stages.values())]
        models = [model for model in named if model is not None]
        models += [member.model for pool in self._config.pools.values() for member in pool.members]
        tables = (self._config.find_provider(model.partition(":")[0]) for model in models)
        return any(table is not None and table.kind not in FREE_KINDS for table in tables)
