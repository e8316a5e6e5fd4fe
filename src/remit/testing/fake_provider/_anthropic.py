"""Anthropic Messages as the fake provider speaks it: how its answers look, and what its cache holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.testing.fake_provider._anthropic_rules import check_claude_body
from remit.testing.fake_provider._cache import MarkedCache
from remit.testing.fake_provider._claude_models import ClaudeModel
from remit.testing.fake_provider._dialect import frame, pieces_of
from remit.testing.fake_provider._openai_rules import Refusal
from remit.testing.fake_provider._reply import RecordedRequest, Reply
from remit.testing.fake_provider._shapes import is_array, is_object

_ALL_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_MODELS: dict[str, ClaudeModel] = {
    "claude-haiku-4-5": ClaudeModel(thinking="budget", least_cached_tokens=4_096),
    "claude-opus-4-5": ClaudeModel(
        thinking="budget", least_cached_tokens=4_096, efforts=("low", "medium", "high")
    ),
    "claude-sonnet-4-6": ClaudeModel(
        thinking="adaptive",
        efforts=("low", "medium", "high", "max"),
        max_output_tokens=128_000,
        window_tokens=1_000_000,
    ),
    "claude-opus-4-7": ClaudeModel(
        thinking="adaptive_only",
        sampling=False,
        efforts=_ALL_EFFORTS,
        max_output_tokens=128_000,
        window_tokens=1_000_000,
    ),
    "claude-sonnet-5": ClaudeModel(
        thinking="adaptive_only",
        thinks_by_default=True,
        sampling=False,
        efforts=_ALL_EFFORTS,
        max_output_tokens=128_000,
        window_tokens=1_000_000,
    ),
    "claude-opus-5-5": ClaudeModel(
        thinking="always",
        thinks_by_default=True,
        sampling=False,
        efforts=_ALL_EFFORTS,
        max_output_tokens=128_000,
        window_tokens=1_000_000,
    ),
}
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(slots=True, kw_only=True)
class AnthropicDialect:
    """How strict the fake is, and what it remembers."""

    api_key: str | None = "sk-ant-fake-0123456789abcdef"
    """The only key that is let in; None: none is needed."""
    models: Mapping[str, ClaudeModel] | None = field(default_factory=lambda: dict(_MODELS))
    """The models that exist; None: any name does, with nothing known of it."""
    max_body_bytes: int = 32 * 1024 * 1024
    base_path: str = ""
    request_id_header: str = "request-id"
    _issued: dict[str, str] = field(default_factory=dict[str, str])
    """Thinking that was signed here: signature to text."""
    _cache: MarkedCache = field(default_factory=MarkedCache)

    def refusal(self, request: RecordedRequest) -> Refusal | None:
        """Why the real one wouldn't take this request, or None."""
        path = request.path.partition("?")[0]
        if path not in ("/v1/messages", "/v1/models"):
            return Refusal(404, "Not Found", type="not_found_error")
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.api_key is not None and self.api_key not in (request.headers.get("x-api-key"), bearer):
            return Refusal(401, "invalid x-api-key", type="authentication_error")
        if "anthropic-version" not in request.headers:
            return Refusal(400, "anthropic-version: header is required")
        if path == "/v1/models":
            return None if request.method == "GET" else Refusal(405, "Method Not Allowed")
        if request.method != "POST":
            return Refusal(405, "Method Not Allowed")
        if len(request.body) > self.max_body_bytes:
            return Refusal(413, "Request exceeds the maximum size", type="request_too_large")
        if not is_object(request.json):
            return Refusal(400, "The request body is not valid JSON")
        return check_claude_body(
            request.json, models=self.models, issued=self._issued, size_bytes=len(request.body)
        )

    def error_body(self, refusal: Refusal) -> bytes:
        """A refusal as the body of an error answer."""
        kind = _TYPES.get(refusal.status, refusal.type)
        error = {"type": kind, "message": refusal.message}
        return json.dumps({"type": "error", "error": error, "request_id": "req_fake"}).encode()

    def fault_body(self, reply: Reply, request: RecordedRequest) -> bytes:
        """The body of a scripted error status."""
        if isinstance(reply.body, str):
            return reply.body.encode()
        if reply.body is not None:
            return json.dumps(reply.body).encode()
        message = "Overloaded" if reply.status == 529 else f"the fake answers {reply.status}"
        if reply.echo_key:
            message = f"{message} to the key {request.headers.get('x-api-key')}"
        kind = _TYPES.get(reply.status, "api_error")
        return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()

    def list_models(self) -> bytes:
        """The answer to `GET /v1/models`."""
        data = [{"type": "model", "id": name, "display_name": name} for name in sorted(self.models or {})]
        return json.dumps({"data": data, "has_more": False}).encode()

    def render(self, reply: Reply, request: RecordedRequest, *, number: int) -> tuple[str, list[bytes]]:
        """Content type and pieces of the body of a 200 answer."""
        if reply.raw is not None:
            return reply.content_type or "text/event-stream; charset=utf-8", [reply.raw]
        blocks = list(self._blocks(reply, number))
        usage = self._usage(reply, request, blocks)
        events = list(_events(reply, request, blocks, usage, number))
        if not reply.done:
            events.pop()
        framed = [
            frame(event["type"], json.dumps(event, ensure_ascii=False), reply.line_end) for event in events
        ]
        return reply.content_type or "text/event-stream; charset=utf-8", [*framed, reply.tail]

    def _blocks(self, reply: Reply, number: int) -> Iterator[dict[str, Any]]:
        """The content blocks of the answer; what they sign is remembered."""
        for block in reply.blocks if reply.blocks is not None else _made_blocks(reply, number):
            if block["type"] == "thinking":
                self._issued[block["signature"]] = block["thinking"]
            elif block["type"] == "redacted_thinking":
                self._issued[block["data"]] = ""
            yield dict(block)

    def _usage(self, reply: Reply, request: RecordedRequest, blocks: list[dict[str, Any]]) -> tuple[Any, Any]:
        """The usage of the first record and of the last one."""
        given = reply.usage
        if given is None:
            return None, None
        if given != "auto":
            return given.get("start", given), given.get("delta", given)
        read, written, plain = self._count_input(request.json)
        start = {
            "input_tokens": plain,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": read,
            "output_tokens": 1,
        }
        output = max(1, sum(len(json.dumps(block)) for block in blocks) // 4)
        return start, {**start, "output_tokens": output}

    def _count_input(self, body: Mapping[str, Any]) -> tuple[int, int, int]:
        """Tokens read from the cache, written to it, and neither; marked prefixes are in it from now on."""
        name = str(body.get("model"))
        model = (self.models or {}).get(name) or ClaudeModel(thinking="budget")
        return self._cache.count(name, _parts(body), least_tokens=model.least_cached_tokens)


def _parts(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from body.get("tools") or []
    system: Any = body.get("system") or []
    yield from system if is_array(system) else [{"type": "text", "text": system}]
    for message in body["messages"]:
        content = message["content"]
        for block in content if is_array(content) else [{"type": "text", "text": content}]:
            yield {"role": message["role"], **block}


def _made_blocks(reply: Reply, number: int) -> Iterator[dict[str, Any]]:
    if reply.thinking is not None:
        signature = hashlib.sha256(reply.thinking.encode()).hexdigest() * 4
        yield {"type": "thinking", "thinking": reply.thinking, "signature": f"{signature}+/="}
    if reply.text is not None:
        yield {"type": "text", "text": reply.text}
    for index, call in enumerate(reply.tool_calls):
        call_id = f"toolu_fake{number:04d}x{index:02d}" if call.id is None else call.id
        yield {
            "type": "tool_use",
            "id": call_id,
            "name": call.name,
            "input": call.argument_text,
            **call.extra,
        }


def _events(
    reply: Reply, request: RecordedRequest, blocks: list[dict[str, Any]], usage: tuple[Any, Any], number: int
) -> Iterator[dict[str, Any]]:
    message: dict[str, Any] = {
        "id": f"msg_fake{number:06d}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage[0],
    }
    yield {"type": "message_start", "message": message}
    yield {"type": "ping"}
    for index, block in enumerate(blocks):
        start, deltas = _streamed(block, reply.chunk_count)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    if reply.finish != "":
        called = any(block["type"] == "tool_use" for block in blocks)
        word = reply.finish or ("refusal" if reply.refusal else "tool_use" if called else "end_turn")
        delta: dict[str, Any] = {"stop_reason": word, "stop_sequence": None}
        if reply.refusal:
            delta["stop_details"] = {"type": "refusal", "category": "other", "explanation": reply.refusal}
        yield {"type": "message_delta", "delta": delta, "usage": usage[1]}
    yield {"type": "message_stop"}


def _streamed(block: dict[str, Any], count: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block's beginning and its pieces."""
    match block["type"]:
        case "text":
            pieces = pieces_of(block["text"], count)
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
        case "thinking":
            pieces = [piece for piece in pieces_of(block["thinking"], count) if piece]
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use":
            pieces = ["", *pieces_of(block["input"], count)]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            return {**block, "input": {}}, deltas
        case _:
            return block, []
