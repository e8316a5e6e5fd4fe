"""What a model costs, and what an attempt did cost: whole micro-USD, each token in one bucket."""

from __future__ import annotations

from dataclasses import dataclass

from remit.contract import TokenCounts

_TOKENS_PER_PRICE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTier:
    """Prices that hold for the whole of a request whose input is longer than a threshold."""

    above_input_tokens: int
    input_micros: int
    output_micros: int
    cache_read_micros: int
    cache_write_micros: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Prices of one model, in micro-USD per million tokens (so that USD per Mtok x 10^6 is exact)."""

    input_micros: int
    output_micros: int
    cache_read_micros: int
    cache_write_micros: int
    version: str
    """Where the price comes from: `genai-prices 0.2.3 of 2026-11-20`, `config`, `free`."""
    tiers: tuple[PriceTier, ...] = ()
    """Dearer prices of longer requests, by rising threshold."""

    def tier(self, input_tokens: int) -> Price | PriceTier:
        """The prices that hold for a request with so much input."""
        found: Price | PriceTier = self
        for tier in self.tiers:
            if input_tokens > tier.above_input_tokens:
                found = tier
        return found


FREE = Price(input_micros=0, output_micros=0, cache_read_micros=0, cache_write_micros=0, version="free")
"""The price of what runs on the caller's own machine."""


def cost_micros(price: Price, usage: TokenCounts) -> int | None:
    """What an attempt cost, rounded up; None when its input or its output isn't known.

    `input_tokens` includes cache reads and writes, and `output_tokens` includes reasoning: each token is
    charged once, in its own bucket. Cache numbers that aren't known count as none: full price.
    """
    tokens_in, tokens_out = usage.input_tokens, usage.output_tokens
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    if tokens_in is None or tokens_out is None or min(tokens_in, tokens_out, read, written) < 0:
        return None
    at = price.tier(tokens_in)
    uncached = max(0, tokens_in - read - written)
    return _rounded_up(
        uncached * at.input_micros
        + read * at.cache_read_micros
        + written * at.cache_write_micros
        + tokens_out * at.output_micros
    )


def worst_cost_micros(price: Price, *, input_tokens: int, output_tokens: int) -> int:
    """The most that a request of this size can cost: every input token in its dearest bucket."""
    at = price.tier(input_tokens)
    dearest = max(at.input_micros, at.cache_read_micros, at.cache_write_micros)
    return _rounded_up(input_tokens * dearest + output_tokens * at.output_micros)


def affordable_output(price: Price, *, input_tokens: int, left_micros: int) -> int | None:
    """The most output tokens whose worst case still fits; None: output costs nothing, so any number."""
    at = price.tier(input_tokens)
    if at.output_micros == 0:
        return (
            None if worst_cost_micros(price, input_tokens=input_tokens, output_tokens=0) <= left_micros else 0
        )
    dearest = max(at.input_micros, at.cache_read_micros, at.cache_write_micros)
    left = left_micros * _TOKENS_PER_PRICE - input_tokens * dearest
    return max(0, left // at.output_micros)


def _rounded_up(token_micros: int) -> int:
    return -(-token_micros // _TOKENS_PER_PRICE)
