"""What did it cost: reserved before a request, recorded with it, settled after it.

A number that isn't known is None with its cause, never 0, and a model that nobody priced is never free.
"""

from remit.usage._book import FREE_KINDS, PriceBook, PriceSetting
from remit.usage._budget import MIN_OUTPUT_TOKENS, Budget, Reservation, Settled, Spent
from remit.usage._ledger import Bill, LedgerRow, strict_causes, strict_coverage, summarise, summarise_attempts
from remit.usage._prices import FREE, Price, PriceTier, cost_micros, worst_cost_micros
from remit.usage._working import WorkingTime

__all__ = [
    "FREE",
    "FREE_KINDS",
    "MIN_OUTPUT_TOKENS",
    "Bill",
    "Budget",
    "LedgerRow",
    "Price",
    "PriceBook",
    "PriceSetting",
    "PriceTier",
    "Reservation",
    "Settled",
    "Spent",
    "WorkingTime",
    "cost_micros",
    "strict_causes",
    "strict_coverage",
    "summarise",
    "summarise_attempts",
    "worst_cost_micros",
]
