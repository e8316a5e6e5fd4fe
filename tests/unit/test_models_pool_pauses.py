"""How long a pool waits, and how often it asks: the bounds themselves."""

from __future__ import annotations

import pytest
from test_models_pool import StubAdapter, broken, done, limited, make_pool
from test_models_pool_members import asked, handle, member, pool_of

from model_kit import JumpingClock, MemoryLedger, ask, request
from remit.errors import ProviderError


@pytest.mark.parametrize(("jitter", "slept_s"), [(0.0, 30.0), (1.0, 31.0)])
async def test_a_pause_that_is_this_requests_alone(jitter: float, slept_s: float) -> None:
    """R52: asked for inside a stream, it isn't the key's, and is kept all the same, with jitter on top."""
    clock = JumpingClock()
    cut = broken(status="cut", reason="unavailable", pause_s=30.0, pauses_key=False)
    await ask(make_pool(StubAdapter(cut, done()), clock, jitter=jitter))
    assert sum(clock.slept) == pytest.approx(slept_s)


async def test_three_adaptations_and_no_more() -> None:
    """R56: a model that refuses whatever is left out is asked four times, not for ever."""
    ledger = MemoryLedger()
    odd = broken(reason="protocol", retryable=False, adapted=True)
    with pytest.raises(ProviderError):
        await ask(make_pool(StubAdapter(odd)), ledger=ledger)
    assert ledger.statuses == ["refused"] * 4


async def test_back_to_the_first_where_the_next_can_not_get_better() -> None:
    """R56: a member whose failure may pass stays among those to ask, after its own pause."""
    clock = JumpingClock()
    first = member("a", broken(), done())
    second = member("b", broken(reason="auth", retryable=False), order=2)
    assert (await ask(pool_of(first, second, clock=clock))).model == "a:m"
    assert asked(first, second) == [2, 1]
    assert clock.slept == [1.0]


@pytest.mark.parametrize(
    ("asked_s", "jitter", "slept_s"), [(None, 0.0, 1.0), (20.0, 0.0, 20.0), (20.0, 1.0, 21.0)]
)
async def test_another_run_with_the_key_waits_as_long(
    asked_s: float | None, jitter: float, slept_s: float
) -> None:
    """R52: our own back-off is the key's, too, where nothing is asked; and not all wake at one moment."""
    clock, shared = JumpingClock(), handle(limited(asked_s), done())
    adapter = shared.adapter
    assert isinstance(adapter, StubAdapter)
    first = make_pool(adapter, clock, handle=shared)
    with pytest.raises(ProviderError):
        await ask(first, remaining_s=0.5)
    assert clock.slept == []
    second = make_pool(adapter, clock, handle=shared, jitter=jitter)
    await ask(second, request(run_id="run_2"))
    assert sum(clock.slept) == pytest.approx(slept_s)


async def test_an_overload_that_asks_for_too_long_a_pause() -> None:
    """R52: a 503 with a `Retry-After` beyond the time left ends it as `rate_limited`, with the time named."""
    clock = JumpingClock()
    busy = broken(reason="unavailable", pause_s=300.0, pauses_key=True)
    with pytest.raises(ProviderError) as caught:
        await ask(make_pool(StubAdapter(busy), clock), remaining_s=60.0)
    assert (caught.value.reason, clock.slept) == ("rate_limited", [])
    assert "300.0 s" in caught.value.message
