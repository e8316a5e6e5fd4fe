"""Where prices come from, and what a model without one costs."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pydantic import ValidationError

from remit.contract import TokenCounts
from remit.usage import FREE, Price, PriceBook, PriceSetting, cost_micros

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


def _setting(toml: str) -> PriceSetting:
    return PriceSetting.model_validate(tomllib.loads(toml, parse_float=Decimal))


def test_published_price_is_found_for_the_providers_kind() -> None:
    """R18: input, output and cache prices, with the book's version and the day that they hold for."""
    price = PriceBook().find("work:gpt-5.2", kind="openai", at=AT)
    assert price is not None
    assert price.input_micros > price.cache_read_micros > 0
    assert price.output_micros > price.input_micros
    assert price.version.startswith("genai-prices ")
    assert price.version.endswith(" of 2026-11-30")


def test_published_price_agrees_with_the_books_own_sum() -> None:
    """R18: our disjoint buckets and the book's own calculation give the same amount, also above a tier."""
    import genai_prices

    cases = [
        ("openai", "openai", "gpt-5.2", (10_000, 2_000, 4_000, 0)),
        ("anthropic", "anthropic", "claude-opus-4-7", (10_000, 2_000, 4_000, 3_000)),
        ("anthropic", "anthropic", "claude-haiku-5-5", (150_000, 2_000, 40_000, 30_000)),
        ("google", "google", "gemini-2.5-pro", (200_000, 700, 0, 0)),
        ("google", "google", "gemini-2.5-pro", (200_001, 700, 50_000, 0)),
    ]
    for kind, provider, model, (tokens_in, out, read, written) in cases:
        price = PriceBook().find(f"x:{model}", kind=kind, at=AT)
        assert price is not None
        usage = TokenCounts(
            input_tokens=tokens_in, output_tokens=out, cache_read_tokens=read, cache_write_tokens=written
        )
        theirs = genai_prices.calc_price(
            genai_prices.Usage(
                input_tokens=tokens_in,
                output_tokens=out,
                cache_read_tokens=read,
                cache_write_tokens=written,
            ),
            model,
            provider_id=provider,
            genai_request_timestamp=AT,
        ).total_price
        ours = cost_micros(price, usage)
        assert ours is not None
        assert 0 <= ours - theirs * 1_000_000 < 1, (model, ours, theirs)


@pytest.mark.parametrize(
    ("model", "kind", "base_url"),
    [
        ("openai:nopriced-1", "openai", None),
        ("mine:gpt-5.2", "openai-compatible", None),
        ("mine:gpt-5.2", "openai-compatible", "http://127.0.0.1:8000/v1"),
        ("mine:gpt-5.2", "openai", "http://127.0.0.1:8000/v1"),
        ("mine:gpt-5.2", "made-up-kind", None),
    ],
)
def test_model_that_nobody_priced_is_unknown(model: str, kind: str, base_url: str | None) -> None:
    """R23: never 0, and never guessed from a name that some other provider uses too."""
    assert PriceBook().find(model, kind=kind, at=AT, base_url=base_url) is None


def test_compatible_provider_is_priced_by_its_address() -> None:
    """A known provider behind the compatible kind has its own prices."""
    book = PriceBook()
    price = book.find(
        "ds:deepseek-chat", kind="openai-compatible", at=AT, base_url="https://api.deepseek.com"
    )
    assert price is not None


def test_model_with_charges_of_another_kind_is_unknown() -> None:
    """R23: where requests are charged apart, tokens alone would be too little."""
    book = PriceBook()
    assert book.find("p:sonar", kind="openai-compatible", at=AT, base_url="https://api.perplexity.ai") is None


def test_service_tier_changes_the_price() -> None:
    """What is asked for in the options is what is charged."""
    book = PriceBook()
    normal = book.find("o:gpt-5.2", kind="openai", at=AT)
    priority = book.find("o:gpt-5.2", kind="openai", at=AT, service_tier="priority")
    assert normal is not None
    assert priority is not None
    assert priority.output_micros > normal.output_micros


@pytest.mark.parametrize("kind", ["scripted", "ollama", "local"])
def test_what_runs_at_home_is_free_unless_a_price_is_set(kind: str) -> None:
    """Cost 0, priced; a price in the settings wins."""
    assert PriceBook().find("demo:model", kind=kind, at=AT) == FREE
    setting = _setting("input_usd_per_mtok = 1.0\noutput_usd_per_mtok = 2")
    priced = PriceBook({"demo:model": setting}).find("demo:model", kind=kind, at=AT)
    assert priced is not None
    assert (priced.input_micros, priced.output_micros) == (1_000_000, 2_000_000)


def test_settings_win_over_the_book() -> None:
    """R23: a configured price is used when given; cache prices that aren't stated cost what input costs."""
    text = "input_usd_per_mtok = 0.1\noutput_usd_per_mtok = 0.4\ncache_read_usd_per_mtok = 0.01"
    book = PriceBook({"openai:gpt-5.2": _setting(text), "x:y": _setting("free = true")})
    assert book.find("openai:gpt-5.2", kind="openai", at=AT) == Price(
        input_micros=100_000,
        output_micros=400_000,
        cache_read_micros=10_000,
        cache_write_micros=100_000,
        version="config",
    )
    assert book.find("x:y", kind="openai-compatible", at=AT) == FREE


@pytest.mark.parametrize(
    "toml",
    [
        "",
        "input_usd_per_mtok = 1.0",
        "output_usd_per_mtok = 1.0",
        "free = true\ninput_usd_per_mtok = 1.0",
        "input_usd_per_mtok = -1.0\noutput_usd_per_mtok = 1.0",
        "input_usd_per_mtok = nan\noutput_usd_per_mtok = 1.0",
        "input_usd_per_mtok = inf\noutput_usd_per_mtok = 1.0",
        "input_usd_per_mtok = 1.0\noutput_usd_per_mtok = 1.0\nprice = 3",
    ],
)
def test_half_a_price_is_refused(toml: str) -> None:
    """R23: an entry without numbers is no price."""
    with pytest.raises(ValidationError):
        _setting(toml)


def test_price_is_exact_to_the_micro_dollar() -> None:
    """Decimal in, whole numbers inside: 0.1 USD is 100 000, not 100 000.00000000001."""
    setting = _setting("input_usd_per_mtok = 0.1\noutput_usd_per_mtok = 0.0000001")
    price = setting.price()
    assert (price.input_micros, price.output_micros) == (100_000, 1)


def test_load_reads_the_book() -> None:
    """Ahead of need, in a thread; afterwards prices are found at once."""
    book = PriceBook()
    book.load()
    assert book.find("o:gpt-5.2", kind="openai", at=AT) is not None
