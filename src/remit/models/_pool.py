"""The pool: one member per request, and the single owner of retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from remit.errors import ProviderError
from remit.models._attempt import NOTHING_SENT, Adapter, AttemptCall, Broken, Completed, Exchange, Outcome
from remit.models._catalog import find_model, known_max_output, known_window
from remit.models._estimate import estimate_input_tokens
from remit.models._options import check_options
from remit.models._port import (
    AttemptFinish,
    AttemptLedger,
    AttemptStart,
    Delta,
    ModelReply,
    ModelRequest,
)
from remit.models._retry import LONGEST_ASKED_S, MAX_RETRIES, Jitter, KeyPause, backoff_s
from remit.models._settings import PoolMember, ProviderSettings
from remit.models._shielded import run_shielded
from remit.primitives import Clock, Ids
from remit.usage import FREE, FREE_KINDS, Price

_MAX_ADAPTATIONS = 3
_MAX_DETAIL = 2_000
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
class ProviderHandle:
    """A configured provider at work; pools that use the same one share it."""

    settings: ProviderSettings
    adapter: Adapter
    pause: KeyPause = field(default_factory=KeyPause)


@dataclass(slots=True, kw_only=True)
class _Progress:
    """How far one request of a round has come."""

    ordinal: int = 0
    failures: int = 0
    adaptations: int = 0
    not_before: float = 0.0
    """Monotonic seconds."""
    last: Broken | None = None


class Pool:
    """Provider models that can serve a stage; one member in this version (see `ModelPool`)."""

    def __init__(
        self,
        *,
        name: str,
        member: PoolMember,
        provider: ProviderHandle,
        clock: Clock,
        ids: Ids,
        jitter: Jitter,
        prices: Prices | None,
    ) -> None:
        self.name = name
        self._prices = prices
        self._prices_loaded = False
        self._found_prices: dict[str | None, tuple[float, Price | None]] = {}
        self._member = member
        self._provider = provider
        self._clock = clock
        self._ids = ids
        self._jitter = jitter
        self._permits = asyncio.Semaphore(member.max_concurrency) if member.max_concurrency else None

    @property
    def model(self) -> str:
        """`NAME:MODEL` that serves it."""
        return self._member.model

    @property
    def context_window_tokens(self) -> int:
        """How much a conversation with it may hold."""
        return self._member.context_window_tokens or known_window(self._member.model_name)

    def check_options(self, options: dict[str, Any]) -> None:
        """Refuse options of a stage binding that its member wouldn't honour.

        Raises:
            ConfigError: Names the option.
        """
        kind = self._provider.settings.kind
        check_options(kind=kind, model=self._member.model_name, options=options)

    async def prepare(self) -> None:
        """Import the provider's module and make its client, in a thread; idempotent."""
        free = self._provider.settings.kind in FREE_KINDS
        if self._prices is not None and not free and not self._prices_loaded:
            await asyncio.to_thread(self._prices.load)
            self._prices_loaded = True
        await self._provider.adapter.prepare()

    async def aclose(self) -> None:
        """Close the provider's connections; for a pool that shares none."""
        await self._provider.adapter.aclose()

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
        progress = _Progress()
        while True:
            began = self._clock.monotonic()
            async with AsyncExitStack() as held:
                with ledger.waiting():
                    await self._keep_pause(progress, remaining_s)
                    await held.enter_async_context(self._permit())
                    # Whoever waited for a permit may find that the key was told to pause meanwhile.
                    await self._keep_pause(progress, remaining_s)
                waited_ms = _ms(self._clock.monotonic() - began)
                progress.ordinal += 1
                outcome, attempt_id = await self._attempt(
                    request, progress.ordinal, waited_ms, ledger, on_delta
                )
            match outcome:
                case Completed():
                    return ModelReply(
                        message=outcome.message,
                        finish=outcome.finish,
                        model=self.model,
                        usage=outcome.usage,
                        attempt_id=attempt_id,
                    )
                case Broken():
                    self._plan_retry(outcome, progress)

    def _permit(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext() if self._permits is None else self._permits

    def _plan_retry(self, outcome: Broken, progress: _Progress) -> None:
        """Say when to ask again, or give up.

        Raises:
            ProviderError: It can't get better, or was tried often enough.
        """
        progress.last, progress.not_before = outcome, 0.0
        if outcome.adapted and progress.adaptations < _MAX_ADAPTATIONS:
            progress.adaptations += 1
            return
        progress.failures += 1
        most = MAX_RETRIES if outcome.most_retries is None else outcome.most_retries
        if not outcome.retryable or progress.failures > most:
            raise self._failure(outcome, progress)
        own = backoff_s(progress.failures, self._jitter)
        asked = outcome.pause_s or 0.0
        pause = asked + self._jitter() * min(1.0, asked / 10) if asked > 0 else own
        if outcome.pauses_key:
            self._provider.pause.extend(asked or own, clock=self._clock)
        progress.not_before = self._clock.monotonic() + pause

    async def _keep_pause(self, progress: _Progress, remaining_s: Remaining) -> None:
        """Wait for our own back-off and for the key's pause, whichever is longer.

        Raises:
            ProviderError: The pause is longer than what stage and run have left.
        """
        while True:
            own_s = progress.not_before - self._clock.monotonic()
            key_s = self._provider.pause.left_s(self._clock)
            pause_s = max(own_s, key_s)
            if pause_s <= 0:
                return
            left_s = remaining_s()
            if pause_s > (LONGEST_ASKED_S if left_s is None else left_s):
                raise self._too_long(pause_s, left_s, progress)
            if key_s >= own_s:
                pause_s += self._jitter() * min(1.0, pause_s / 10)  # so that not all wake at once
            await self._clock.sleep(pause_s)

    def _too_long(self, pause_s: float, left_s: float | None, progress: _Progress) -> ProviderError:
        last = progress.last
        limited = last is None or last.reason == "rate_limited" or last.pause_s is not None
        if last is not None and not limited:
            return self._failure(last, progress)
        bound = (
            f"{LONGEST_ASKED_S:.0f} s is the most" if left_s is None else f"{max(0.0, left_s):.1f} s are left"
        )
        message = f"{self.model} asks for a pause of {pause_s:.1f} s, but {bound}"
        return ProviderError(
            message,
            reason="rate_limited",
            detail=last.detail if last else message,
            pause_s=round(pause_s, 3),
            attempts=progress.ordinal,
        )

    def _failure(self, outcome: Broken, progress: _Progress) -> ProviderError:
        tries = f" after {progress.ordinal} attempts" if progress.ordinal > 1 else ""
        return ProviderError(
            f"{self.model} gave no reply{tries}: {outcome.reason}",
            reason=outcome.reason,
            detail=outcome.detail,
            attempts=progress.ordinal,
        )

    async def _attempt(
        self,
        request: ModelRequest,
        ordinal: int,
        waited_ms: int,
        ledger: AttemptLedger,
        on_delta: Callable[[Delta], None],
    ) -> tuple[Outcome, str]:
        start = self._start(request, ordinal)
        # Shielded, since a cancel in the middle of it would leave a row that nobody ends.
        granted, cancelled = await run_shielded(ledger.begin(start))
        call = self._call(request, start, granted)
        began = self._clock.monotonic()
        exchange = self._provider.adapter.open(call)
        ending = _Ending(call=call, exchange=exchange, waited_ms=waited_ms)
        try:
            if cancelled:
                raise asyncio.CancelledError
            ending.sent = True
            outcome = await self._provider.adapter.run(call, exchange, on_delta=on_delta)
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

    def _start(self, request: ModelRequest, ordinal: int) -> AttemptStart:
        return AttemptStart(
            attempt_id=self._ids.new("att"),
            stage_id=request.stage_id,
            round=request.round,
            ordinal=ordinal,
            model=self.model,
            input_tokens_estimate=estimate_input_tokens(request.messages, request.tools),
            max_output_tokens=_asked_bound(request) or self._own_bound(),
            price=self._price(request.options.get("service_tier")),
        )

    def _call(self, request: ModelRequest, start: AttemptStart, granted: int) -> AttemptCall:
        """What to send: the bound too, but where the provider keeps to the same one by itself.

        Providers count an explicit bound against the rate limit, so none is sent without need.
        """
        asked = _asked_bound(request) is not None
        own = self._member.max_output_tokens is None and find_model(self._member.model_name) is not None
        needed = asked or granted < start.max_output_tokens or not own
        return AttemptCall(
            request=request,
            attempt_id=start.attempt_id,
            model=self._member.model_name,
            full_model=self.model,
            max_output_tokens=granted if needed else None,
            bound_is_assumed=not asked and granted == start.max_output_tokens,
        )

    def _own_bound(self) -> int:
        return self._member.max_output_tokens or known_max_output(self._member.model_name)

    def _price(self, service_tier: str | None) -> Price | None:
        """The price that holds now; looked up anew now and then, since prices have dates."""
        if self._prices is None:
            return FREE if self._provider.settings.kind in FREE_KINDS else None
        now = self._clock.monotonic()
        found = self._found_prices.get(service_tier)
        if found is None or now - found[0] > _PRICE_KEPT_S:
            settings = self._provider.settings
            price = self._prices.find(
                self.model,
                kind=settings.kind,
                at=self._clock.now(),
                base_url=settings.base_url,
                service_tier=service_tier,
            )
            found = self._found_prices[service_tier] = (now, price)
        return found[1]


def _asked_bound(request: ModelRequest) -> int | None:
    bounds = (request.max_output_tokens, request.options.get("max_output_tokens"))
    return min((bound for bound in bounds if bound is not None), default=None)


@dataclass(slots=True, kw_only=True)
class _Ending:
    """How an attempt came to its end."""

    call: AttemptCall
    exchange: Exchange
    waited_ms: int
    sent: bool = False
    stopped: Literal["cancelled", "failed"] = "cancelled"
    """Why there is no outcome."""
    outcome: Outcome | None = None

    def finish(self, duration_ms: int) -> AttemptFinish:
        """The record of it."""
        base: dict[str, Any] = {
            "attempt_id": self.call.attempt_id,
            "finish": self.exchange.finish_word,
            "provider_request_id": self.exchange.provider_request_id,
            "duration_ms": duration_ms,
            "waited_ms": self.waited_ms,
        }
        match self.outcome:
            case None:
                usage = self.exchange.usage_so_far() if self.sent else NOTHING_SENT
                code = "protocol" if self.stopped == "failed" else None
                return AttemptFinish(status=self.stopped, usage=usage, code=code, **base)
            case Completed(usage=usage):
                return AttemptFinish(status="completed", usage=usage, **base)
            case Broken(status=status, usage=usage, reason=reason, detail=detail):
                detail = detail[:_MAX_DETAIL]
                return AttemptFinish(status=status, usage=usage, code=reason, detail=detail, **base)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
