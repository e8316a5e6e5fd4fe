"""OpenAI Responses as the fake provider speaks it: how its answers look, and what it signed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.testing.fake_provider._dialect import frame, pieces_of
from remit.testing.fake_provider._openai_chat import OpenAIChatDialect
from remit.testing.fake_provider._openai_rules import Refusal
from remit.testing.fake_provider._reply import RecordedRequest, Reply
from remit.testing.fake_provider._responses_rules import check_responses_body
from remit.testing.fake_provider._shapes import is_array, is_object

_CREATED = 1_790_000_000
_OTHER_PATHS = ("/v1/models",)


@dataclass(slots=True, kw_only=True)
class OpenAIResponsesDialect(OpenAIChatDialect):
    """How strict the fake is, and what it remembers. Keys, models, errors are those of the Chat dialect."""

    _issued: dict[str, str] = field(default_factory=dict[str, str])
    """Reasoning that was encrypted here: content to item id."""
    _owners: dict[str, str] = field(default_factory=dict[str, str])
    """For the id of an item given out: the reasoning that it belongs to."""

    def refusal(self, request: RecordedRequest) -> Refusal | None:
        """Why the real one wouldn't take this request, or None."""
        if request.path in _OTHER_PATHS:
            return OpenAIChatDialect.refusal(self, request)
        if request.path != "/v1/responses":
            text = f"Invalid URL ({request.method} {request.path})"
            return Refusal(404, text, code="unknown_url")
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.api_key is not None and key != self.api_key:
            return Refusal(401, "Incorrect API key provided.", code="invalid_api_key")
        if request.method != "POST":
            return Refusal(405, f"Not allowed to {request.method} on /v1/responses.", code="method")
        if len(request.body) > self.max_body_bytes:
            return Refusal(413, "Request entity too large.", code="request_too_large")
        if not is_object(request.json):
            return Refusal(400, "We could not parse the JSON body of your request.")
        return check_responses_body(
            request.json,
            models=self.models,
            issued=self._issued,
            owners=self._owners,
            size_bytes=len(request.body),
        )

    def render(self, reply: Reply, request: RecordedRequest, *, number: int) -> tuple[str, list[bytes]]:
        """Content type and pieces of the body of a 200 answer."""
        if reply.raw is not None:
            return reply.content_type or "text/event-stream; charset=utf-8", [reply.raw]
        items = [dict(item) for item in (reply.blocks if reply.blocks is not None else _items(reply, number))]
        self._remember(items)
        body = request.json
        read = self.read_before(body, (body.get("tools"), body.get("instructions"), *_inputs(body)))
        events = list(_events(reply, request, items, number, read_before=read))
        if not reply.done:
            events.pop()
        framed = [
            frame(
                event["type"],
                json.dumps({**event, "sequence_number": index}, ensure_ascii=False),
                reply.line_end,
            )
            for index, event in enumerate(events)
        ]
        return reply.content_type or "text/event-stream; charset=utf-8", [*framed, reply.tail]

    def _remember(self, items: list[dict[str, Any]]) -> None:
        owner: str | None = None
        for item in items:
            if item["type"] == "reasoning":
                owner = item["id"]
                if item.get("encrypted_content") is not None:
                    self._issued[item["encrypted_content"]] = item["id"]
            elif owner is not None:
                self._owners[item["id"]] = owner


