"""Where prices come from: settings first, then what is free by nature, then the published book."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, model_validator

from remit.contract import Model
from remit.primitives import micros_from_usd
from remit.usage._prices import FREE, Price, PriceTier

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

FREE_KINDS: Final = frozenset({"scripted", "ollama", "local"})
"""Provider kinds that cost nothing unless a price is set for their model."""

_PUBLISHED: Final[Mapping[str, str]] = {
    "openai": "openai",
    "openai-chat": "openai",
    "anthropic": "anthropic",
    "google": "google",
    "vertex": "google",
    "azure": "azure",
    "bedrock": "aws",
    "openrouter": "openrouter",
}
"""Provider kind -> its name in the published book. `openai-compatible` is found by its address alone."""

# Charges that a plain request of tokens may bring along and that our four prices can't express.
_OTHER_CHARGES: Final = ("output_reasoning_mtok", "output_citation_mtok", "requests_kcount")

_UsdPerMtok = Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=9)]


class PriceSetting(Model):
    """`[prices."NAME:MODEL"]`: what a model costs, in USD per million tokens, or that it is free."""

    input_usd_per_mtok: _UsdPerMtok | None = None
    output_usd_per_mtok: _UsdPerMtok | None = None
    cache_read_usd_per_mtok: _UsdPerMtok | None = None
    """None: as input."""
    cache_write_usd_per_mtok: _UsdPerMtok | None = None
    """None: as input."""
    free: bool = False

    @model_validator(mode="after")
    def _check_whole(self) -> PriceSetting:
        priced = (self.input_usd_per_mtok, self.output_usd_per_mtok)
        cached = (self.cache_read_usd_per_mtok, self.cache_write_usd_per_mtok)
        if self.free and any(value is not None for value in (*priced, *cached)):
            raise ValueError("a model is either free or has prices")
        if not self.free and None in priced:
            raise ValueError("give input_usd_per_mtok and output_usd_per_mtok, or free = true")
        return self

    def price(self) -> Price:
        """The setting as a price."""
        if self.free or self.input_usd_per_mtok is None or self.output_usd_per_mtok is None:
            return FREE
        read, write = self.cache_read_usd_per_mtok, self.cache_write_usd_per_mtok
        return Price(
            input_micros=micros_from_usd(self.input_usd_per_mtok),
            output_micros=micros_from_usd(self.output_usd_per_mtok),
            cache_read_micros=micros_from_usd(self.input_usd_per_mtok if read is None else read),
            cache_write_micros=micros_from_usd(self.input_usd_per_mtok if write is None else write),
            version="config",
        )


class PriceBook:
    """Prices by model. A model that nobody priced is unknown, never free.

    Args:
        settings: Prices of the configuration, by `NAME:MODEL`; they win over everything.
    """

    def __init__(self, settings: Mapping[str, PriceSetting] | None = None) -> None:
        self._settings = {name: setting.price() for name, setting in (settings or {}).items()}

    def load(self) -> None:
        """Read the published book (a quarter of a second, once a process); for a thread, ahead of need."""
        _published_version()

    @property
    def is_loaded(self) -> bool:
        """Whether the published book has been read, so that nothing here takes long."""
        return _published_version.cache_info().currsize > 0

    def find(
        self,
        model: str,
        *,
        kind: str,
        at: datetime,
        base_url: str | None = None,
        service_tier: str | None = None,
    ) -> Price | None:
        """The price of a model at a moment, or None where it isn't known.

        Args:
            model: `NAME:MODEL`, the configured provider's name and the model's.
            kind: The provider's kind.
            at: When the request is sent; prices have dates, and some have times of day.
            base_url: Where the provider is reached, if not at its kind's own address.
            service_tier: The tier asked for in the request's options, which some providers price apart.
        """
        if model in self._settings:
            return self._settings[model]
        if kind in FREE_KINDS:
            return FREE
        name = model.partition(":")[2] or model
        info = _find_published(name, kind=kind, base_url=base_url)
        if info is None:
            return None
        context = {"service_tier": service_tier} if service_tier else None
        return _as_price(info.get_prices(at, context), f"{_published_version()} of {at.date().isoformat()}")


@functools.cache
def _published_version() -> str:
    # A quarter of a second and 12 MB: only who asks for a price pays for it.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    get_snapshot()
    return f"genai-prices {version('genai-prices')}"


def _find_published(name: str, *, kind: str, base_url: str | None) -> ModelInfo | None:
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - as above

    provider = None if base_url else _PUBLISHED.get(kind)
    if provider is None and base_url is None:
        return None
    try:
        _, info = get_snapshot().find_provider_model(name, None, provider, base_url)
    except LookupError:
        return None
    return info


def _as_price(published: ModelPrice, origin: str) -> Price | None:
    """The book's price in our four buckets; None where it is charged by something else as well."""
    if any(getattr(published, key) is not None for key in _OTHER_CHARGES):
        return None
    thresholds = sorted({start for key in _FOUR for start in _starts(published, key)})
    first = _four_at(published, 0)
    if first is None:
        return None
    tiers: list[PriceTier] = []
    for start in thresholds:
        four = _four_at(published, start + 1)
        if four is None:
            return None
        tiers.append(PriceTier(above_input_tokens=start, **four))
    return Price(**first, version=origin, tiers=tuple(tiers))


_FOUR: Final = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


def _starts(published: ModelPrice, key: str) -> Iterable[int]:
    return (tier.start for tier in getattr(getattr(published, key), "tiers", ()))


def _four_at(published: ModelPrice, input_tokens: int) -> dict[str, int] | None:
    """The four prices of a request with so much input; an unpriced cache bucket costs what input costs."""
    tokens_in, tokens_out, read, write = (_rate(published, key, input_tokens) for key in _FOUR)
    if tokens_in is None or tokens_out is None:
        return None
    return {
        "input_micros": micros_from_usd(tokens_in),
        "output_micros": micros_from_usd(tokens_out),
        "cache_read_micros": micros_from_usd(tokens_in if read is None else read),
        "cache_write_micros": micros_from_usd(tokens_in if write is None else write),
    }


def _rate(published: ModelPrice, key: str, input_tokens: int) -> Decimal | None:
    value = getattr(published, key)
    if value is None or isinstance(value, Decimal):
        return value
    rate: Decimal = value.base
    for tier in value.tiers:
        if input_tokens > tier.start:
            rate = tier.price
    return rate
