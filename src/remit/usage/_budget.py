"""Tokens and money are reserved before a request is sent, and settled after it.

A reservation is the worst case: the input estimate in its dearest bucket and the most output that can come.
It is taken in one synchronous step over the whole line of budgets up to the root of the tree, so that calls
beside one another can't slip past a limit together. Output can't pass its bound, so what is spent passes a
limit by no more than what the input estimates of the calls in flight were short of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from remit.contract import AttemptUsage, LimitRequest, Limits, LimitWarning, TokenCounts
from remit.errors import LimitReached, MisuseError
from remit.primitives import micros_from_usd, usd_from_micros
from remit.usage._prices import Price, affordable_output, cost_micros, worst_cost_micros

MIN_OUTPUT_TOKENS: Final = 1_024
"""A request isn't sent when less output than this would fit (or than it asked for, where that is less)."""
_WARN_AT_PERCENT: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Tokens and money, settled or reserved. Where usage isn't known, its worst case counts."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: Spent) -> Spent:
        """The sum."""
        return Spent(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_micros=self.cost_micros + other.cost_micros,
        )

    def minus(self, other: Spent) -> Spent:
        """The difference."""
        return Spent(
            input_tokens=self.input_tokens - other.input_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            cost_micros=self.cost_micros - other.cost_micros,
        )


class Reservation:
    """The worst case of one request, held until it is settled or released."""

    __slots__ = ("amount", "budget", "held", "max_output_tokens", "price")

    def __init__(self, budget: Budget, *, amount: Spent, price: Price | None) -> None:
        self.budget = budget
        self.amount = amount
        self.price = price
        self.max_output_tokens = amount.output_tokens
        """The most output that the request may ask for: what was wished, or what still fits."""
        self.held = True

    @property
    def tokens(self) -> int:
        """Input estimate plus the most output."""
        return self.amount.total_tokens

    @property
    def micros(self) -> int | None:
        """The same as money; None where the model has no price."""
        return None if self.price is None else self.amount.cost_micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What came of a reservation."""

    cost_micros: int | None
    """What the request cost; None where its usage isn't whole, or it has no price."""
    warnings: tuple[LimitWarning, ...]
    """Limits of which 80 % is used now; each once."""


class Budget:
    """What a run may spend, with all its children. Belongs to the loop's thread.

    Args:
        limits: The run's limits; only those of tokens and money count here.
        parent: The budget of the run that this one is a child of; what is spent here is spent there too.
        spent: What this run itself has spent before (it is taken up again).
        whose: Whose it is, for messages; empty: the run's own.
    """

    def __init__(
        self,
        limits: Limits | LimitRequest,
        *,
        parent: Budget | None = None,
        spent: Spent | None = None,
        whose: str = "",
    ) -> None:
        self._parent = parent
        self._whose = whose
        self._caps = _caps(limits)
        self._own = self._subtree = spent or Spent()
        self._reserved = Spent()
        self._warned: set[str] = set()
        if parent is not None:
            parent._add_below(self._own)

    def child(self, limits: Limits) -> Budget:
        """The budget of a child run: its own limits, and what is left of this one."""
        return Budget(limits, parent=self)

    @property
    def own(self) -> Spent:
        """Settled by this run itself."""
        return self._own

    @property
    def subtree(self) -> Spent:
        """Settled by this run and its children."""
        return self._subtree

    @property
    def reserved(self) -> Spent:
        """Held by requests in flight, of this run and its children."""
        return self._reserved

    def reserve(
        self,
        *,
        input_estimate: int,
        max_output: int,
        price: Price | None,
        min_output: int = MIN_OUTPUT_TOKENS,
        keep_input: int = 0,
        keep_output: int = 0,
    ) -> Reservation:
        """Hold the worst case of a request, or refuse it; nothing waits between looking and holding.

        Where only the output bound is too large, it is lowered to what still fits, but not below
        `min_output`: the reservation says which bound the request must be sent with.

        Args:
            input_estimate: Tokens that are sent.
            max_output: The most tokens that can come.
            price: What they cost; None: nobody priced them.
            min_output: Less output than this isn't worth asking for.
            keep_input: Input that must still fit afterwards, for a later request.
            keep_output: Output that must still fit beside it.

        Raises:
            LimitReached: It doesn't fit (`limit_code` `tokens` or `cost`); nothing is held.
        """
        if input_estimate < 0 or max_output < 1:
            raise MisuseError("a request has at least 0 tokens of input and 1 of output")
        allowed, kept = max_output, _worst(keep_input, keep_output, price)
        for budget in self._line():
            allowed = min(allowed, budget._fitting_output(input_estimate, allowed, price, min_output, kept))
        amount = _worst(input_estimate, allowed, price)
        for budget in self._line():
            budget._reserved = budget._reserved.plus(amount)
        return Reservation(self, amount=amount, price=price)

    def settle(self, reservation: Reservation, usage: AttemptUsage) -> Settled:
        """Replace a reservation by what the request used; what isn't known counts at its worst case."""
        self._give_back(reservation)
        spent = _spent(reservation, usage)
        self._own = self._own.plus(spent)
        for budget in self._line():
            budget._subtree = budget._subtree.plus(spent)
        cost = _measured_cost(reservation.price, usage)
        return Settled(cost_micros=cost, warnings=tuple(self._new_warnings()))

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back: the request wasn't sent."""
        self._give_back(reservation)

    def _give_back(self, reservation: Reservation) -> None:
        if reservation.budget is not self or not reservation.held:
            raise MisuseError("a reservation is settled or released once, by the budget that gave it")
        reservation.held = False
        for budget in self._line():
            budget._reserved = budget._reserved.minus(reservation.amount)

    def _add_below(self, spent: Spent) -> None:
        for budget in self._line():
            budget._subtree = budget._subtree.plus(spent)

    def _line(self) -> Iterator[Budget]:
        budget: Budget | None = self
        while budget is not None:
            yield budget
            budget = budget._parent

    def _fitting_output(
        self, tokens_in: int, wished: int, price: Price | None, min_output: int, kept: Spent
    ) -> int:
        """The most output up to `wished` that fits here, beside what is kept for later.

        Raises:
            LimitReached: Less than is worth asking for would fit.
        """
        held = self._subtree.plus(self._reserved).plus(kept)
        worth = min(wished, min_output)
        for cap in self._caps:
            fitting = cap.fitting_output(held, tokens_in=tokens_in, price=price)
            if fitting is not None and fitting < worth:
                raise cap.reached(held, tokens_in=tokens_in, output=worth, price=price, whose=self._whose)
            wished = wished if fitting is None else min(wished, fitting)
        return wished

    def _new_warnings(self) -> Iterator[LimitWarning]:
        for budget in self._line():
            for cap in budget._caps:
                used = cap.used(budget._subtree)
                if cap.name not in budget._warned and used * 100 >= cap.value * _WARN_AT_PERCENT:
                    budget._warned.add(cap.name)
                    yield LimitWarning(kind=cap.name, value=cap.shown(used), cap=cap.shown(cap.value))


