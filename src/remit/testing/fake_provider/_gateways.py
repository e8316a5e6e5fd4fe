"""Chat Completions at other doors: Azure's paths and key, OpenRouter's reasoning and bill."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

from remit.testing.fake_provider._openai_chat import OpenAIChatDialect
from remit.testing.fake_provider._openai_rules import Refusal
from remit.testing.fake_provider._reply import RecordedRequest, Reply
from remit.testing.fake_provider._shapes import is_object

_DEPLOYMENT = re.compile(
    r"/openai/deployments/[^/]+/chat/completions\?api-version=(?P<version>[0-9A-Za-z.-]+)\Z"
)


@dataclass(slots=True, kw_only=True)
class AzureDialect(OpenAIChatDialect):
    """Azure OpenAI: `/openai/v1`, or a path by deployment with a dated version."""

    base_path: str = ""
    request_id_header: str = "apim-request-id"
    api_version: str | None = None
    """The version that its older paths want; None: it has the newer ones."""

    def path_refusal(self, request: RecordedRequest) -> Refusal | None:
        """Why there is nothing at the request's path, or None."""
        if self.api_version is None:
            there = request.path in ("/openai/v1/chat/completions", "/openai/v1/models")
        else:
            found = _DEPLOYMENT.match(request.path)
            there = found is not None and found["version"] == self.api_version
        return None if there else Refusal(404, "Resource not found", code="404")

    def key_of(self, request: RecordedRequest) -> str:
        """The key that a request brings."""
        return "" if "authorization" in request.headers else request.headers.get("api-key", "")


@dataclass(slots=True, kw_only=True)
class OpenRouterDialect(OpenAIChatDialect):
    """A gateway: reasoning comes in signed details, and wants to go back as it came."""

    models: Any = field(default_factory=lambda: None)
    base_path: str = "/api/v1"
    _issued: dict[str, str] = field(default_factory=dict[str, str])

    def path_refusal(self, request: RecordedRequest) -> Refusal | None:
        """Why there is nothing at the request's path, or None."""
        if request.path in ("/api/v1/chat/completions", "/api/v1/models/user"):
            return None
        return Refusal(404, "Not Found", code="404")

    def refusal(self, request: RecordedRequest) -> Refusal | None:
        """Why the real one wouldn't take this request, or None."""
        # Slots and super() without arguments don't go together in a dataclass.
        found = OpenAIChatDialect.refusal(self, request)
        if found is not None or not is_object(request.json):
            return found
        routing = request.json.get("provider")
        if not is_object(routing) or routing.get("require_parameters") is not True:
            return Refusal(400, "the fake serves only who wants all parameters honoured")
        for message in request.json["messages"]:
            for detail in message.get("reasoning_details", []):
                if self._issued.get(detail.get("signature")) != detail.get("text"):
                    return Refusal(400, "Invalid signature in thinking block")
        last = next((one for one in reversed(request.json["messages"]) if one["role"] == "assistant"), None)
        if last is not None and last.get("tool_calls") and self._issued and "reasoning_details" not in last:
            return Refusal(400, "Expected thinking before tool use, but found none")
        return None

    def list_models(self) -> bytes:
        """The answer to a request for the models."""
        model = {
            "id": "anthropic/claude-sonnet-4.6",
            "context_length": 1_000_000,
            "top_provider": {"max_completion_tokens": 64_000},
            "supported_parameters": ["tools", "reasoning"],
        }
        return json.dumps({"data": [model, {"id": "vendor/plain", "supported_parameters": []}]}).encode()

    def render(self, reply: Reply, request: RecordedRequest, *, number: int) -> tuple[str, list[bytes]]:
        """Content type and pieces of the body of a 200 answer."""
        kind, pieces = OpenAIChatDialect.render(self, replace(reply, thinking=None), request, number=number)
        head: list[bytes] = [b": OPENROUTER PROCESSING\n\n"]
        if reply.thinking is not None and reply.raw is None:
            signature = hashlib.sha256(reply.thinking.encode()).hexdigest() * 8
            self._issued[signature] = reply.thinking
            half = len(reply.thinking) // 2
            for text, signed in ((reply.thinking[:half], None), (reply.thinking[half:], signature)):
                detail = {
                    "type": "reasoning.text",
                    "text": text,
                    "signature": signed,
                    "index": 0,
                    "format": "x",
                }
                delta = {"content": "", "reasoning": text, "reasoning_details": [detail]}
                chunk = {"id": "gen-1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
                head.append(f"data: {json.dumps(chunk)}\n\n".encode())
        return kind, [*head, *(_with_cost(piece) for piece in pieces)]


def _with_cost(piece: bytes) -> bytes:
    """A chunk whose usage says what it cost."""
    text = piece.decode()
    if '"usage":{' not in text:
        return piece
    value = json.loads(text.removeprefix("data: "))
    value["usage"]["cost"] = 0.00042
    return f"data: {json.dumps(value)}\n\n".encode()