def _items(reply: Reply, number: int) -> Iterator[dict[str, Any]]:
    if reply.thinking is not None:
        sealed = hashlib.sha256(f"{number}{reply.thinking}".encode()).hexdigest() * 4
        yield {
            "id": f"rs_fake{number:06d}",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": reply.thinking}] if reply.thinking else [],
            "encrypted_content": f"{sealed}+/=",
        }
    parts: list[dict[str, Any]] = []
    if reply.text is not None:
        parts.append({"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []})
    if reply.refusal is not None:
        parts.append({"type": "refusal", "refusal": reply.refusal})
    if parts:
        head = {"id": f"msg_fake{number:06d}", "type": "message", "role": "assistant", "status": "completed"}
        yield {**head, "content": parts}
    for index, call in enumerate(reply.tool_calls):
        yield {
            "id": f"fc_fake{number:04d}x{index:02d}",
            "type": "function_call",
            "status": "completed",
            "call_id": f"call_fake{number:04d}x{index:02d}" if call.id is None else call.id,
            "name": call.name,
            "arguments": call.argument_text,
            **call.extra,
        }


def _events(
    reply: Reply, request: RecordedRequest, items: list[dict[str, Any]], number: int, *, read_before: int
) -> Iterator[dict[str, Any]]:
    head: dict[str, Any] = {
        "id": f"resp_fake{number:06d}",
        "object": "response",
        "created_at": _CREATED,
        "model": request.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "usage": None,
    }
    for name in ("created", "in_progress"):
        yield {"type": f"response.{name}", "response": {**head, "status": "in_progress"}}
    for index, item in enumerate(items):
        yield from _item_events(index, item, reply.chunk_count)
    word = reply.finish or "completed"
    usage = _usage(reply, request, items, read_before)
    if word == "failed":
        error = reply.body or {"code": "server_error", "message": "the fake fails"}
        yield {
            "type": "response.failed",
            "response": {**head, "status": "failed", "error": error, "usage": usage},
        }
    elif word == "completed":
        yield {
            "type": "response.completed",
            "response": {**head, "status": word, "output": items, "usage": usage},
        }
    else:
        cut = {
            "status": "incomplete",
            "incomplete_details": {"reason": word},
            "output": items,
            "usage": usage,
        }
        yield {"type": "response.incomplete", "response": {**head, **cut}}


def _item_events(index: int, item: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    place: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    empty: dict[str, dict[str, Any]] = {
        "message": {"content": [], "status": "in_progress"},
        "reasoning": {"summary": [], "encrypted_content": None},
        "function_call": {"arguments": "", "status": "in_progress"},
    }
    started = {**item, **empty.get(item["type"], {})}
    yield {"type": "response.output_item.added", "output_index": index, "item": started}
    match item["type"]:
        case "message":
            for number, part in enumerate(item["content"]):
                yield from _part_events({**place, "content_index": number}, part, count)
        case "reasoning":
            for number, part in enumerate(item["summary"]):
                yield from _summary_events({**place, "summary_index": number}, part, count)
        case "function_call":
            kind = "response.function_call_arguments"
            for piece in pieces_of(item["arguments"], count):
                yield {"type": f"{kind}.delta", **place, "delta": piece}
            yield {"type": f"{kind}.done", **place, "name": item["name"], "arguments": item["arguments"]}
        case _:
            pass
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _part_events(place: dict[str, Any], part: Mapping[str, Any], count: int) -> Iterator[dict[str, Any]]:
    key = "refusal" if part["type"] == "refusal" else "text"
    kind = "response.refusal" if key == "refusal" else "response.output_text"
    yield {"type": "response.content_part.added", **place, "part": {**part, key: ""}}
    for piece in pieces_of(part[key], count):
        yield {"type": f"{kind}.delta", **place, "delta": piece, "logprobs": []}
    yield {"type": f"{kind}.done", **place, key: part[key], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}


def _summary_events(place: dict[str, Any], part: Mapping[str, Any], count: int) -> Iterator[dict[str, Any]]:
    kind = "response.reasoning_summary"
    yield {"type": f"{kind}_part.added", **place, "part": {**part, "text": ""}}
    for piece in pieces_of(part["text"], count):
        yield {"type": f"{kind}_text.delta", **place, "delta": piece}
    yield {"type": f"{kind}_text.done", **place, "text": part["text"]}
    yield {"type": f"{kind}_part.done", **place, "part": part}


def _inputs(body: Mapping[str, Any]) -> list[Any]:
    given = body.get("input")
    return given if is_array(given) else [given]


def _usage(reply: Reply, request: RecordedRequest, items: list[dict[str, Any]], read_before: int) -> Any:
    if reply.usage != "auto":
        return reply.usage
    prompt = max(1, len(request.body) // 4)
    output = max(1, sum(len(json.dumps(item)) for item in items) // 4)
    reasoning = min(output, len(reply.thinking or "") // 4)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": min(read_before, prompt)},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": prompt + output,
    }
