"""What one streamed attempt costs in CPU, beside the SDK's own call, in one run.

The provider runs in a process of its own, so that its work isn't counted. Both sides are measured in
turns, and the median of the turns counts.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI

from remit.contract import ToolSpec
from remit.models import (
    AssistantMessage,
    AttemptFinish,
    AttemptStart,
    Message,
    ModelRequest,
    Pool,
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
from remit.testing import FakeProviderProcess

MODEL = "gpt-4.1"
TURNS = 7
MOST_OVER_SDK_MS = 1.5
"""A reviewed run of four attempts has 12 ms above the SDK's own calls; half is ours."""
TOOL = ToolSpec(
    name="read_file",
    description="Read a file.",
    parameters={"type": "object", "properties": {"relative_path": {"type": "string"}}},
    effect="read",
)
RESULT = "x = 1\n" * 200


class NoLedger:
    """Costs nothing, so that the pool alone is measured."""

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def begin(self, start: AttemptStart) -> int:
        return start.max_output_tokens

    async def end(self, finish: AttemptFinish) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Case:
    """One size of conversation, as both sides send it."""

    name: str
    rounds: int
    calls_per_turn: int

    def messages(self) -> tuple[Message, ...]:
        """The conversation in our form."""
        messages: list[Message] = [SystemMessage(text="You work."), UserMessage(text="Do it.")]
        for number in range(self.rounds):
            call = ToolCallBlock(tool_call_id=f"call_{number}", name=TOOL.name, arguments=_arguments(number))
            result = ToolResult(tool_call_id=call.tool_call_id, name=TOOL.name, content=RESULT)
            messages.append(AssistantMessage(blocks=(TextBlock(text="I look."), call), model="fake:m"))
            messages.append(ToolResultsMessage(results=(result,)))
        return tuple(messages)

    def wire(self) -> list[Any]:
        """The same as the SDK takes it."""
        messages: list[Any] = [
            {"role": "system", "content": "You work."},
            {"role": "user", "content": "Do it."},
        ]
        for number in range(self.rounds):
            function = {"name": TOOL.name, "arguments": _arguments(number)}
            calls = [{"id": f"call_{number}", "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": "I look.", "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": RESULT})
        return messages


CASES = (Case("tiny", rounds=0, calls_per_turn=40), Case("after 50 rounds", rounds=50, calls_per_turn=8))


def _arguments(number: int) -> str:
    return json.dumps({"relative_path": f"src/a{number}.py"})


async def compare(case: Case, pool: Pool, client: AsyncOpenAI) -> tuple[float, float]:
    """CPU in ms of an attempt through the pool, and of the SDK's own streamed call."""
    request = ModelRequest(
        run_id="run_01", stage_id="work-1", round=1, messages=case.messages(), tools=(TOOL,), options={}
    )
    wire = case.wire()
    function = {"name": TOOL.name, "description": TOOL.description, "parameters": dict(TOOL.parameters)}
    tools: list[Any] = [{"type": "function", "function": function}]

    async def ask_pool() -> None:
        await pool.request(request, ledger=NoLedger(), on_delta=lambda _: None, remaining_s=lambda: None)

    async def ask_sdk() -> None:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=wire,
            tools=tools,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for _ in stream:
            pass

    await ask_pool()
    await ask_sdk()
    ours: list[float] = []
    raw: list[float] = []
    for _ in range(TURNS):
        raw.append(await cpu_ms_per_call(ask_sdk, case.calls_per_turn))
        ours.append(await cpu_ms_per_call(ask_pool, case.calls_per_turn))
    return statistics.median(ours), statistics.median(raw)


async def cpu_ms_per_call(call: Callable[[], Awaitable[None]], count: int) -> float:
    started = time.process_time()
    for _ in range(count):
        await call()
    return (time.process_time() - started) * 1000 / count


async def measure() -> bool:
    """Print every figure beside its floor; whether all keep their budget."""
    kept = True
    with FakeProviderProcess([{"text": "ok", "repeat": True}]) as fake:
        settings = ProviderSettings(
            name="fake", kind="openai-chat", base_url=fake.base_url, api_key=Secret(fake.api_key)
        )
        member = PoolMember(model=f"fake:{MODEL}")
        pool = build_pool(
            PoolSettings(name="default", members=(member,)),
            {"fake": settings},
            clock=SystemClock(),
            ids=SystemIds(),
        )
        began = time.perf_counter()
        await pool.prepare()
        print(f"prepare (imports, validators, client): {(time.perf_counter() - began) * 1000:.0f} ms")
        async with AsyncOpenAI(base_url=fake.base_url, api_key=fake.api_key, max_retries=0) as client:
            for case in CASES:
                ours, raw = await compare(case, pool, client)
                over = ours - raw
                kept = kept and over <= MOST_OVER_SDK_MS
                print(
                    f"{case.name}: attempt {ours:.2f} ms CPU, SDK alone {raw:.2f} ms, "
                    f"over it {over:+.2f} ms (budget {MOST_OVER_SDK_MS:+.1f} ms)"
                )
        await pool.aclose()
    return kept


def main() -> int:
    """1 when a budget was passed."""
    return 0 if asyncio.run(measure()) else 1


if __name__ == "__main__":
    sys.exit(main())
