"""How long it takes to shorten a conversation of 200 rounds, and how much of one is read from caches."""

from __future__ import annotations

import statistics
import sys
import time

from remit.models import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
)
from remit.stages._elision import shorten

ROUNDS = 200
TURNS = 15
MOST_MS = 20.0
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
    """The median time of one shortening."""
    times: list[float] = []
    for _ in range(TURNS):
        began = time.perf_counter()
        assert shorten(messages, head=2, target=target, most=target) is not None
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def main() -> int:
    """1 when a budget was passed."""
    messages = history()
    results = shortening_ms(messages, target=200_000)
    rounds = shortening_ms(messages, target=4_000)
    print(f"history of {ROUNDS} rounds: old results replaced in {results:.1f} ms (budget {MOST_MS:.0f} ms)")
    print(f"history of {ROUNDS} rounds: rounds taken out, too, in {rounds:.1f} ms (budget {MOST_MS:.0f} ms)")
    return 0 if max(results, rounds) <= MOST_MS else 1


if __name__ == "__main__":
    sys.exit(main())
