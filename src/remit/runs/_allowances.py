"""What a key may still spend, over all its runs at once.

A key's budget lies above those of its runs, so each request is reserved in both in one step, and runs beside
one another can't pass the key's cap together. What was spent before this process is read from the ledger.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Final, Protocol

from remit.admission import Caller
from remit.contract import KeySpending, LimitRequest
from remit.errors import CapSpent, QuotaExceeded
from remit.primitives import micros_from_usd, usd_from_micros
from remit.usage import Budget, Spent

_RETRY_AFTER_MS: Final = 5_000


class KeyLedger(Protocol):
    """Where keys and what they spent are kept."""

    async def find_spending(self, key_id: str, *, tenant: str) -> KeySpending | None:
        """What a key may spend, and what it has; None: the tenant has no such key."""
        ...


class Allowances:
    """The budgets of keys, each read once. Belongs to the loop's thread."""

    def __init__(self, ledger: KeyLedger) -> None:
        self._ledger = ledger
        self._budgets: dict[tuple[str, str], Budget | None] = {}
        self._reading = asyncio.Lock()

    async def get(self, key_id: str | None, *, tenant: str) -> Budget | None:
        """The budget of a key; None: it has no cap, or nobody came with a key.

        Raises:
            StorageError: The ledger can't be read: then nothing may be spent.
        """
        if key_id is None:
            return None
        async with self._reading:
            if (tenant, key_id) not in self._budgets:
                spending = await self._ledger.find_spending(key_id, tenant=tenant)
                self._budgets[tenant, key_id] = None if spending is None else _budget(spending)
            return self._budgets[tenant, key_id]

    async def check(self, caller: Caller) -> None:
        """Whether a key may start a run that costs anything at all.

        Raises:
            CapSpent: It has spent all that it may.
            QuotaExceeded: What is left is held for its requests in flight; some of it may come back.
        """
        budget, cap = await self.get(caller.key_id, tenant=caller.tenant), caller.limits.max_cost_usd
        if budget is None or cap is None:
            return
        left = micros_from_usd(Decimal(str(cap))) - budget.subtree.cost_micros
        spent = usd_from_micros(budget.subtree.cost_micros)
        told = f"the runs of this key have cost {spent} USD of the {cap} that they may cost together"
        if left <= 0:
            raise CapSpent(f"{told}; a new key may spend more", spent_usd=spent, cap_usd=float(cap))
        held = budget.reserved.cost_micros
        if left <= held:
            held_usd = usd_from_micros(held)
            message = f"{told}, and {held_usd} USD are held for its requests in flight"
            raise QuotaExceeded(message, retry_after_ms=_RETRY_AFTER_MS)


def _budget(spending: KeySpending) -> Budget | None:
    if spending.max_cost_usd is None:
        return None
    limits = LimitRequest(max_cost_usd=spending.max_cost_usd)
    return Budget(limits, spent=Spent(cost_micros=spending.spent_micros), whose=f"key `{spending.name}`")
