"""The first exchange of a process with Responses, played without a network; see `_openai_warm_up`."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime
from functools import cache
from typing import Any

import httpx2

from remit.contract import ToolSpec
from remit.models._attempt import AttemptCall
from remit.models._messages import UserMessage
from remit.models._port import ModelRequest
from remit.models._responses_exchange import ResponsesExchange
from remit.models._responses_sdk import ResponsesSdk
from remit.models._settings import ProviderSettings
from remit.primitives import Secret

__all__ = ["ResponsesSdk", "warm_up"]


_warming = threading.Lock()


def warm_up() -> None:
    """Play one exchange, once a process; for a thread. Whoever else asks meanwhile waits for it."""
    with _warming:
        _warm_up_once()


@cache
def _warm_up_once() -> None:
    asyncio.run(_play_one())


async def _play_one() -> None:
    settings = ProviderSettings(name="warm-up", kind="openai", api_key=Secret("none"))
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=_stream()))
    sdk = ResponsesSdk(settings, inner=transport)
    tool = ToolSpec(name="look", description="", parameters={"type": "object"}, effect="read")
    request = ModelRequest(
        run_id="run", stage_id="plan", round=1, messages=(UserMessage(text="-"),), tools=(tool,), options={}
    )
    call = AttemptCall(
        request=request, attempt_id="att", model="gpt-4.1", full_model="warm-up:gpt-4.1", max_output_tokens=16
    )
    exchange = ResponsesExchange(
        call=call,
        waits=sdk.waits,
        mask=str,
        used_ids=(),
        new_id=lambda: "call",
        now=lambda: datetime.now(UTC),
    )
    body = {"input": [{"role": "user", "content": "-"}]}
    await sdk.send("gpt-4.1", exchange, body=body, headers={}, tools=(tool,), on_delta=lambda _: None)
    await sdk.aclose()


def _stream() -> bytes:
    part: dict[str, Any] = {"type": "output_text", "text": "-", "annotations": []}
    message: dict[str, Any] = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "look", "arguments": "{}"}
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    }
    head: dict[str, Any] = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "gpt-4.1",
        "output": [],
    }
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    events: tuple[dict[str, Any], ...] = (
        {"type": "response.created", "response": {**head, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}},
        {"type": "response.output_text.delta", **place, "delta": "-", "logprobs": []},
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.output_item.added", "output_index": 1, "item": {**call, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "item_id": "f", "output_index": 1, "delta": "{}"},
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.completed", "response": {**head, "status": "completed", "usage": usage}},
    )
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
