"""OpenAI Chat Completions as the fake provider speaks it: what it refuses, and how its answers look.

Source: the API reference of Chat Completions and error bodies seen in public reports, as of 2026-11.
The sentences are our own; shapes, codes and `param` are those of the real one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.testing.fake_provider._cache import PrefixCache
from remit.testing.fake_provider._dialect import pieces_of
from remit.testing.fake_provider._openai_rules import ChatModel, Refusal, check_body
from remit.testing.fake_provider._reply import FakeToolCall, RecordedRequest, Reply
from remit.testing.fake_provider._shapes import is_object

_MODELS: dict[str, ChatModel] = {
    "gpt-4.1": ChatModel(max_output_tokens=32_768, window_tokens=1_000_000),
    "gpt-4o-mini": ChatModel(max_output_tokens=16_384, window_tokens=128_000),
    "gpt-5": ChatModel(reasoning="always", max_output_tokens=128_000, window_tokens=400_000),
    "gpt-5.1": ChatModel(reasoning="off_by_default", max_output_tokens=128_000, window_tokens=400_000),
    "gpt-5.2": ChatModel(reasoning="off_by_default", max_output_tokens=128_000, window_tokens=400_000),
    "gpt-5.4": ChatModel(
        reasoning="off_by_default",
        max_output_tokens=128_000,
        window_tokens=1_050_000,
        tools_with_effort=False,
    ),
    "gpt-5.6-sol": ChatModel(
        reasoning="on_by_default", max_output_tokens=128_000, window_tokens=1_050_000, tools_with_effort=False
    ),
    "o4-mini": ChatModel(reasoning="always", max_output_tokens=100_000, window_tokens=200_000),
}
_CREATED = 1_790_000_000


@dataclass(slots=True, kw_only=True)
class OpenAIChatDialect:
    """How strict the fake is, and whom it imitates."""

    api_key: str | None = "sk-fake-0123456789abcdef"
    """The only key that is let in; None: none is needed."""
    models: Mapping[str, ChatModel] | None = field(default_factory=lambda: dict(_MODELS))
    """The models that exist; None: any name does, with nothing known of it (a compatible server)."""
    refuse_stream_options: bool = False
    """Refuse the argument `stream_options`, as some compatible servers do."""
    ignore_stream: bool = False
    """Answer a streamed request with one JSON body."""
    max_body_bytes: int = 20 * 1024 * 1024
    base_path: str = "/v1"
    cache: PrefixCache | None = field(default_factory=PrefixCache)
    """What it has read before; None: it caches nothing, as some compatible servers."""
    request_id_header: str = "x-request-id"

    def refusal(self, request: RecordedRequest) -> Refusal | None:
        """Why the real one wouldn't take this request, or None."""
        refusal = self.path_refusal(request)
        if refusal is not None:
            return refusal
        key = self.key_of(request)
        if self.api_key is not None and key != self.api_key:
            shown = f"{key[:3]}***{key[-2:]}" if len(key) > 8 else "***"
            return Refusal(401, f"Incorrect API key provided: {shown}.", code="invalid_api_key")
        if "/models" in request.path:
            return None if request.method == "GET" else Refusal(405, "Method not allowed.", code="method")
        if request.method != "POST":
            return Refusal(405, f"Not allowed to {request.method} on /v1/chat/completions.", code="method")
        if len(request.body) > self.max_body_bytes:
            return Refusal(413, "Request entity too large.", code="request_too_large")
        if not is_object(request.json):
            return Refusal(400, "We could not parse the JSON body of your request.")
        if self.refuse_stream_options and "stream_options" in request.json:
            return Refusal(
                400, "Unknown parameter: 'stream_options'.", param="stream_options", code="unknown_parameter"
            )
        return check_body(request.json, models=self.models, size_bytes=len(request.body))

    def path_refusal(self, request: RecordedRequest) -> Refusal | None:
        """Why there is nothing at the request's path, or None."""
        if request.path in ("/v1/chat/completions", "/v1/models"):
            return None
        return Refusal(404, f"Unknown request URL: {request.method} {request.path}.", code="unknown_url")

    def key_of(self, request: RecordedRequest) -> str:
        """The key that a request brings."""
        return request.headers.get("authorization", "").removeprefix("Bearer ")

    def error_body(self, refusal: Refusal) -> bytes:
        """A refusal as the body of an error answer."""
        error = {
            "message": refusal.message,
            "type": refusal.type,
            "param": refusal.param,
            "code": refusal.code,
        }
        return json.dumps({"error": error}, indent=2).encode()

    def fault_body(self, reply: Reply, request: RecordedRequest) -> bytes:
        """The body of a scripted error status."""
        if isinstance(reply.body, str):
            return reply.body.encode()
        if reply.body is not None:
            return json.dumps(reply.body).encode()
        message = _FAULTS.get(reply.status, "The server had an error while processing your request.")
        if reply.echo_key:
            key = request.headers.get("authorization", "").removeprefix("Bearer ")
            message = f"{message} You sent the key {key}."
        kind = "server_error" if reply.status >= 500 else "requests" if reply.status == 429 else None
        code = {401: "invalid_api_key", 429: "rate_limit_exceeded", 404: "model_not_found"}.get(reply.status)
        return self.error_body(
            Refusal(reply.status, message, type=kind or "invalid_request_error", code=code)
        )

    def list_models(self) -> bytes:
        """The answer to `GET /v1/models`."""
        names = sorted(self.models or {})
        data = [{"id": name, "object": "model", "created": _CREATED, "owned_by": "fake"} for name in names]
        return json.dumps({"object": "list", "data": data}).encode()

    def read_before(self, body: Mapping[str, Any], parts: Iterable[Any]) -> int:
        """Tokens of the prompt that the cache holds; it is held from now on."""
        scope = f"{body.get('model')} {body.get('prompt_cache_key')}"
        return 0 if self.cache is None else self.cache.read(scope, parts)

    def render(self, reply: Reply, request: RecordedRequest, *, number: int) -> tuple[str, list[bytes]]:
        """Content type and pieces of the body of a 200 answer."""
        if reply.raw is not None:
            return reply.content_type or "text/event-stream; charset=utf-8", [reply.raw]
        body = request.json
        read = self.read_before(body, (body.get("tools"), *body["messages"]))
        answer = _Answer(reply, request, number, read_before=read)
        if not request.json.get("stream") or self.ignore_stream:
            return reply.content_type or "application/json", [answer.whole(), reply.tail]
        events = answer.events()
        if not reply.done:
            events.pop()
        end = reply.line_end
        pieces = [f"data: {event}{end}{end}".encode() for event in events]
        return reply.content_type or "text/event-stream; charset=utf-8", [*pieces, reply.tail]


