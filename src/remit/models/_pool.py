"""The pool: who is asked, and the single owner of retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from remit.errors import ConfigError, ProviderError
from remit.models._attempt import AttemptCall, Broken, Completed, Outcome
from remit.models._ending import Ending
from remit.models._estimate import estimate_input_tokens
from remit.models._json_mode import as_call_deltas, read_json_reply
from remit.models._members import Member, bound_to, choose, may_serve_after
from remit.models._messages import AssistantMessage, UserMessage
from remit.models._options import check_options
from remit.models._port import (
    AttemptLedger,
    AttemptStart,
    Delta,
    ModelReply,
    ModelRequest,
)
from remit.models._retry import LONGEST_ASKED_S, MAX_RETRIES, Jitter, backoff_s
from remit.models._shielded import run_shielded
from remit.models._storable import as_storable
from remit.primitives import Clock, Ids
from remit.usage import FREE, FREE_KINDS, Price

_MAX_ADAPTATIONS = 3
_PRICE_KEPT_S = 60.0
Remaining = Callable[[], float | None]


class Prices(Protocol):
    """Where prices come from; `remit.usage.PriceBook` is one."""

    def load(self) -> None:
        """Read them; may take a while, so it is called in a thread."""
        ...

    def find(
        self, model: str, *, kind: str, at: datetime, base_url: str | None, service_tier: str | None
    ) -> Price | None:
        """The price of `NAME:MODEL` at a moment; None where nobody priced it."""
        ...


@dataclass(slots=True, kw_only=True)
class _Progress:
    """How far one request of a round has come."""

    candidates: list[Member]
    """Who may still be asked."""
    pinned: Member | None
    """The only one who may: its tool calls stand in the conversation, or somebody saw its output."""
    last_model: str | None
    """Who gave the conversation's last reply."""
    again: Member | None = None
    """To be asked at once, with something of ours left out."""
    ordinal: int = 0
    adaptations: int = 0
    offered: bool = True
    """Whether the last request offered tools in the provider's own form."""
    failures: list[Member] = field(default_factory=list[Member])
    """Who failed, in order."""
    not_before: dict[str, float] = field(default_factory=dict[str, float])
    """Monotonic seconds, by member."""
    last: Broken | None = None


