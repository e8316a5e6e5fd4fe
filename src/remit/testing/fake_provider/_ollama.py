"""Ollama as the fake provider speaks it: lines of JSON, a window that is set, and what happens beyond it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.testing.fake_provider._dialect import pieces_of
from remit.testing.fake_provider._openai_rules import Refusal
from remit.testing.fake_provider._reply import RecordedRequest, Reply
from remit.testing.fake_provider._shapes import is_array, is_object

_FIELDS = frozenset(
    {"format", "keep_alive", "messages", "model", "options", "shift", "stream", "think", "tools", "truncate"}
)
_DEFAULT_WINDOW = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaModel:
    """What a model of the fake is."""

    window_tokens: int = 131_072
    capabilities: tuple[str, ...] = ("completion", "tools")


@dataclass(slots=True, kw_only=True)
class OllamaDialect:
    """How strict the fake is, and how old it pretends to be."""

    api_key: str | None = None
    models: Mapping[str, OllamaModel] = field(default_factory=lambda: {"tiny:1b": OllamaModel()})
    cuts_in_silence: bool = False
    """Drop what doesn't fit, whatever the request says, as versions before `truncate` do."""
    base_path: str = ""
    request_id_header: str = "x-request-id"

    def refusal(self, request: RecordedRequest) -> Refusal | None:
        """Why the real one wouldn't take this request, or None."""
        if request.method == "GET":
            return None if request.path == "/api/tags" else Refusal(404, "page not found")
        if request.path not in ("/api/chat", "/api/show"):
            return Refusal(404, "page not found")
        body: Any = request.json
        if not is_object(body):
            return Refusal(400, "invalid request")
        name = body.get("model")
        model = self.models.get(str(name))
        if model is None:
            return Refusal(404, f"model '{name}' not found")
        return None if request.path == "/api/show" else self._check(body, model)

    def _check(self, body: dict[str, Any], model: OllamaModel) -> Refusal | None:
        unknown = sorted(set(body) - _FIELDS)
        if unknown:  # the real one ignores them; none of ours may rely on that
            return Refusal(400, f"unknown field {unknown[0]}")
        if body.get("tools") and "tools" not in model.capabilities:
            return Refusal(400, f"registry.ollama.ai/library/{body['model']} does not support tools")
        if body.get("think") and "thinking" not in model.capabilities:
            return Refusal(400, f'"{body["model"]}" does not support thinking')
        for message in body.get("messages", []):
            if not isinstance(message.get("content"), str):
                return Refusal(
                    400, "json: cannot unmarshal into Go struct field .messages.content of type string"
                )
            for call in message.get("tool_calls", []):
                if not is_object(call["function"]["arguments"]):
                    return Refusal(400, "json: cannot unmarshal string into tool_calls.function.arguments")
        if body.get("truncate") is False and not self.cuts_in_silence and _tokens(body) > _window(body):
            return Refusal(400, "the input length exceeds the context length")
        return None

    def error_body(self, refusal: Refusal) -> bytes:
        """A refusal as the body of an error answer."""
        return json.dumps({"error": refusal.message}).encode()

    def fault_body(self, reply: Reply, request: RecordedRequest) -> bytes:
        """The body of a scripted error status."""
        if reply.body is not None:
            return reply.body.encode() if isinstance(reply.body, str) else json.dumps(reply.body).encode()
        return self.error_body(Refusal(reply.status, f"the fake answers {reply.status}"))

    def list_models(self) -> bytes:
        """The answer to `GET /api/tags`."""
        return json.dumps({"models": [{"name": name, "model": name} for name in self.models]}).encode()

    def look(self, request: RecordedRequest) -> bytes:
        """The answer to whoever asks what there is."""
        if request.path != "/api/show":
            return self.list_models()
        model = self.models[request.json["model"]]
        info = {"general.architecture": "fake", "fake.context_length": model.window_tokens}
        return json.dumps({"model_info": info, "capabilities": list(model.capabilities)}).encode()

    def render(self, reply: Reply, request: RecordedRequest, *, number: int) -> tuple[str, list[bytes]]:
        """Content type and pieces of the body of a 200 answer."""
        if reply.raw is not None:
            return reply.content_type or "application/x-ndjson", [reply.raw]
        lines = list(self._lines(reply, request.json))
        if not reply.done:
            lines.pop()
        return "application/x-ndjson", [*(json.dumps(line).encode() + b"\n" for line in lines), reply.tail]

    def _lines(self, reply: Reply, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        head = {"model": body["model"], "created_at": "2026-11-30T12:00:00Z"}
        for piece in pieces_of(reply.thinking, reply.chunk_count) if reply.thinking else ():
            yield {**head, "message": {"role": "assistant", "content": "", "thinking": piece}, "done": False}
        for piece in pieces_of(reply.text, reply.chunk_count) if reply.text else ():
            yield {**head, "message": {"role": "assistant", "content": piece}, "done": False}
        if reply.tool_calls:
            calls = [
                {"function": {"name": call.name, "arguments": json.loads(call.argument_text)}}
                for call in reply.tool_calls
            ]
            yield {
                **head,
                "message": {"role": "assistant", "content": "", "tool_calls": calls},
                "done": False,
            }
        sent = sum(len(call.argument_text) for call in reply.tool_calls) + len(reply.text or "")
        counts: Any = {
            "prompt_eval_count": min(_tokens(body), _window(body)),
            "eval_count": max(1, sent // 4),
        }
        if reply.usage != "auto":
            counts = reply.usage or {}
        last = {"message": {"role": "assistant", "content": ""}, "done": True}
        yield {**head, **last, "done_reason": reply.finish or "stop", "total_duration": 1, **counts}


def _window(body: Mapping[str, Any]) -> int:
    options: dict[str, Any] = body.get("options") or {}
    return int(options.get("num_ctx", _DEFAULT_WINDOW))


def _tokens(body: Mapping[str, Any]) -> int:
    messages: Any = body.get("messages", [])
    texts = (str(message.get("content")) for message in messages if is_array(messages))
    return max(1, sum(map(len, texts)) // 4)
