"""Gemini as the fake provider speaks it: how its answers look, what it signs, and what its cache holds."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.testing.fake_provider._cache import PrefixCache
from remit.testing.fake_provider._dialect import pieces_of
from remit.testing.fake_provider._gemini_rules import GeminiModel, check_gemini_body, fingerprint
from remit.testing.fake_provider._openai_rules import Refusal
from remit.testing.fake_provider._reply import RecordedRequest, Reply
from remit.testing.fake_provider._shapes import is_object

_BUDGET = GeminiModel(thinking="budget", signs=False, json_with_tools=False, least_cached_tokens=4_096)
_MODELS: dict[str, GeminiModel] = {
    "gemini-2.0-flash": GeminiModel(
        thinking="no", signs=False, json_with_tools=False, max_output_tokens=8_192, window_tokens=1_000_000
    ),
    "gemini-2.5-pro": _BUDGET,
    "gemini-2.5-flash": GeminiModel(thinking="budget", signs=False, json_with_tools=False, can_be_off=True),
    "gemini-3-pro-preview": GeminiModel(levels=("low", "high"), least_cached_tokens=4_096),
    "gemini-3.8-flash": GeminiModel(),
}
_PATH = re.compile(
    r"/(?:v1beta/|v1beta1/(?:projects/[^/]+/locations/[^/]+/)?publishers/google/)models(?:/(?P<model>[^/:?]+):(?P<call>generateContent|streamGenerateContent|countTokens))?"
    r"(?:\?(?P<query>.*))?\Z"
)
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


@dataclass(slots=True, kw_only=True)
class GeminiDialect:
    """How strict the fake is, and what it remembers."""

    api_key: str | None = "AIza-fake-0123456789abcdef"
    """The only key that is let in; None: none is needed."""
    models: Mapping[str, GeminiModel] | None = field(default_factory=lambda: dict(_MODELS))
    """The models that exist; None: any name does, with nothing known of it."""
    vertex: bool = False
    """Be the cloud's door: paths of its own, and a bearer token where a project is named."""
    call_ids: bool = True
    """Whether function calls get ids, as the newest models give them."""
    max_body_bytes: int = 20 * 1024 * 1024
    base_path: str = ""
    request_id_header: str = "x-request-id"
    _issued: dict[str, str] = field(default_factory=dict[str, str])
    """Parts that were signed here: signature to what it stands for."""
    cache: PrefixCache | None = field(default_factory=PrefixCache)
    """What it has read before; None: it caches nothing."""

    def refusal(self, request: RecordedRequest) -> Refusal | None:
        """Why the real one wouldn't take this request, or None."""
        found = _PATH.match(request.path)
        if found is None:
            return Refusal(404, "Not Found", type="NOT_FOUND")
        if self.vertex is not request.path.startswith("/v1beta1/"):
            return Refusal(404, "Not Found", type="NOT_FOUND")
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.vertex and "/projects/" in request.path:
            if bearer != self.api_key:
                return Refusal(401, "Request had invalid authentication credentials.")
        elif self.api_key is not None and request.headers.get("x-goog-api-key") != self.api_key:
            return Refusal(400, "API key not valid. Please pass a valid API key.", code="API_KEY_INVALID")
        if found["call"] is None:
            return None if request.method == "GET" else Refusal(405, "Method Not Allowed")
        name = found["model"]
        if self.models is not None and name not in self.models:
            text = f"models/{name} is not found for API version v1beta, or is not supported"
            return Refusal(404, text, type="NOT_FOUND")
        if len(request.body) > self.max_body_bytes:
            return Refusal(413, "Request payload size exceeds the limit.")
        if request.method != "POST" or not is_object(request.json):
            return Refusal(400, "Invalid JSON payload received.", type="INVALID_ARGUMENT")
        model = None if self.models is None else self.models[name]
        return check_gemini_body(request.json, model, issued=self._issued, size_bytes=len(request.body))

    def error_body(self, refusal: Refusal) -> bytes:
        """A refusal as the body of an error answer."""
        status = _STATUSES.get(refusal.status, refusal.type)
        error: dict[str, Any] = {"code": refusal.status, "message": refusal.message, "status": status}
        if refusal.code is not None:
            info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": refusal.code}
            error["details"] = [info]
        return json.dumps({"error": error}, indent=2).encode()

    def fault_body(self, reply: Reply, request: RecordedRequest) -> bytes:
        """The body of a scripted error status."""
        if isinstance(reply.body, str):
            return reply.body.encode()
        if reply.body is not None:
            return json.dumps(reply.body).encode()
        message = f"the fake answers {reply.status}"
        if reply.echo_key:
            message = f"{message} to the key {request.headers.get('x-goog-api-key')}"
        return self.error_body(Refusal(reply.status, message))

    def list_models(self) -> bytes:
        """The answer to `GET /v1beta/models`."""
        models = [
            {
                "name": f"models/{name}",
                "inputTokenLimit": model.window_tokens,
                "outputTokenLimit": model.max_output_tokens,
                "supportedGenerationMethods": ["generateContent", "countTokens"],
            }
            for name, model in sorted((self.models or {}).items())
        ]
        return json.dumps({"models": models}).encode()

    def render(self, reply: Reply, request: RecordedRequest, *, number: int) -> tuple[str, list[bytes]]:
        """Content type and pieces of the body of a 200 answer."""
        if reply.raw is not None:
            return reply.content_type or "text/event-stream", [reply.raw]
        parts = (
            [dict(part) for part in reply.blocks]
            if reply.blocks is not None
            else self._made(reply, request, number)
        )
        self._remember(parts)
        chunks = self._chunks(reply, request, parts, number)
        found = _PATH.match(request.path)
        if found is not None and found["call"] == "generateContent":
            return "application/json", [json.dumps(_joined(chunks, parts)).encode()]
        if found is not None and "alt=sse" not in (found["query"] or ""):
            return "application/json", [json.dumps(chunks).encode()]
        end = reply.line_end
        framed = [f"data: {json.dumps(chunk, ensure_ascii=False)}{end}{end}".encode() for chunk in chunks]
        return reply.content_type or "text/event-stream", [*framed, reply.tail]

    def _made(self, reply: Reply, request: RecordedRequest, number: int) -> list[dict[str, Any]]:
        """The parts of an answer; a model that signs signs its first call, else the end of its text."""
        known = (self.models or {}).get(request.model or "")
        signs = (known is not None and known.signs) or reply.thinking is not None
        parts: list[dict[str, Any]] = []
        if reply.thinking is not None:
            parts.append({"text": reply.thinking, "thought": True})
        if reply.text is not None:
            parts.append({"text": reply.text})
        for index, call in enumerate(reply.tool_calls):
            made = f"fc_{number:04d}x{index:02d}" if self.call_ids else None
            named = {"id": call.id or made} if call.id or made else {}
            args = json.loads(call.argument_text or "{}")
            part: dict[str, Any] = {"functionCall": {**named, "name": call.name, "args": args}}
            if signs and index == 0:
                part["thoughtSignature"] = _signature(part)
            parts.append({**part, **call.extra})
        if signs and not reply.tool_calls and parts:
            last: dict[str, Any] = {"text": ""}
            parts.append({**last, "thoughtSignature": _signature({**last, "of": reply.text})})
        return parts

    def _remember(self, parts: list[dict[str, Any]]) -> None:
        for part in parts:
            if "thoughtSignature" in part:
                self._issued[part["thoughtSignature"]] = fingerprint(part)

    def _chunks(
        self, reply: Reply, request: RecordedRequest, parts: list[dict[str, Any]], number: int
    ) -> list[dict[str, Any]]:
        envelope = {"modelVersion": request.model, "responseId": f"resp_fake{number:06d}"}
        usage = self._usage(reply, request, parts)
        groups = [[piece] for part in parts for piece in _streamed(part, reply.chunk_count)] or [[]]
        chunks: list[dict[str, Any]] = []
        for group in groups:
            candidate: dict[str, Any] = {"content": {"parts": group, "role": "model"}, "index": 0}
            chunk: dict[str, Any] = {"candidates": [candidate], **envelope}
            if usage is not None and reply.usage == "auto":
                first = {"promptTokenCount": usage["promptTokenCount"]}
                chunk["usageMetadata"] = {**first, "totalTokenCount": usage["promptTokenCount"]}
            chunks.append(chunk)
        last = chunks[-1]
        if reply.refusal is not None:
            chunks = [{"promptFeedback": {"blockReason": reply.refusal}, **envelope}]
            last = chunks[0]
        elif reply.finish != "" and reply.done:
            last["candidates"][0]["finishReason"] = reply.finish or "STOP"
        if usage is not None and reply.done:
            last["usageMetadata"] = usage
        return chunks

    def _usage(self, reply: Reply, request: RecordedRequest, parts: list[dict[str, Any]]) -> Any:
        if reply.usage != "auto":
            return reply.usage
        prompt, cached = self._count_input(request.json, request.model or "")
        thoughts = sum(len(part["text"]) // 4 for part in parts if part.get("thought"))
        said = max(1, sum(len(json.dumps(part)) for part in parts if not part.get("thought")) // 4)
        usage = {"promptTokenCount": prompt, "candidatesTokenCount": said}
        usage |= {"cachedContentTokenCount": cached} if cached else {}
        usage |= {"thoughtsTokenCount": thoughts} if thoughts else {}
        return {**usage, "totalTokenCount": prompt + said + thoughts}

    def _count_input(self, body: Mapping[str, Any], model: str) -> tuple[int, int]:
        """Tokens of the prompt, and those of them that an earlier request began with too."""
        parts = list(_prefix(body))
        tokens = sum(max(1, len(json.dumps(part)) // 4) for part in parts)
        read = 0 if self.cache is None else self.cache.read(model, parts)
        least = (self.models or {}).get(model, _BUDGET).least_cached_tokens
        return tokens, min(read, tokens) if read >= least else 0


def _prefix(body: Mapping[str, Any]) -> Iterator[Any]:
    yield body.get("systemInstruction")
    yield body.get("tools")
    yield from body["contents"]


def _signature(part: Mapping[str, Any]) -> str:
    seed = hashlib.sha256(json.dumps(part, sort_keys=True).encode()).digest()
    return base64.b64encode(seed * 15).decode()


def _streamed(part: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """A part in pieces; only text without a signature is split."""
    if not part.get("text") or "thoughtSignature" in part:
        return [part]
    return [{**part, "text": piece} for piece in pieces_of(part["text"], count)]


def _joined(chunks: list[dict[str, Any]], parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What `generateContent` answers in one piece."""
    whole = dict(chunks[-1])
    if "candidates" in whole:
        candidate = whole["candidates"][0]
        whole["candidates"] = [{**candidate, "content": {"parts": parts, "role": "model"}}]
    return whole
