"""What Anthropic Messages refuses, as far as requests of ours can run into it.

Source: the API reference, the pages on extended thinking, tool use and prompt caching, and errors in public
reports, as of 2026-11. The sentences are our own where they aren't what a client goes by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from remit.testing.fake_provider._claude_models import ClaudeModel, WrongError, check_model
from remit.testing.fake_provider._openai_rules import Refusal
from remit.testing.fake_provider._shapes import is_array, is_object
from remit.testing.fake_provider._strict_forms import form_fault

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
_ARGUMENTS = frozenset(
    {
        "cache_control", "container", "context_management", "max_tokens", "messages", "metadata", "model",
        "output_config", "service_tier", "stop_sequences", "stream", "system", "temperature", "thinking",
        "tool_choice", "tools", "top_k", "top_p",
    }
)  # fmt: skip
_FIELDS: dict[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
}
_BLOCKS_OF_ROLE = {
    "user": frozenset({"text", "image", "tool_result"}),
    "assistant": frozenset({"text", "tool_use", "thinking", "redacted_thinking"}),
}
_MAX_BREAKPOINTS = 4


def check_claude_body(
    body: Mapping[str, Any],
    *,
    models: Mapping[str, ClaudeModel] | None,
    issued: Mapping[str, str],
    size_bytes: int,
) -> Refusal | None:
    """The first thing that is wrong with a request body, or None.

    Args:
        body: It.
        models: Those that exist; None: any name does.
        issued: The thinking that this server signed: signature to text.
        size_bytes: Of the body.
    """
    name = body.get("model")
    if not isinstance(name, str) or not name:
        return _refused("model: Field required")
    if models is not None and name not in models:
        return Refusal(404, f"model: {name}", type="not_found_error")
    try:
        _check_arguments(body)
        _check_messages(body, issued)
        _check_tools(body)
        _check_breakpoints(body)
        _check_output_config(body)
        if models is not None:
            check_model(body, models[name], size_bytes)
    except WrongError as error:
        return _refused(error.message)
    return None


def _refused(message: str) -> Refusal:
    return Refusal(400, message)


def _check_arguments(body: Mapping[str, Any]) -> None:
    for key in sorted(set(body) - _ARGUMENTS):
        raise WrongError(f"{key}: Extra inputs are not permitted")
    most = body.get("max_tokens")
    if most is None:
        raise WrongError("max_tokens: Field required")
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise WrongError("max_tokens: Input should be greater than or equal to 1")
    _check_sampling(body)
    _check_metadata(body)
    stops: list[Any] = body.get("stop_sequences") or []
    for text in stops:
        if not isinstance(text, str) or not text.strip():
            raise WrongError("stop_sequences: each stop sequence must contain non-whitespace")
    for block in _system_blocks(body):
        _check_text(block, "system")


def _check_sampling(body: Mapping[str, Any]) -> None:
    for key in ("temperature", "top_p"):
        value = body.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise WrongError(f"{key}: Input should be a valid number")
        if value is not None and not 0 <= value <= 1:
            raise WrongError(f"{key}: range: 0..1")
    if body.get("temperature") is not None and body.get("top_p") is not None:
        raise WrongError("`temperature` and `top_p` cannot both be specified for this model.")


def _check_metadata(body: Mapping[str, Any]) -> None:
    metadata = body.get("metadata", {})
    if not is_object(metadata) or set(metadata) - {"user_id"}:
        raise WrongError("metadata: Extra inputs are not permitted")
    if len(str(metadata.get("user_id") or "")) > 256:
        raise WrongError("metadata.user_id: String should have at most 256 characters")
    if body.get("service_tier", "auto") not in ("auto", "standard_only"):
        raise WrongError("service_tier: Input should be 'auto' or 'standard_only'")


def _system_blocks(body: Mapping[str, Any]) -> list[Any]:
    system = body.get("system")
    if system is None or isinstance(system, str):
        return []
    if not is_array(system):
        raise WrongError("system: Input should be a valid list")
    return system


def _check_text(block: Any, where: str) -> None:
    text = block.get("text") if is_object(block) else None
    if not isinstance(text, str):
        raise WrongError(f"{where}.text: Input should be a valid string")
    if not text:
        raise WrongError(f"{where}: text content blocks must be non-empty")
    if not text.strip():
        raise WrongError(f"{where}: text content blocks must contain non-whitespace text")


def _check_messages(body: Mapping[str, Any], issued: Mapping[str, str]) -> None:
    messages = body.get("messages")
    if not is_array(messages) or not messages:
        raise WrongError("messages: at least one message is required")
    if not is_object(messages[0]) or messages[0].get("role") != "user":
        raise WrongError('messages: first message must use the "user" role')
    seen: set[str] = set()
    turns: list[tuple[str, list[Any]]] = []
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        role, blocks = _blocks(message, where)
        for number, block in enumerate(blocks):
            _check_block(block, role, f"{where}.content.{number}", issued, seen)
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)  # the API joins turns of one role
        else:
            turns.append((role, list(blocks)))
    _check_pairs(turns)
    _check_last(turns)


def _blocks(message: Any, where: str) -> tuple[str, list[Any]]:
    if not is_object(message) or set(message) - {"role", "content"}:
        raise WrongError(f"{where}: Extra inputs are not permitted")
    role, content = message.get("role"), message.get("content")
    if role not in _BLOCKS_OF_ROLE:
        raise WrongError(f"{where}.role: Input should be 'user' or 'assistant'")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not is_array(content):
        raise WrongError(f"{where}.content: Input should be a valid list")
    if not content:
        raise WrongError(f"{where}: all messages must have non-empty content")
    return str(role), content


def _check_block(block: Any, role: str, where: str, issued: Mapping[str, str], seen: set[str]) -> None:
    kind = block.get("type") if is_object(block) else None
    if kind not in _BLOCKS_OF_ROLE[role]:
        raise WrongError(f"{where}.type: {kind!r} isn't allowed in a message of the role {role}")
    for key in sorted(set(block) - _FIELDS[str(kind)]):
        raise WrongError(f"{where}.{kind}.{key}: Extra inputs are not permitted")
    match kind:
        case "text":
            _check_text(block, where)
        case "image":
            _check_image(block, where)
        case "tool_use":
            _check_call(block, where, seen)
        case "tool_result":
            _check_result(block, where)
        case "thinking":
            if issued.get(str(block.get("signature"))) != block.get("thinking"):
                raise WrongError(f"{where}: Invalid `signature` in `thinking` block")
        case _:
            if str(block.get("data")) not in issued:
                raise WrongError(f"{where}: Invalid `data` in `redacted_thinking` block")


def _check_image(block: Mapping[str, Any], where: str) -> None:
    source = block.get("source")
    if not is_object(source) or source.get("type") not in ("base64", "url"):
        raise WrongError(f"{where}.image.source: Input should be a source of type base64 or url")
    if source["type"] == "url" and not str(source.get("url")).startswith("https://"):
        raise WrongError(f"{where}.image.source.url: only https addresses are taken")


def _check_call(block: Mapping[str, Any], where: str, seen: set[str]) -> None:
    call_id = block.get("id")
    if not isinstance(call_id, str) or not _ID.match(call_id):
        raise WrongError(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if call_id in seen:
        raise WrongError(f"{where}: `tool_use` ids must be unique")
    seen.add(call_id)
    if not _NAME.match(str(block.get("name"))):
        raise WrongError(f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if not is_object(block.get("input")):
        raise WrongError(f"{where}.tool_use.input: Input should be a valid dictionary")


def _check_result(block: Mapping[str, Any], where: str) -> None:
    content = block.get("content")
    if content is None or isinstance(content, str):
        return
    if not is_array(content):
        raise WrongError(f"{where}.tool_result.content: Input should be a valid list")
    for number, item in enumerate(content):
        if is_object(item) and item.get("type") == "text":
            _check_text(item, f"{where}.content.{number}")


def _check_pairs(turns: list[tuple[str, list[Any]]]) -> None:
    """Each call is answered in the next message, before anything else in it."""
    waiting: list[str] = []
    for number, (role, blocks) in enumerate(turns):
        if role == "assistant":
            if blocks[-1]["type"] in ("thinking", "redacted_thinking") and number + 1 < len(turns):
                raise WrongError(
                    f"messages.{number}: The final block in an assistant message cannot be `thinking`."
                )
            waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
            continue
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        for call_id in results:
            if call_id not in waiting:
                text = f"unexpected `tool_use_id` found in `tool_result` blocks: {call_id}"
                raise WrongError(f"messages.{number}.content: {text}")
        missing = [call_id for call_id in waiting if call_id not in results]
        if missing or any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            text = "`tool_use` ids were found without `tool_result` blocks immediately after"
            raise WrongError(f"messages.{number}: {text}: {', '.join(missing or waiting)}")
        if len(set(results)) != len(results):
            raise WrongError(f"messages.{number}: each tool_use must have a single result")
        waiting = []
    if waiting:
        raise WrongError(
            f"messages: `tool_use` ids were found without `tool_result` blocks: {', '.join(waiting)}"
        )


def _check_last(turns: list[tuple[str, list[Any]]]) -> None:
    role, blocks = turns[-1]
    if (
        role == "assistant"
        and blocks[-1]["type"] == "text"
        and blocks[-1]["text"] != blocks[-1]["text"].rstrip()
    ):
        raise WrongError("messages: final assistant content cannot end with trailing whitespace")


def _check_tools(body: Mapping[str, Any]) -> None:
    tools = body.get("tools")
    if tools is None:
        if "tool_choice" in body:
            raise WrongError("tool_choice: may only be specified while providing tools")
        if any(block["type"] in ("tool_use", "tool_result") for block in _all_blocks(body)):
            raise WrongError(
                "Requests which have `tool_use` or `tool_result` blocks in messages must define tools."
            )
        return
    if not is_array(tools):
        raise WrongError("tools: Input should be a valid list")
    names: list[str] = []
    for index, tool in enumerate(tools):
        where = f"tools.{index}.custom"
        if not is_object(tool) or set(tool) - {
            "name",
            "description",
            "input_schema",
            "cache_control",
            "type",
        }:
            raise WrongError(f"{where}: Extra inputs are not permitted")
        name, schema = tool.get("name"), tool.get("input_schema")
        if not isinstance(name, str) or not _NAME.match(name):
            raise WrongError(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if not is_object(schema) or schema.get("type") != "object":
            raise WrongError(f"{where}.input_schema.type: Input should be 'object'")
        names.append(name)
    if len(set(names)) != len(names):
        raise WrongError("tools: Tool names must be unique.")
    choice = body.get("tool_choice")
    if choice is not None and (
        not is_object(choice) or choice.get("type") not in ("auto", "any", "tool", "none")
    ):
        raise WrongError("tool_choice: Input should be auto, any, tool or none")
    if is_object(choice) and choice["type"] == "none" and set(choice) != {"type"}:
        raise WrongError("tool_choice.none: Extra inputs are not permitted")


def _all_blocks(body: Mapping[str, Any]) -> Iterable[Any]:
    for message in body["messages"]:
        if is_array(message["content"]):
            yield from message["content"]


def _check_breakpoints(body: Mapping[str, Any]) -> None:
    places: list[Any] = [*(body.get("tools") or []), *_system_blocks(body), *_all_blocks(body)]
    marked: list[Any] = [place["cache_control"] for place in places if "cache_control" in place]
    if len(marked) > _MAX_BREAKPOINTS:
        text = (
            f"A maximum of {_MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {len(marked)}."
        )
        raise WrongError(text)
    for mark in marked:
        if not is_object(mark) or mark.get("type") != "ephemeral":
            raise WrongError("cache_control.type: Input should be 'ephemeral'")


def _check_output_config(body: Mapping[str, Any]) -> None:
    config = body.get("output_config")
    if config is None:
        return
    if not is_object(config) or set(config) - {"effort", "format"}:
        raise WrongError("output_config: Extra inputs are not permitted")
    form = config.get("format")
    fault = None if form is None else form_fault(form)
    if fault is not None:
        raise WrongError(f"output_config.format.{fault}")
    if form is not None and body["messages"][-1]["role"] == "assistant":
        raise WrongError("output_config.format: cannot be combined with a prefilled assistant message")
