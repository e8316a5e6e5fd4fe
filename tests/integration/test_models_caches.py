"""Long stages over each dialect: what is read from its cache, and histories that were shortened.

The fakes are strict: a call without its result, a signature that was altered or moved, or too long a
prompt is refused as the real one refuses it.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from dataclasses import dataclass
from typing import Any

import pytest

from model_kit import pool_for
from remit.contract import AttemptUsage
from remit.testing import (
    AnthropicDialect,
    FakeProvider,
    FakeToolCall,
    GeminiDialect,
    OpenAIChatDialect,
    OpenAIResponsesDialect,
    Reply,
)
from remit.testing._fakes_stages import tool_response
from remit.testing.fake_provider._cache import MarkedCache, PrefixCache
from stage_kit import ANSWERS, SPECS, Bench

ROUNDS = 9


@dataclass(frozen=True, slots=True)
class Case:
    kind: str
    model: str
    dialect: Any
    needs: str = "openai"
    thinking: bool = True


CASES = {
    "chat": Case("openai-chat", "gpt-4.1", OpenAIChatDialect, thinking=False),
    "responses": Case("openai", "gpt-5.2", OpenAIResponsesDialect),
    "anthropic": Case("anthropic", "claude-sonnet-4-6", AnthropicDialect, needs="anthropic"),
    "anthropic, later minimum": Case("anthropic", "claude-opus-4-5", AnthropicDialect, needs="anthropic"),
    "gemini": Case("google", "gemini-3.8-flash", GeminiDialect, needs="google.genai"),
    "gemini, later minimum": Case("google", "gemini-3-pro-preview", GeminiDialect, needs="google.genai"),
}


def replies(case: Case) -> list[Reply]:
    """Rounds of one to three calls, and an answer."""
    asked = [
        Reply(
            thinking=f"Thought {n}." if case.thinking else None,
            text=f"Look {n}.",
            tool_calls=tuple(
                FakeToolCall(name="read_file", arguments={"path": f"a{n}_{k}.py"}) for k in range(n % 3 + 1)
            ),
        )
        for n in range(ROUNDS)
    ]
    return [*asked, Reply(text=json.dumps(ANSWERS["work"]))]


async def usages(case: Case, **settings: Any) -> list[AttemptUsage]:
    """The usage of each request of a stage, as it stands on record."""
    return [ended.usage for ended in (await play(case, case.dialect(**settings))).completed]


@dataclass(frozen=True, slots=True)
class Played:
    completed: list[Any]
    failed: list[Any]
    bodies: list[str]
    notes: list[str]


async def play(case: Case, dialect: Any, **member: Any) -> Played:
    """A stage of several rounds over real HTTP, to its answer."""
    try:
        importlib.import_module(case.needs)
    except ImportError:
        pytest.skip(f"{case.needs} isn't installed")
    text = "    return [item for item in items if item.is_open]\n" * 40
    tools = {"read_file": lambda use: tool_response(use, f"{use.tool_call_id}\n{text}")}
    brief = "# Brief\n\n" + "- src/module.py: what it is for, in one line\n" * 120
    with FakeProvider(replies(case), dialect=dialect) as fake:
        async with (
            pool_for(fake, kind=case.kind, model=case.model, member=member) as pool,
            Bench("work", pool=pool, tools=tools, specs=SPECS, brief=brief, options={}) as bench,
        ):
            await bench.run()
            bench.check_record()
            said = [entry.body for entry in bench.journal.transcript("work-1") if entry.role == "user"]
            return Played(
                bench.journal.of_type("attempt.completed"),
                bench.journal.of_type("attempt.failed"),
                [request.text for request in fake.requests],
                [body["text"] for body in said if "getting too long" in body["text"]],
            )


@pytest.mark.parametrize("name", CASES)
async def test_a_shortened_history_is_valid(name: str) -> None:
    """R28, R29, R30: beyond a small window a stage goes on over each dialect; nothing is refused."""
    case = CASES[name]
    played = await play(case, case.dialect(), context_window_tokens=7_500, max_output_tokens=2_000)
    assert len(played.completed) == ROUNDS + 1
    assert played.failed == []
    assert played.notes
    assert any("Left out to save room" in body for body in played.bodies)
    assert any("of the oldest rounds are taken out" in note for note in played.notes)


@pytest.mark.parametrize("name", CASES)
async def test_a_window_that_is_smaller_than_was_known(name: str) -> None:
    """R28, R56: what the provider refuses as too long is shortened, and asked once more."""
    case = CASES[name]
    model = dataclasses.replace(case.dialect().models[case.model], window_tokens=8_000)
    played = await play(case, case.dialect(models={case.model: model}), max_output_tokens=2_000)
    assert len(played.completed) == ROUNDS + 1
    assert 1 <= len(played.failed) <= 3
    assert {ended.code for ended in played.failed} == {"context_length"}
    assert all(ended.usage.coverage == "refused" for ended in played.failed)
    assert played.notes


@pytest.mark.parametrize("name", CASES)
async def test_most_of_the_input_is_read_from_the_cache(name: str) -> None:
    """After round 3 at least 85 % of a stage's input tokens are cache reads, by each dialect's own rules."""
    used = (await usages(CASES[name]))[3:]
    assert len(used) == ROUNDS + 1 - 3
    read = sum(usage.cache_read_tokens or 0 for usage in used)
    share = read / sum(usage.input_tokens or 0 for usage in used)
    assert share >= 0.85, f"{share:.0%}"
    assert all(usage.flags == () for usage in used)


async def test_a_server_without_a_cache_reports_none() -> None:
    """The figure is the cache's, not ours: where nothing is cached, nothing is read."""
    used = await usages(CASES["chat"], cache=None)
    assert [usage.cache_read_tokens for usage in used] == [0] * (ROUNDS + 1)


