"""The first exchange of a process, played without a network.

SDK and library build their validators when they first meet a type: a fifth of a second that would
otherwise lie between the start of a run's clock and its first request.
"""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from functools import cache

import httpx2

from remit.contract import ToolSpec
from remit.models._attempt import AttemptCall
from remit.models._chat_exchange import ChatExchange
from remit.models._messages import (
    AssistantMessage,
    SystemMessage,
    ToolCallBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
)
from remit.models._openai_sdk import OpenAISdk
from remit.models._port import ModelRequest
from remit.models._settings import ProviderSettings
from remit.primitives import Secret

_warming = threading.Lock()


def warm_up() -> None:
    """Play one exchange, once a process; for a thread. Whoever else asks meanwhile waits for it."""
    with _warming:
        _warm_up_once()


@cache
def _warm_up_once() -> None:
    asyncio.run(_play_one())


async def _play_one() -> None:
    settings = ProviderSettings(name="warm-up", kind="openai-chat", api_key=Secret("none"))
    sdk = OpenAISdk(settings, inner=httpx2.MockTransport(lambda _: httpx2.Response(200, content=_WARM_REPLY)))
    tool = ToolSpec(name="look", description="", parameters={"type": "object"}, effect="read")
    request = ModelRequest(
        run_id="run", stage_id="plan", round=1, messages=_WARM_MESSAGES, tools=(tool,), options={}
    )
    call = AttemptCall(
        request=request, attempt_id="att", model="gpt-4.1", full_model="warm-up:gpt-4.1", max_output_tokens=16
    )
    exchange = ChatExchange(
        call=call,
        waits=sdk.waits,
        mask=str,
        used_ids=(),
        new_id=lambda: "call",
        now=lambda: datetime.now(UTC),
    )
    await sdk.send(
        call,
        exchange,
        settings={"temperature": 0.0, "max_tokens": 16},
        headers={},
        cache_key="run",
        with_usage=True,
        max_field="max_completion_tokens",
        on_delta=lambda _: None,
    )
    await sdk.aclose()


_WARM_MESSAGES = (
    SystemMessage(text="-"),
    UserMessage(text="-"),
    AssistantMessage(blocks=(ToolCallBlock(tool_call_id="c", name="look", arguments="{}"),), model="-"),
    ToolResultsMessage(results=(ToolResult(tool_call_id="c", name="look", content="-"),)),
)
_WARM_HEAD = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"gpt-4.1",'
_WARM_CALL = '{"index":0,"id":"d","type":"function","function":{"name":"look","arguments":"{}"}}'
_WARM_USAGE = '{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}'
_WARM_REPLY = "".join(
    f"data: {record}\n\n"
    for record in (
        f'{_WARM_HEAD}"choices":[{{"index":0,"delta":{{"role":"assistant","content":"-"}},"finish_reason":null}}]}}',
        f'{_WARM_HEAD}"choices":[{{"index":0,"delta":{{"tool_calls":[{_WARM_CALL}]}},"finish_reason":null}}]}}',
        f'{_WARM_HEAD}"choices":[{{"index":0,"delta":{{}},"finish_reason":"tool_calls"}}]}}',
        f'{_WARM_HEAD}"choices":[],"usage":{_WARM_USAGE}}}',
        "[DONE]",
    )
).encode()
