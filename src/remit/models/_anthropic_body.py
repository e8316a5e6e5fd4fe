"""The last touch to a request body before it goes to Anthropic.

The API refuses some of what it gave itself: texts of nothing but white space, ids of other providers'
forms. And it caches only up to marks that are asked for.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from remit.models._wire import is_array, is_object

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_BREAKPOINT = {"type": "ephemeral"}
_MARKED_MESSAGES = 2
"""The last two of the user: what this request writes to the cache, and what the one before it wrote."""
_CACHEABLE = frozenset({"text", "image", "tool_result", "tool_use"})
_NOTHING = "(empty)"


def finish_body(body: dict[str, Any]) -> dict[str, Any]:
    """The body in the form that the API takes, with its cache breakpoints; changes it in place."""
    body["messages"] = [message for message in body["messages"] if _tidy(message)]
    _mark(body)
    _keep_thinking_legal(body)
    return body


def safe_call_id(call_id: str) -> str:
    """A tool call id of any provider in a form that the API takes; always the same for the same id."""
    if _ID.match(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode(errors='replace')).hexdigest()[:32]}"


def _tidy(message: dict[str, Any]) -> bool:
    """Bring a message's blocks into form; False when nothing is left of it."""
    content = message["content"]
    if not is_array(content):
        return True
    kept: list[Any] = []
    for block in content:
        kind = block["type"]
        if kind == "tool_use":
            block["id"] = safe_call_id(block["id"])
        elif kind == "tool_result":
            block["tool_use_id"] = safe_call_id(block["tool_use_id"])
            _tidy_result(block)
        elif kind == "text" and not block["text"].strip():
            continue
        kept.append(block)
    if not kept and message["role"] == "user":
        kept = [{"type": "text", "text": _NOTHING}]
    message["content"] = kept
    return bool(kept)


def _tidy_result(block: dict[str, Any]) -> None:
    content = block.get("content")
    if is_array(content):
        content = [item for item in content if item.get("type") != "text" or item["text"].strip()]
        block["content"] = content or ""


def _mark(body: dict[str, Any]) -> None:
    """Breakpoints at the end of what stays the same: tools, system, the last two messages of the user."""
    system = body.get("system")
    if isinstance(system, str) and system.strip():
        body["system"] = [{"type": "text", "text": system, "cache_control": _BREAKPOINT}]
    tools = body.get("tools")
    if is_array(tools) and tools:
        tools[-1] = {**tools[-1], "cache_control": _BREAKPOINT}
    users = [message for message in body["messages"] if message["role"] == "user"]
    for message in users[-_MARKED_MESSAGES:]:
        _mark_last_block(message["content"])


def _mark_last_block(content: Any) -> None:
    if not is_array(content):
        return
    for position in range(len(content) - 1, -1, -1):
        if content[position]["type"] in _CACHEABLE:
            content[position] = {**content[position], "cache_control": _BREAKPOINT}
            return


def _keep_thinking_legal(body: dict[str, Any]) -> None:
    """Leave out a thinking budget where the tool loop under way was begun without thinking.

    With a budget, the API refuses a last assistant message that asks for tools and doesn't begin with its
    thinking; one that another provider gave has none to begin with.
    """
    thinking = body.get("thinking")
    if not is_object(thinking) or thinking.get("type") != "enabled":
        return
    assistants = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
    if not assistants:
        return
    kinds = [block["type"] for block in assistants[-1]]
    if "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking"):
        del body["thinking"]
