"""Which models there are, as admission is told."""

from __future__ import annotations

from remit.config import Config
from remit.errors import RequestError
from remit.models import takes_images
from remit.primitives import Clock
from remit.usage import PriceBook


class ModelCatalog:
    """Which models there are and which have a price, for admission."""

    def __init__(self, config: Config, prices: PriceBook, clock: Clock) -> None:
        self._config = config
        self._prices = prices
        self._clock = clock
        self._usable: set[str] = set()
        """Models whose provider was found whole, once: its pool keeps those settings, too."""

    def models_of(self, pool: str) -> tuple[str, ...] | None:
        """`NAME:MODEL` of each member of a pool; None: no such pool."""
        settings = self._config.pools.get(pool)
        return tuple(member.model for member in settings.members) if settings is not None else None

    def refusal(self, model: str) -> RequestError | None:
        """Why `NAME:MODEL` can't be asked at all; None: it can be."""
        if model not in self._usable:
            try:
                self._config.check_model(model)
            except RequestError as error:
                return error
            self._usable.add(model)
        return None

    def takes_images(self, model: str, *, pool: str | None) -> bool:
        """Whether a model may be shown pictures, as a member of this pool."""
        settings = self._config.pools.get(pool) if pool is not None else None
        members = settings.members if settings is not None else ()
        stated = next((member.images for member in members if member.model == model), None)
        return takes_images(model.partition(":")[2], stated)

    def is_priced(self, model: str) -> bool:
        """Whether the model has a price, or is free."""
        table = self._config.find_provider(model.partition(":")[0])
        if table is None:
            return False
        found = self._prices.find(model, kind=table.kind, at=self._clock.now(), base_url=table.base_url)
        return found is not None
