"""Providers that answer nonsense in any field of any record: each dialect, real HTTP, the real SDKs."""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from model_kit import JumpingClock, MemoryLedger, ask, need_sdk, pool_for
from nonsense_kit import (
    CALL,
    CASES,
    GOOD,
    INFINITE,
    NESTED,
    NONSENSE,
    SURROGATE,
    Mutation,
    mutated_body,
    mutations_of,
)
from remit.errors import ProviderError
from remit.models import ModelReply, message_from_json, message_to_json
from remit.primitives import dump_json, load_json
from remit.testing import FakeProvider, Reply

REASONS = {
    "rate_limited", "auth", "unavailable", "context_length", "content_filter", "refusal", "empty_result",
    "protocol", "cut",
}  # fmt: skip
COVERAGES = {"reported", "partial", "missing", "interrupted", "refused"}
USAGE_WORDS = ("usage", "token", "count")

mutations = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 400), st.integers(0, len(NONSENSE) - 1)),
    min_size=12,
    max_size=12,
)


OPAQUE = {
    "id",
    "call_id",
    "encrypted_content",
    "summary",
    "signature",
    "thoughtSignature",
    "format",
    "extra_content",
    "reasoning_details",
    "reasoning_content",
    "thinking",
}


async def check(case: str, wanted: list[Mutation] | None, reply: Reply = GOOD) -> None:
    """None: odd values in every field that is kept as it came."""
    kind, model, make = CASES[case]
    dialect = make()
    key: dict[str, Any] = {"api_key": None} if kind == "ollama" else {}
    with FakeProvider([GOOD], dialect=dialect) as fake:
        async with pool_for(fake, kind=kind, model=model, clock=JumpingClock(), **key) as pool:
            good = await ask(pool)
            _, pieces = dialect.render(reply, fake.requests[0], number=1)
            whole = b"".join(pieces)
            odd = (INFINITE, SURROGATE, NESTED)
            for mutation in mutations_of(whole, OPAQUE, odd) if wanted is None else wanted:
                body, path = mutated_body(whole, mutation)
                fake.script(*[Reply(raw=body)] * 6)
                ledger = MemoryLedger()
                try:
                    async with asyncio.timeout(60):
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
    stored = dump_json(message_to_json(outcome.message))
    assert message_from_json(load_json(stored)) == outcome.message


@pytest.mark.parametrize("strict", [False, True], ids=["as users have it", "warnings are errors"])
@pytest.mark.parametrize("case", CASES)
@settings(
    max_examples=3, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow]
)
@given(wanted=mutations)
def test_nonsense_is_never_a_fault_of_ours(case: str, strict: bool, wanted: list[Mutation]) -> None:
    """R20, R21, R31, R84, R85: whatever stands in a field ends in a reply or a true, typed failure.

    The libraries warn of much of it. Elsewhere than in tests that is no exception, so both are tried.
    """
    need_sdk(CASES[case][0])
    with warnings.catch_warnings():
        if not strict:
            warnings.simplefilter("ignore")
        asyncio.run(check(case, wanted))


SIGNED = replace(GOOD, tool_calls=(replace(CALL, extra={"extra_content": {"google": {"signature": "s"}}}),))
"""With opaque fields beside the call."""


@pytest.mark.parametrize("case", CASES)
def test_opaque_fields_can_be_kept(case: str) -> None:
    """R29, R30, R84, R85: what is kept as it came can be stored, or the reply counts as broken."""
    need_sdk(CASES[case][0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(check(case, None, SIGNED if case in ("chat", "compatible") else GOOD))