class Pool:
    """Provider models that can serve a stage (see `ModelPool`)."""

    def __init__(
        self,
        *,
        name: str,
        members: Sequence[Member],
        clock: Clock,
        ids: Ids,
        jitter: Jitter,
        prices: Prices | None,
    ) -> None:
        self.name = name
        self._prices = prices
        self._prices_loaded = False
        self._found_prices: dict[tuple[str, str | None], tuple[float, Price | None]] = {}
        self._members = tuple(members)
        self._clock = clock
        self._ids = ids
        self._jitter = jitter

    @property
    def model(self) -> str:
        """`NAME:MODEL` that is asked first."""
        return min(self._members, key=lambda member: member.settings.order).model

    @property
    def context_window_tokens(self) -> int:
        """How much a conversation may hold that any of its members can go on with."""
        return min(member.context_window_tokens for member in self._members)

    @property
    def input_room_tokens(self) -> int:
        """How much of that may be input, so that the longest reply has its place, in half of it at most."""
        return min(member.input_room_tokens for member in self._members)

    def check_options(self, options: dict[str, Any]) -> None:
        """Refuse options of a stage binding that one of its members wouldn't honour.

        Raises:
            ConfigError: Names the option and the member's model.
        """
        for member in self._members:
            if member.settings.tool_mode == "json" and options.get("parallel_tool_calls") is not None:
                raise ConfigError(
                    f"{member.model} replies in JSON, one call a reply, so it takes no `parallel_tool_calls`",
                    option="parallel_tool_calls",
                )
            kind = member.provider.settings.kind
            check_options(kind=kind, model=member.settings.model_name, options=options)

    async def prepare(self) -> None:
        """Import what those need who are asked first, and make their clients, in a thread; idempotent."""
        paid = any(member.provider.settings.kind not in FREE_KINDS for member in self._members)
        if self._prices is not None and paid and not self._prices_loaded:
            await asyncio.to_thread(self._prices.load)
            self._prices_loaded = True
        first = min(member.settings.order for member in self._members)
        for member in self._members:
            if member.settings.order == first:
                await member.provider.adapter.prepare()
                await member.look()

    async def aclose(self) -> None:
        """Close the providers' connections; for a pool that shares none."""
        for member in self._members:
            await member.provider.adapter.aclose()

    async def request(
        self,
        request: ModelRequest,
        *,
        ledger: AttemptLedger,
        on_delta: Callable[[Delta], None],
        remaining_s: Remaining,
    ) -> ModelReply:
        """One complete reply; see `ModelPool.request`."""
        self.check_options(dict(request.options))
        await self.prepare()
        progress = self._begin(request)
        while True:
            member = self._pick(progress)
            await member.provider.adapter.prepare()
            await member.look()
            member.in_flight += 1
            try:
                outcome, attempt_id = await self._try(
                    member, request, progress, ledger=ledger, on_delta=on_delta, remaining_s=remaining_s
                )
            finally:
                member.in_flight -= 1
            match outcome:
                case Completed():
                    member.succeeded()
                    return ModelReply(
                        message=outcome.message,
                        finish=outcome.finish,
                        model=member.model,
                        usage=outcome.usage,
                        attempt_id=attempt_id,
                    )
                case Broken():
                    self._plan_retry(outcome, member, progress)

    def _begin(self, request: ModelRequest) -> _Progress:
        replies = [message for message in request.messages if isinstance(message, AssistantMessage)]
        shows = any(isinstance(message, UserMessage) and message.images for message in request.messages)
        candidates = [member for member in self._members if member.takes_images or not shows]
        if not candidates:
            raise ProviderError(f"no model of pool {self.name} takes pictures", reason="protocol")
        return _Progress(
            candidates=candidates,
            pinned=bound_to(self._members, request.messages),
            last_model=replies[-1].model if replies else None,
        )

    def _pick(self, progress: _Progress) -> Member:
        again, progress.again = progress.again, None
        if again is not None or progress.pinned is not None:
            member = again or progress.pinned
            assert member is not None
            return member
        return choose(
            progress.candidates, last_model=progress.last_model, clock=self._clock, jitter=self._jitter
        )

    async def _try(
        self,
        member: Member,
        request: ModelRequest,
        progress: _Progress,
        *,
        ledger: AttemptLedger,
        on_delta: Callable[[Delta], None],
        remaining_s: Remaining,
    ) -> tuple[Outcome, str]:
        """Wait until the member may be asked, and ask it once."""

        def show(delta: Delta) -> None:
            progress.pinned = member  # what was seen can't be taken back: nobody else begins anew
            on_delta(delta)

        began = self._clock.monotonic()
        async with AsyncExitStack() as held:
            with ledger.waiting():
                await self._keep_pause(member, progress, remaining_s)
                await held.enter_async_context(member.permit())
                # Whoever waited for a permit may find that the key was told to pause meanwhile.
                await self._keep_pause(member, progress, remaining_s)
            waited_ms = _ms(self._clock.monotonic() - began)
            progress.ordinal += 1
            form = member.form(request)
            progress.offered = form.reply_schema is None
            if progress.offered:
                return await self._attempt(member, form, progress.ordinal, waited_ms, ledger, show)
            outcome, attempt_id = await self._attempt(
                member, form, progress.ordinal, waited_ms, ledger, as_call_deltas(show)
            )
            if isinstance(outcome, Completed):
                outcome = read_json_reply(outcome, new_id=lambda: self._ids.new("call"))
            return outcome, attempt_id

    def _plan_retry(self, outcome: Broken, member: Member, progress: _Progress) -> None:
        """Say who is asked next and when, or give up.

        Raises:
            ProviderError: It can't get better, or was tried often enough.
        """
        progress.last = outcome
        progress.not_before.pop(member.model, None)
        if member.learns_json(outcome, offered=progress.offered):
            progress.again = member
            return
        if outcome.adapted and progress.adaptations < _MAX_ADAPTATIONS:
            progress.adaptations += 1
            progress.again = member
            return
        member.failed(outcome, clock=self._clock, jitter=self._jitter)
        progress.failures.append(member)
        others = self._others(outcome, member, progress)
        most = MAX_RETRIES if outcome.most_retries is None else outcome.most_retries
        stays = outcome.retryable and progress.failures.count(member) <= most
        if len(progress.failures) > MAX_RETRIES or not (stays or others):
            raise self._failure(outcome, member, progress)
        progress.candidates = [*others, member] if stays else others
        if stays:
            self._back_off(outcome, member, progress)

    def _others(self, outcome: Broken, member: Member, progress: _Progress) -> list[Member]:
        """Who may be asked in its place."""
        if progress.pinned is not None:
            return []
        return [
            other
            for other in progress.candidates
            if other is not member and may_serve_after(outcome, member, other)
        ]

    def _back_off(self, outcome: Broken, member: Member, progress: _Progress) -> None:
        """When the member may be asked again, by this request and by everybody with its key."""
        own = backoff_s(len(progress.failures), self._jitter)
        asked = outcome.pause_s or 0.0
        pause = asked + self._jitter() * min(1.0, asked / 10) if asked > 0 else own
        if outcome.pauses_key:
            member.provider.pause.extend(asked or own, clock=self._clock)
        progress.not_before[member.model] = self._clock.monotonic() + pause

    async def _keep_pause(self, member: Member, progress: _Progress, remaining_s: Remaining) -> None:
        """Wait for our own back-off and for the key's pause, whichever is longer.

        Raises:
            ProviderError: The pause is longer than what stage and run have left.
        """
        while True:
            own_s = progress.not_before.get(member.model, 0.0) - self._clock.monotonic()
            key_s = member.provider.pause.left_s(self._clock)
            pause_s = max(own_s, key_s)
            if pause_s <= 0:
                return
            left_s = remaining_s()
            if pause_s > (LONGEST_ASKED_S if left_s is None else left_s):
                raise self._too_long(pause_s, left_s, member, progress)
            if key_s >= own_s:
                pause_s += self._jitter() * min(1.0, pause_s / 10)  # so that not all wake at once
            await self._clock.sleep(pause_s)

    def _too_long(
        self, pause_s: float, left_s: float | None, member: Member, progress: _Progress
    ) -> ProviderError:
        last = progress.last
        limited = last is None or last.reason == "rate_limited" or last.pause_s is not None
        if last is not None and not limited:
            return self._failure(last, member, progress)
        bound = (
            f"{LONGEST_ASKED_S:.0f} s is the most" if left_s is None else f"{max(0.0, left_s):.1f} s are left"
        )
        message = f"{member.model} asks for a pause of {pause_s:.1f} s, but {bound}"
        return ProviderError(
            message,
            reason="rate_limited",
            detail=last.detail if last else message,
            pause_s=round(pause_s, 3),
            attempts=progress.ordinal,
        )

    def _failure(self, outcome: Broken, member: Member, progress: _Progress) -> ProviderError:
        tries = f" after {progress.ordinal} attempts" if progress.ordinal > 1 else ""
        return ProviderError(
            f"{member.model} gave no reply{tries}: {outcome.reason}",
            reason=outcome.reason,
            detail=outcome.detail,
            attempts=progress.ordinal,
        )

    async def _attempt(
        self,
        member: Member,
        request: ModelRequest,
        ordinal: int,
        waited_ms: int,
        ledger: AttemptLedger,
        on_delta: Callable[[Delta], None],
    ) -> tuple[Outcome, str]:
        start = self._start(member, request, ordinal)
        # Shielded, since a cancel in the middle of it would leave a row that nobody ends.
        granted, cancelled = await run_shielded(ledger.begin(start))
        call = self._call(member, request, start, granted)
        began = self._clock.monotonic()
        exchange = member.provider.adapter.open(call)
        ending = Ending(call=call, exchange=exchange, waited_ms=waited_ms)
        try:
            if cancelled:
                raise asyncio.CancelledError
            ending.sent = True
            outcome = as_storable(await member.provider.adapter.run(call, exchange, on_delta=on_delta))
            ending.outcome = outcome
        except Exception:
            ending.stopped = "failed"  # a fault of ours; the row ends all the same
            raise
        finally:
            duration_ms = _ms(self._clock.monotonic() - began)
            _, cancelled = await run_shielded(ledger.end(ending.finish(duration_ms)))
        if cancelled:
            raise asyncio.CancelledError
        return outcome, call.attempt_id

    def _start(self, member: Member, request: ModelRequest, ordinal: int) -> AttemptStart:
        return AttemptStart(
            attempt_id=self._ids.new("att"),
            stage_id=request.stage_id,
            round=request.round,
            ordinal=ordinal,
            model=member.model,
            input_tokens_estimate=estimate_input_tokens(request.messages, request.tools),
            max_output_tokens=_asked_bound(request) or member.longest_reply_tokens,
            price=self._price(member, request.options.get("service_tier")),
            pool=self.name,
        )

    def _call(self, member: Member, request: ModelRequest, start: AttemptStart, granted: int) -> AttemptCall:
        """What to send: the bound too, but where the provider keeps to the same one by itself.

        Providers count an explicit bound against the rate limit, so none is sent without need.
        """
        asked = _asked_bound(request) is not None
        needed = asked or granted < start.max_output_tokens or not member.bounds_itself
        return AttemptCall(
            request=request,
            attempt_id=start.attempt_id,
            model=member.settings.model_name,
            full_model=member.model,
            window_tokens=member.found_window_tokens,
            max_output_tokens=granted if needed else None,
            bound_is_assumed=not asked and granted == start.max_output_tokens,
        )

    def _price(self, member: Member, service_tier: str | None) -> Price | None:
        """The price that holds now; looked up anew now and then, since prices have dates."""
        if self._prices is None:
            return FREE if member.provider.settings.kind in FREE_KINDS else None
        now, key = self._clock.monotonic(), (member.model, service_tier)
        found = self._found_prices.get(key)
        if found is None or now - found[0] > _PRICE_KEPT_S:
            settings = member.provider.settings
            price = self._prices.find(
                member.model,
                kind=settings.kind,
                at=self._clock.now(),
                base_url=settings.base_url,
                service_tier=service_tier,
            )
            found = self._found_prices[key] = (now, price)
        return found[1]


def _asked_bound(request: ModelRequest) -> int | None:
    bounds = (request.max_output_tokens, request.options.get("max_output_tokens"))
    return min((bound for bound in bounds if bound is not None), default=None)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
