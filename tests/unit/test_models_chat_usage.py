"""The six numbers, from whichever server the usage object comes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.contract import AttemptUsage
from remit.models._chat_usage import read_chat_usage


def numbers(usage: AttemptUsage) -> tuple[int | None, ...]:
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        usage.total_tokens,
    )


OPENAI = {
    "prompt_tokens": 100,
    "completion_tokens": 50,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 80, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 30},
}


@pytest.mark.parametrize(
    ("raw", "expected", "flags"),
    [
        (OPENAI, (100, 50, 80, 0, 30, 150), ()),
        (
            OPENAI | {"prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 20}},
            (100, 50, 60, 20, 30, 150),
            (),
        ),
        # DeepSeek: the cached part is inside, under a name of its own.
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 5,
                "total_tokens": 105,
                "prompt_cache_hit_tokens": 64,
            },
            (100, 5, 64, None, None, 105),
            (),
        ),
        # The total says that the cached part isn't in prompt_tokens.
        (
            {
                "prompt_tokens": 20,
                "completion_tokens": 5,
                "total_tokens": 105,
                "cache_read_input_tokens": 70,
                "cache_creation_input_tokens": 10,
            },
            (100, 5, 70, 10, None, 105),
            ("cache_added",),
        ),
        # No total, but a part can't be larger than its whole.
        (
            {"prompt_tokens": 20, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}},
            (100, 5, 80, 0, None, 105),
            ("cache_added",),
        ),
        (
            {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
            (1, 2, None, None, None, 3),
            (),
        ),
        ({"prompt_tokens": 7.0, "completion_tokens": 2}, (7, 2, None, None, None, 9), ()),
        # All of the prompt from the cache, and no total: still a part of it.
        (
            {"prompt_tokens": 80, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}},
            (80, 5, 80, 0, None, 85),
            (),
        ),
        # Both lie beside what is named, as the total says.
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 135,
                "cached_tokens": 100,
                "reasoning_tokens": 20,
            },
            (110, 25, 100, None, 20, 135),
            ("reasoning_added", "cache_added"),
        ),
        # As many from the cache as were thought, and the total holds them once: thoughts are what is hidden.
        (
            {
                "prompt_tokens": 50,
                "completion_tokens": 5,
                "total_tokens": 75,
                "cached_tokens": 20,
                "reasoning_tokens": 20,
            },
            (50, 25, 20, None, 20, 75),
            ("reasoning_added",),
        ),
    ],
)
def test_cached_tokens_are_counted_once(
    raw: dict[str, Any], expected: tuple[int | None, ...], flags: tuple[str, ...]
) -> None:
    """R18: input includes cache reads and writes, wherever the server puts them."""
    usage = read_chat_usage(raw)
    assert numbers(usage) == expected
    assert usage.flags == flags
    assert usage.coverage == "reported"
    assert usage.raw == raw


def test_hidden_thinking_is_part_of_the_output() -> None:
    """R20: prompt 10, candidates 200, thoughts 5000, total 5210: output 5200 of which reasoning 5000."""
    raw = {
        "prompt_tokens": 10,
        "completion_tokens": 200,
        "total_tokens": 5210,
        "completion_tokens_details": {"reasoning_tokens": 5000},
    }
    usage = read_chat_usage(raw)
    assert numbers(usage) == (10, 5200, None, None, 5000, 5210)
    assert usage.flags == ("reasoning_added",)
    assert usage.coverage == "reported"


def test_reasoning_larger_than_the_output_lies_beside_it() -> None:
    """R20: without a total, reasoning that exceeds the output can't be a part of it."""
    raw = {"prompt_tokens": 10, "completion_tokens": 200, "reasoning_tokens": 5000}
    assert numbers(read_chat_usage(raw)) == (10, 5200, None, None, 5000, 5210)


def test_an_output_that_is_all_reasoning_is_counted_once() -> None:
    """R20: a part as large as its whole is that whole, with a total and without one."""
    raw = {"prompt_tokens": 10, "completion_tokens": 50, "reasoning_tokens": 50}
    for told in (raw, raw | {"total_tokens": 60}):
        usage = read_chat_usage(told)
        assert numbers(usage) == (10, 50, None, None, 50, 60)
        assert (usage.flags, usage.coverage) == ((), "reported")