def test_an_automatic_cache_finds_the_longest_beginning_that_it_knows() -> None:
    """1 024 tokens at least, steps of 128, and nothing from another scope or behind a difference."""
    cache = PrefixCache()
    text = "".join(f"{number:08d}" for number in range(4_000))  # 8 000 tokens
    assert cache.read("m", [text]) == 0
    assert cache.read("m", [text]) % 128 == 0
    assert 7_872 <= cache.read("m", [text]) <= 8_000
    assert cache.read("m k", [text]) == 0
    assert cache.read("m", [text[:8_000] + "x" + text[8_001:]]) == 1_920
    assert cache.read("m", [text[:4_000]]) == 0


def test_a_marked_cache_keeps_nothing_without_a_mark() -> None:
    """A prefix is kept at a mark, found at one or up to 20 blocks before one, and not below the minimum."""
    mark = {"cache_control": {"type": "ephemeral"}}
    blocks: list[dict[str, Any]] = [{"text": f"{n:04d}" * 100} for n in range(60)]
    each = len(json.dumps(blocks[0])) // 4
    cache = MarkedCache()
    assert cache.count("m", blocks, least_tokens=1_024) == (0, 0, 60 * each)
    assert cache.count("m", blocks, least_tokens=1_024) == (0, 0, 60 * each)
    assert cache.count("m", [*blocks[:5], blocks[5] | mark], least_tokens=1_024) == (0, 0, 6 * each)
    at_30 = [*blocks[:29], blocks[29] | mark]
    assert cache.count("m", at_30, least_tokens=1_024) == (0, 30 * each, 0)
    assert cache.count("m", at_30, least_tokens=1_024) == (30 * each, 0, 0)
    at_50 = [*blocks[:49], blocks[49] | mark, *blocks[50:]]
    assert cache.count("m", at_50, least_tokens=1_024) == (30 * each, 20 * each, 10 * each)
    other = MarkedCache()
    other.count("m", at_30, least_tokens=1_024)
    at_51 = [*blocks[:50], blocks[50] | mark]
    assert other.count("m", at_51, least_tokens=1_024) == (0, 51 * each, 0)
