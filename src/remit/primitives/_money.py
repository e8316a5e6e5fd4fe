"""Money as whole micro-USD: no float is ever added to another."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

MICROS_PER_USD = 1_000_000


def micros_from_usd(usd: Decimal | float | int | str) -> int:
    """Whole micro-USD, rounded up: a cap errs on the side of the caller's purse.

    Raises:
        ValueError: Not a finite number.
    """
    value = usd if isinstance(usd, Decimal) else Decimal(str(usd))
    if not value.is_finite():
        raise ValueError(f"not an amount of money: {usd}")
    return int((value * MICROS_PER_USD).to_integral_value(rounding=ROUND_CEILING))


def usd_from_micros(micros: int) -> float:
    """The number that goes into JSON as `cost_usd`: exact to the micro-USD."""
    return micros / MICROS_PER_USD
