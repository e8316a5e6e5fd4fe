"""Providers that answer nonsense in any field of any record: each dialect, real HTTP, the real SDKs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from model_kit import JumpingClock, MemoryLedger, ask, need_sdk, pool_for
from remit.errors import ProviderError
from remit.models import ModelReply
from remit.testing import (
    AnthropicDialect,
    FakeProvider,
    FakeToolCall,
    GeminiDialect,
    OllamaDialect,
    OllamaModel,
    OpenAIChatDialect,
    OpenAIResponsesDialect,
    OpenRouterDialect,
    Reply,
)

CALL = FakeToolCall(name="read_file", arguments='{"relative_path": "a.py"}')
GOOD = Reply(thinking="Let me look.", text="Looking.", tool_calls=(CALL,), chunk_count=1)
CASES: dict[str, tuple[str, str, Any]] = {
    "chat": ("openai-chat", "gpt-5.2", OpenAIChatDialect),
    "compatible": ("openai-compatible", "any", lambda: OpenAIChatDialect(models=None)),
    "responses": ("openai", "gpt-5.2", OpenAIResponsesDialect),
    "anthropic": ("anthropic", "claude-sonnet-4-6", AnthropicDialect),
    "google": ("google", "gemini-3.8-flash", GeminiDialect),
    "openrouter": ("openrouter", "vendor/any", OpenRouterDialect),
    "ollama": ("ollama", "tiny:1b", lambda: OllamaDialect(models={"tiny:1b": OllamaModel()})),
}
REASONS = {
    "rate_limited", "auth", "unavailable", "context_length", "content_filter", "refusal", "empty_result",
    "protocol", "cut",
}  # fmt: skip
COVERAGES = {"reported", "partial", "missing", "interrupted", "refused"}
GONE = object()
NONSENSE = [
    GONE, None, [], {}, "", "text", "\ud800", "\x00", 7, -1, 2**70, True, 1e999, float("nan"), 0.5,
    [None], ["x"], {"a": [1]}, [[[[[]]]]], {"": {"": {}}},
]  # fmt: skip
USAGE_WORDS = ("usage", "token", "count")

Mutation = tuple[int, int, int]
mutations = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 400), st.integers(0, len(NONSENSE) - 1)),
    min_size=12,
    max_size=12,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a record but its root."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in [(*path, key), *places(inner, (*path, key))]]


def mutated(record: dict[str, Any], mutation: Mutation) -> tuple[str, tuple[Any, ...]]:
    """A record with nonsense at one place, as JSON, and the place."""
    _, where, what = mutation
    value = json.loads(json.dumps(record))
    found = places(value)
    path = found[where % len(found)]
    holder = value
    for step in path[:-1]:
        holder = holder[step]
    if NONSENSE[what] is GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = NONSENSE[what]
    return json.dumps(value), path


def bodies(whole: bytes, mutation: Mutation) -> tuple[bytes, tuple[Any, ...]] | None:
    """The reply with one of its records changed; None where that one is no object."""
    lines = whole.decode().split("\n")
    records = [number for number, line in enumerate(lines) if "{" in line]
    number = records[mutation[0] % len(records)]
    head, brace, rest = lines[number].partition("{")
    text, path = mutated(json.loads(brace + rest), mutation)
    lines[number] = head + text
    return "\n".join(lines).encode("utf-8", "surrogatepass"), path


async def check(case: str, wanted: list[Mutation]) -> None:
    kind, model, make = CASES[case]
    dialect = make()
    key: dict[str, Any] = {"api_key": None} if kind == "ollama" else {}
    with FakeProvider([GOOD], dialect=dialect) as fake:
        async with pool_for(fake, kind=kind, model=model, clock=JumpingClock(), **key) as pool:
            good = await ask(pool)
            _, pieces = dialect.render(GOOD, fake.requests[0], number=1)
            for mutation in wanted:
                found = bodies(b"".join(pieces), mutation)
                assert found is not None
                body, path = found
                fake.script(*[Reply(raw=body)] * 6)
                ledger = MemoryLedger()
                try:
                    outcome: ModelReply | ProviderError = await ask(pool, ledger=ledger)
                except ProviderError as error:
                    outcome = error
                honest(outcome, good, ledger, path, case)
                fake._replies.clear()


def honest(
    outcome: ModelReply | ProviderError,
    good: ModelReply,
    ledger: MemoryLedger,
    path: tuple[Any, ...],
    case: str,
) -> None:
    """A reply with a true bill, or a failure with a name; each attempt with its row."""
    assert len(ledger.starts) == len(ledger.ends)
    assert {end.usage.coverage for end in ledger.ends} <= COVERAGES
    touched = any(word in str(step).lower() for step in path for word in USAGE_WORDS)
    if isinstance(outcome, ProviderError):
        assert outcome.reason in REASONS
        return
    usage = outcome.usage
    for number in (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.reasoning_tokens):
        assert number is None or number >= 0
    if usage.coverage == "reported" and not touched and case != "compatible":
        assert (usage.input_tokens, usage.output_tokens) == (
            good.usage.input_tokens,
            good.usage.output_tokens,
        )
    ids = [call.tool_call_id for call in outcome.message.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    json.dumps([block.details for block in outcome.message.blocks])


@pytest.mark.parametrize("case", CASES)
@settings(
    max_examples=5, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow]
)
@given(wanted=mutations)
def test_nonsense_is_never_a_fault_of_ours(case: str, wanted: list[Mutation]) -> None:
    """R20, R21, R31, R84, R85: whatever stands in a field ends in a reply or a true, typed failure."""
    need_sdk(CASES[case][0])
    asyncio.run(check(case, wanted))
