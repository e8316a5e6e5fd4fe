"""How long it takes to shorten a conversation of 200 rounds, and how much of one is read from caches."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from remit.contract import AttemptUsage, ToolSpec
from remit.models import (
    AssistantMessage,
    AttemptFinish,
    AttemptStart,
    Message,
    ModelRequest,
    PoolMember,
    PoolSettings,
    ProviderSettings,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
    build_pool,
)
from remit.primitives import Secret, SystemClock, SystemIds
from remit.stages._elision import shorten
from remit.testing import (
    AnthropicDialect,
    FakeProvider,
    FakeToolCall,
    GeminiDialect,
    OpenAIChatDialect,
    OpenAIResponsesDialect,
    Reply,
)

ROUNDS = 200
TURNS = 15
MOST_MS = 20.0
CACHED_ROUNDS = 12
LEAST_READ = 0.85
"""Of a stage's input after round 3."""
TOOL = ToolSpec(
    name="read_file",
    description="Read a file.",
    parameters={"type": "object", "properties": {}},
    effect="read",
)
DIALECTS: tuple[tuple[str, str, Any], ...] = (
    ("openai-chat", "gpt-4.1", OpenAIChatDialect),
    ("openai", "gpt-5.2", OpenAIResponsesDialect),
    ("anthropic", "claude-sonnet-4-6", AnthropicDialect),
    ("google", "gemini-3.8-flash", GeminiDialect),
)
RESULT = "    return [item for item in items if item.is_open]\n" * 80


def history() -> tuple[Message, ...]:
    """Two calls a round, with results of 4 kB each."""
    messages: list[Message] = [SystemMessage(text="You work."), UserMessage(text="Do it.")]
    for number in range(ROUNDS):
        calls = tuple(
            ToolCallBlock(
                tool_call_id=f"c{number}_{n}", name="read_file", arguments='{"relative_path":"a.py"}'
            )
            for n in range(2)
        )
        messages.append(AssistantMessage(blocks=(TextBlock(text="I look."), *calls), model="fake:m"))
        results = (
            ToolResult(tool_call_id=call.tool_call_id, name=call.name, content=RESULT) for call in calls
        )
        messages.append(ToolResultsMessage(results=tuple(results)))
    return tuple(messages)


def shortening_ms(messages: tuple[Message, ...], *, target: int) -> float:
    """The median CPU time of one shortening."""
    times: list[float] = []
    for _ in range(TURNS):
        began = time.process_time()
        assert shorten(messages, head=2, target=target, most=target) is not None
        times.append((time.process_time() - began) * 1000)
    return statistics.median(times)


class NoLedger:
    """Costs nothing."""

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def begin(self, start: AttemptStart) -> int:
        return start.max_output_tokens

    async def end(self, finish: AttemptFinish) -> None:
        pass


async def read_share(kind: str, model: str, dialect: Any) -> float:
    """How much of the input after round 3 was read from the fake's cache."""
    call = FakeToolCall(name=TOOL.name, arguments={"relative_path": "a.py"})
    messages: tuple[Message, ...] = (SystemMessage(text="You work. " * 600), UserMessage(text="Do it."))
    used: list[AttemptUsage] = []
    with FakeProvider([Reply(text="I look.", tool_calls=(call,), repeat=True)], dialect=dialect()) as fake:
        settings = ProviderSettings(
            name="fake", kind=kind, base_url=fake.base_url, api_key=Secret(fake.api_key)
        )
        pool = build_pool(
            PoolSettings(name="default", members=(PoolMember(model=f"fake:{model}"),)),
            {"fake": settings},
            clock=SystemClock(),
            ids=SystemIds(),
        )
        for number in range(CACHED_ROUNDS):
            request = ModelRequest(
                run_id="run_1",
                stage_id="work-1",
                round=number + 1,
                messages=messages,
                tools=(TOOL,),
                options={},
            )
            reply = await pool.request(
                request, ledger=NoLedger(), on_delta=lambda _: None, remaining_s=lambda: None
            )
            used.append(reply.usage)
            results = (
                ToolResult(tool_call_id=call.tool_call_id, name=call.name, content=RESULT)
                for call in reply.message.tool_calls
            )
            messages = (*messages, reply.message, ToolResultsMessage(results=tuple(results)))
        await pool.aclose()
    read = sum(usage.cache_read_tokens or 0 for usage in used[3:])
    return read / sum(usage.input_tokens or 0 for usage in used[3:])


def main() -> int:
    """1 when a budget was passed."""
    shares = {kind: asyncio.run(read_share(kind, model, dialect)) for kind, model, dialect in DIALECTS}
    for kind, share in shares.items():
        print(
            f"{kind}: {share:.0%} of the input after round 3 read from the cache (at least {LEAST_READ:.0%})"
        )
    messages = history()
    results = shortening_ms(messages, target=200_000)
    rounds = shortening_ms(messages, target=4_000)
    print(f"history of {ROUNDS} rounds: old results replaced in {results:.1f} ms (budget {MOST_MS:.0f} ms)")
    print(f"history of {ROUNDS} rounds: rounds taken out, too, in {rounds:.1f} ms (budget {MOST_MS:.0f} ms)")
    return 0 if max(results, rounds) <= MOST_MS and min(shares.values()) >= LEAST_READ else 1


if __name__ == "__main__":
    sys.exit(main())