@dataclass(frozen=True, slots=True)
class _Cap:
    """One limit of tokens or money, in tokens or micro-USD."""

    name: str
    value: int

    def used(self, spent: Spent) -> int:
        match self.name:
            case "max_input_tokens":
                return spent.input_tokens
            case "max_output_tokens":
                return spent.output_tokens
            case "max_total_tokens":
                return spent.total_tokens
            case _:
                return spent.cost_micros

    def fitting_output(self, held: Spent, *, tokens_in: int, price: Price | None) -> int | None:
        """The most output that fits under this limit; None: this limit doesn't bound it."""
        left = self.value - self.used(held)
        match self.name:
            case "max_input_tokens":
                return None if tokens_in <= left else -1
            case "max_output_tokens":
                return left
            case "max_total_tokens":
                return left - tokens_in
            case _:
                if price is None:
                    return None
                return affordable_output(price, input_tokens=tokens_in, left_micros=left)

    def reached(
        self, held: Spent, *, tokens_in: int, output: int, price: Price | None, whose: str
    ) -> LimitReached:
        cost = 0 if price is None else worst_cost_micros(price, input_tokens=tokens_in, output_tokens=output)
        would_be = held.plus(Spent(input_tokens=tokens_in, output_tokens=output, cost_micros=cost))
        value, cap = self.shown(self.used(would_be)), self.shown(self.value)
        return LimitReached(
            f"the next request could bring {self.name}{whose and f' of {whose}'} to {value}, "
            f"and the limit is {cap}",
            limit_code="cost" if self.name == "max_cost_usd" else "tokens",
            kind=self.name,
            value=value,
            cap=cap,
        )

    def shown(self, value: int) -> int | float:
        """In the limit's own unit."""
        return usd_from_micros(value) if self.name == "max_cost_usd" else value


def _worst(input_tokens: int, output_tokens: int, price: Price | None) -> Spent:
    """The most that a request of this size can use."""
    cost = (
        0
        if price is None or not (input_tokens or output_tokens)
        else worst_cost_micros(price, input_tokens=input_tokens, output_tokens=output_tokens)
    )
    return Spent(input_tokens=input_tokens, output_tokens=output_tokens, cost_micros=cost)


def _caps(limits: Limits | LimitRequest) -> tuple[_Cap, ...]:
    caps = [
        _Cap(name, value)
        for name in ("max_input_tokens", "max_output_tokens", "max_total_tokens")
        if (value := getattr(limits, name)) is not None
    ]
    if limits.max_cost_usd is not None:
        # A cap is rounded down: never a micro-USD more than was allowed.
        caps.append(_Cap("max_cost_usd", -micros_from_usd(-limits.max_cost_usd)))
    return tuple(caps)


def _measured_cost(price: Price | None, usage: AttemptUsage) -> int | None:
    if usage.coverage == "refused":
        return 0
    return cost_micros(price, usage) if price is not None and usage.coverage == "reported" else None


def _spent(reservation: Reservation, usage: AttemptUsage) -> Spent:
    """What counts as spent: what was measured where all of it was, else the worst that may have been."""
    worst, price = reservation.amount, reservation.price
    if usage.coverage == "refused":
        return Spent()
    if usage.coverage == "reported" and usage.input_tokens is not None and usage.output_tokens is not None:
        cost = 0 if price is None else cost_micros(price, usage)
        return Spent(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_micros=worst.cost_micros if cost is None else cost,
        )
    known = TokenCounts(
        input_tokens=max(usage.input_tokens or 0, worst.input_tokens),
        output_tokens=max(usage.output_tokens or 0, worst.output_tokens),
    )
    cost = 0 if price is None else cost_micros(price, known) or 0
    return Spent(
        input_tokens=known.input_tokens or 0,
        output_tokens=known.output_tokens or 0,
        cost_micros=max(cost, worst.cost_micros),
    )