_FAULTS = {
    401: "Incorrect API key provided.",
    403: "You are not allowed to sample from this model.",
    404: "The model does not exist or you do not have access to it.",
    429: "Rate limit reached for requests.",
    503: "The engine is currently overloaded, please try again later.",
}


class _Answer:
    """One completion, as a stream of chunks or as a whole."""

    def __init__(self, reply: Reply, request: RecordedRequest, number: int, *, read_before: int) -> None:
        self._reply = reply
        self._body: dict[str, Any] = request.json
        self._number = number
        self._prompt_tokens = max(1, len(request.body) // 4)
        self._read_before = min(read_before, self._prompt_tokens)

    def whole(self) -> bytes:
        reply = self._reply
        message: dict[str, Any] = {
            "role": "assistant",
            "content": reply.text,
            "refusal": reply.refusal,
            "annotations": [],
        }
        if reply.thinking is not None:
            message["reasoning_content"] = reply.thinking
        if reply.tool_calls:
            message["tool_calls"] = [self._call(call, index) for index, call in enumerate(reply.tool_calls)]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish()}
        value = self._envelope("chat.completion") | {"choices": [choice]}
        usage = self._usage()
        if usage is not None:
            value["usage"] = usage
        return json.dumps(value, ensure_ascii=False).encode()

    def events(self) -> list[str]:
        reply = self._reply
        options: Mapping[str, Any] = self._body.get("stream_options") or {}
        with_usage = bool(options.get("include_usage")) and reply.usage_form != "none"
        deltas = list(reply.deltas) if reply.deltas is not None else self._deltas()
        chunks: list[dict[str, Any]] = [self._chunk([])] if reply.head_chunk else []
        chunks += [self._chunk([_choice(delta, None)]) for delta in deltas]
        finish = self._finish()
        if finish:
            chunks.append(self._chunk([_choice({}, finish)]))
        usage = self._usage()
        if with_usage:
            self._add_usage(chunks, usage)
        return [*(json.dumps(chunk, ensure_ascii=False, separators=(",", ":")) for chunk in chunks), "[DONE]"]

    def _add_usage(self, chunks: list[dict[str, Any]], usage: Any) -> None:
        if self._reply.usage_form == "each_chunk":
            for chunk in chunks:
                chunk["usage"] = usage
            return
        for chunk in chunks:
            chunk["usage"] = None
        if usage is not None:
            chunks.append(self._chunk([]) | {"usage": usage})

    def _deltas(self) -> list[Mapping[str, Any] | None]:
        reply = self._reply
        deltas: list[Mapping[str, Any] | None] = [{"role": "assistant", "content": "", "refusal": None}]
        if reply.thinking:
            deltas += [{"reasoning_content": piece} for piece in pieces_of(reply.thinking, reply.chunk_count)]
        if reply.text:
            deltas += [{"content": piece} for piece in pieces_of(reply.text, reply.chunk_count)]
        if reply.refusal:
            deltas += [{"refusal": piece} for piece in pieces_of(reply.refusal, reply.chunk_count)]
        for index, call in enumerate(reply.tool_calls):
            head = self._call(call, index)
            arguments: str = head["function"].pop("arguments")
            head["function"]["arguments"] = ""
            deltas.append({"tool_calls": [{"index": index, **head}]})
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                for piece in pieces_of(arguments, reply.chunk_count)
            ]
        return deltas

    def _call(self, call: FakeToolCall, index: int) -> dict[str, Any]:
        made = f"call_fake{self._number:04d}x{index:02d}"
        return {
            "id": made if call.id is None else call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.argument_text},
            **call.extra,
        }

    def _finish(self) -> str:
        if self._reply.finish is not None:
            return self._reply.finish
        return "tool_calls" if self._reply.tool_calls else "stop"

    def _usage(self) -> Mapping[str, Any] | None:
        reply = self._reply
        if reply.usage != "auto":
            return reply.usage
        sent = [reply.text or "", reply.thinking or "", *(call.argument_text for call in reply.tool_calls)]
        reasoning = len(reply.thinking or "") // 4
        output = max(1, sum(len(text) for text in sent) // 4)
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": output,
            "total_tokens": self._prompt_tokens + output,
            "prompt_tokens_details": {"cached_tokens": self._read_before, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": min(reasoning, output), "audio_tokens": 0},
        }

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-fake{self._number:06d}",
            "object": kind,
            "created": _CREATED,
            "model": self._body.get("model"),
            "service_tier": "default",
            "system_fingerprint": "fp_fake",
        }

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self._envelope("chat.completion.chunk") | {"choices": choices}


def _choice(delta: Mapping[str, Any] | None, finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
