"""Bedrock's Converse stream as the fake provider speaks it: binary frames, and what the API refuses."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from remit.testing.fake_provider._aws_account import FakeAccount
from remit.testing.fake_provider._dialect import pieces_of
from remit.testing.fake_provider._openai_rules import Refusal
from remit.testing.fake_provider._reply import RecordedRequest, Reply
from remit.testing.fake_provider._shapes import is_object
from remit.testing.fake_provider._strict_forms import schema_fault

_PATH = re.compile(r"/model/[^/]+/converse-stream\Z")
_TOP = frozenset(
    {"additionalModelRequestFields", "inferenceConfig", "messages", "outputConfig", "system", "toolConfig"}
)
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


@dataclass(slots=True, kw_only=True)
class BedrockDialect:
    """How strict the fake is, and what it signed."""

    api_key: str | None = "bedrock-api-key-fake0123456789"
    account: FakeAccount | None = None
    """Whose signature it takes in place of the key."""
    base_path: str = ""
    request_id_header: str = "x-amzn-requestid"
    _issued: dict[str, str] = field(default_factory=dict[str, str])

    def refusal(self, request: RecordedRequest) -> Refusal | None:
        """Why the real one wouldn't take this request, or None."""
        if _PATH.match(request.path) is None or request.method != "POST":
            return Refusal(404, "UnknownOperationException")
        if self.account is not None:
            fault = self.account.fault(request)
            if fault is not None:
                return Refusal(403, fault)
        elif request.headers.get("authorization") != f"Bearer {self.api_key}":
            return Refusal(403, "Authentication failed: Please make sure your API Key is valid.")
        body: Any = request.json
        if not is_object(body) or set(body) - _TOP:
            return Refusal(400, "The request body doesn't conform to the schema.")
        fault = self._fault(body)
        return None if fault is None else Refusal(400, fault)

    def _fault(self, body: dict[str, Any]) -> str | None:
        if (fault := _form_fault(body.get("outputConfig"))) is not None:
            return fault
        waiting: list[str] = []
        role = "assistant"
        for message in body["messages"]:
            if message["role"] == role or not message["content"]:
                return "A conversation must alternate between user and assistant roles."
            role = message["role"]
            content: list[dict[str, Any]] = message["content"]
            answered = [
                block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block
            ]
            if answered != waiting:
                return "The number of toolResult blocks doesn't match the toolUse blocks of the turn before."
            waiting = [block["toolUse"]["toolUseId"] for block in content if "toolUse" in block]
            if fault := self._block_fault(content):
                return fault
            if waiting and "toolConfig" not in body:
                return (
                    "The toolConfig field must be defined when using toolUse and toolResult content blocks."
                )
        return "Expected toolResult blocks." if waiting else None

    def _block_fault(self, content: list[dict[str, Any]]) -> str | None:
        for block in content:
            if "text" in block and not block["text"].strip():
                return "The text field in the ContentBlock object is blank."
            if "toolUse" in block and not _ID.match(block["toolUse"]["toolUseId"]):
                return "toolUseId doesn't match the pattern."
            thought = block.get("reasoningContent", {}).get("reasoningText")
            if thought is not None and self._issued.get(thought.get("signature", "")) != thought["text"]:
                return "Invalid `signature` in `thinking` block."
        return None

    def error_body(self, refusal: Refusal) -> bytes:
        """A refusal as the body of an error answer."""
        return json.dumps({"message": refusal.message}).encode()

    def fault_body(self, reply: Reply, request: RecordedRequest) -> bytes:
        """The body of a scripted error status."""
        if reply.body is not None:
            return reply.body.encode() if isinstance(reply.body, str) else json.dumps(reply.body).encode()
        return self.error_body(Refusal(reply.status, f"the fake answers {reply.status}"))

    def list_models(self) -> bytes:
        """Nothing: another service lists them."""
        return b"{}"

    def render(self, reply: Reply, request: RecordedRequest, *, number: int) -> tuple[str, list[bytes]]:
        """Content type and pieces of the body of a 200 answer."""
        kind = "application/vnd.amazon.eventstream"
        if reply.raw is not None:
            return kind, [reply.raw]
        events = list(self._events(reply, request, number))
        if not reply.done:
            events = events[:-2]
        return kind, [*(event_frame(name, value) for name, value in events), reply.tail]

    def _events(
        self, reply: Reply, request: RecordedRequest, number: int
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "messageStart", {"role": "assistant"}
        index = 0
        if reply.thinking is not None:
            signature = hashlib.sha256(reply.thinking.encode()).hexdigest() * 4
            self._issued[signature] = reply.thinking
            for part in ({"text": reply.thinking}, {"signature": signature}):
                yield "contentBlockDelta", {"contentBlockIndex": index, "delta": {"reasoningContent": part}}
            yield "contentBlockStop", {"contentBlockIndex": index}
            index += 1
        if reply.text is not None:
            for piece in pieces_of(reply.text, reply.chunk_count):
                yield "contentBlockDelta", {"contentBlockIndex": index, "delta": {"text": piece}}
            yield "contentBlockStop", {"contentBlockIndex": index}
            index += 1
        for place, call in enumerate(reply.tool_calls):
            made = f"tooluse_fake{number:04d}x{place:02d}" if call.id is None else call.id
            start = {"toolUse": {"toolUseId": made, "name": call.name}}
            yield "contentBlockStart", {"contentBlockIndex": index, "start": start}
            for piece in pieces_of(call.argument_text, reply.chunk_count):
                yield (
                    "contentBlockDelta",
                    {"contentBlockIndex": index, "delta": {"toolUse": {"input": piece}}},
                )
            yield "contentBlockStop", {"contentBlockIndex": index}
            index += 1
        word = reply.finish or ("tool_use" if reply.tool_calls else "end_turn")
        yield "messageStop", {"stopReason": word}
        sent = len(reply.text or "") + sum(len(call.argument_text) for call in reply.tool_calls)
        usage: Any = {"inputTokens": max(1, len(request.body) // 4), "outputTokens": max(1, sent // 4)}
        usage["totalTokens"] = sum(usage.values())
        yield (
            "metadata",
            {"usage": usage if reply.usage == "auto" else reply.usage, "metrics": {"latencyMs": 1}},
        )


def _form_fault(config: Any) -> str | None:
    """What is wrong with `outputConfig`, or None."""
    if config is None:
        return None
    try:
        form = config["textFormat"]
        definition = form["structure"]["jsonSchema"]
        fault = schema_fault(json.loads(definition["schema"]))
        known = (set(config), set(form), form["type"], set(definition) - {"name", "description", "schema"})
    except (KeyError, TypeError, ValueError):
        return "The value at outputConfig.textFormat doesn't conform to the schema."
    if known != ({"textFormat"}, {"type", "structure"}, "json_schema", set()):
        return "The value at outputConfig.textFormat doesn't conform to the schema."
    return None if fault is None else f"outputConfig.textFormat: output_config.format.{fault}"


def event_frame(name: str, value: Any, *, kind: str = "event") -> bytes:
    """One message of the stream."""
    key = ":event-type" if kind == "event" else ":exception-type"
    named = {key: name, ":content-type": "application/json", ":message-type": kind}
    headers = b"".join(
        struct.pack(">B", len(name)) + name.encode() + b"\x07" + struct.pack(">H", len(text)) + text.encode()
        for name, text in named.items()
    )
    payload = json.dumps(value).encode()
    prelude = struct.pack(">II", 12 + len(headers) + len(payload) + 4, len(headers))
    frame = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return frame + struct.pack(">I", zlib.crc32(frame))