@pytest.mark.parametrize("part", [{"reasoning_tokens": 20}, {"cached_tokens": 20}])
def test_a_part_beyond_its_whole_is_never_a_whole_bill(part: dict[str, int]) -> None:
    """R18, R20: where the total adds up without it, nothing is added; it is flagged, and the bill partial."""
    raw = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **part}
    usage = read_chat_usage(raw)
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (10, 5, 15)
    assert (usage.flags, usage.coverage) == (("part_exceeds_whole",), "partial")


@pytest.mark.parametrize(
    ("total", "coverage"),
    [(5210, "partial"), (150, "reported")],
)
def test_a_total_that_does_not_add_up_is_flagged(total: int, coverage: str) -> None:
    """R20: the raw object stays, the flag says so; tokens that nobody names make the numbers partial."""
    raw = {"prompt_tokens": 10, "completion_tokens": 200, "total_tokens": total}
    usage = read_chat_usage(raw)
    assert numbers(usage) == (10, 200, None, None, None, 210)
    assert usage.flags == ("total_mismatch",)
    assert usage.coverage == coverage
    assert usage.raw == raw


@pytest.mark.parametrize(
    "raw",
    [
        {"prompt_tokens": float("nan"), "completion_tokens": 2, "total_tokens": 3},
        {"prompt_tokens": float("inf"), "completion_tokens": 2},
        {"prompt_tokens": -7, "completion_tokens": 2},
        {"prompt_tokens": "12", "completion_tokens": 2},
        {"prompt_tokens": True, "completion_tokens": 2},
        {"prompt_tokens": 1.5, "completion_tokens": 2},
        {"prompt_tokens": [1], "completion_tokens": 2},
    ],
)
def test_what_is_no_number_is_not_one(raw: dict[str, Any]) -> None:
    """R84: NaN, negative, texts and fractions are refused; the rest is partial, never a measured zero."""
    usage = read_chat_usage(raw)
    assert usage.input_tokens is None
    assert usage.output_tokens == 2
    assert usage.total_tokens is None
    assert usage.coverage == "partial"
    assert "bad_number" in usage.flags
    json.dumps(usage.to_json(), allow_nan=False)


def test_a_bad_detail_does_not_spoil_the_totals() -> None:
    """R84: -7 cached tokens aren't 0 cached tokens, nor -7 of reasoning none."""
    usage = read_chat_usage(OPENAI | {"prompt_tokens_details": {"cached_tokens": -7}})
    assert numbers(usage) == (100, 50, None, None, 30, 150)
    assert usage.coverage == "partial"
    usage = read_chat_usage(OPENAI | {"completion_tokens_details": {"reasoning_tokens": -7}})
    assert numbers(usage) == (100, 50, 80, 0, None, 150)
    assert usage.coverage == "partial"


@pytest.mark.parametrize("raw", [{}, {"prompt_tokens": 5}, {"completion_tokens": 5}, {"total_tokens": 9}])
def test_half_a_usage_is_partial(raw: dict[str, Any]) -> None:
    """R21: only what the provider said is known."""
    usage = read_chat_usage(raw)
    assert usage.coverage == "partial"
    assert usage.total_tokens is None


def test_a_huge_usage_object_is_kept_small() -> None:
    """R84, R85: what is stored of an untrusted object is bounded."""
    deep: dict[str, Any] = {}
    for _ in range(50):
        deep = {"x": deep}
    raw = {"prompt_tokens": 1, "completion_tokens": 1, "deep": deep, "long": "x" * 100_000}
    raw |= {f"k{number}": number for number in range(5_000)} | {"big": 10**400, "bad": "\ud800"}
    usage = read_chat_usage(raw)
    assert usage.input_tokens == 1
    assert len(json.dumps(usage.to_json(), allow_nan=False).encode()) < 150_000
