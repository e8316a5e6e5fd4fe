"""What OpenAI Responses refuses, as far as requests of ours can run into it.

Source: the API reference, the guides on reasoning and function calling, and errors in public reports, as of
2026-11. The sentences are our own where they aren't what a client goes by.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from remit.testing.fake_provider._openai_rules import ChatModel, Refusal, schema_fault
from remit.testing.fake_provider._shapes import is_array, is_object

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_ARGUMENTS = frozenset(
    {
        "background", "conversation", "include", "input", "instructions", "max_output_tokens",
        "metadata", "model", "parallel_tool_calls", "previous_response_id", "prompt_cache_key", "reasoning",
        "safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature", "text",
        "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
    }
)  # fmt: skip
_FIELDS: dict[str, frozenset[str]] = {
    "message": frozenset({"type", "role", "content", "id", "status", "phase"}),
    "function_call": frozenset({"type", "call_id", "name", "arguments", "id", "status"}),
    "function_call_output": frozenset({"type", "call_id", "output", "id", "status"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
}
_PARTS = {
    "user": ("input_text", "input_image"),
    "developer": ("input_text",),
    "system": ("input_text",),
    "assistant": ("output_text", "refusal"),
}
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_LEAST_OUTPUT_TOKENS = 16


class _WrongError(Exception):
    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.refusal = Refusal(400, message, param=param, code=code)


def check_responses_body(
    body: Mapping[str, Any],
    *,
    models: Mapping[str, ChatModel] | None,
    issued: Mapping[str, str],
    owners: Mapping[str, str],
    size_bytes: int,
) -> Refusal | None:
    """The first thing that is wrong with a request body, or None.

    Args:
        body: It.
        models: Those that exist; None: any name does.
        issued: The reasoning that this server encrypted: encrypted content to item id.
        owners: For the id of an item that was given out: the id of the reasoning that it belongs to.
        size_bytes: Of the body.
    """
    name = body.get("model")
    if not isinstance(name, str) or not name:
        return Refusal(400, "Missing required parameter: 'model'.", param="model")
    if models is not None and name not in models:
        text = f"The requested model '{name}' does not exist."
        return Refusal(400, text, param="model", code="model_not_found")
    try:
        _check_arguments(body)
        _check_input(body, issued, owners)
        _check_tools(body)
        if models is not None:
            _check_model(body, name, models[name], size_bytes)
    except _WrongError as error:
        return error.refusal
    return None


def _check_arguments(body: Mapping[str, Any]) -> None:
    for key in sorted(set(body) - _ARGUMENTS):
        raise _WrongError(f"Unknown parameter: '{key}'.", key, "unknown_parameter")
    for key, (low, high) in {"temperature": (0, 2), "top_p": (0, 1)}.items():
        value = body.get(key)
        if value is not None and (not isinstance(value, (int, float)) or not low <= value <= high):
            raise _WrongError(f"Invalid '{key}': expected a value between {low} and {high}.", key)
    bound = body.get("max_output_tokens")
    if bound is not None and (not isinstance(bound, int) or bound < _LEAST_OUTPUT_TOKENS):
        text = "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
        raise _WrongError(text, "max_output_tokens", "integer_below_min_value")
    key = body.get("prompt_cache_key")
    if key is not None and (not isinstance(key, str) or len(key) > 64):
        raise _WrongError("Invalid 'prompt_cache_key': string too long.", "prompt_cache_key")
    reasoning = body.get("reasoning", {})
    if not is_object(reasoning) or set(reasoning) - {"effort", "summary"}:
        raise _WrongError("Unknown parameter in 'reasoning'.", "reasoning", "unknown_parameter")
    if reasoning.get("effort") not in (None, *_EFFORTS):
        raise _WrongError(f"Invalid value: '{reasoning['effort']}'.", "reasoning.effort", "invalid_value")
    text = body.get("text", {})
    if not is_object(text) or text.get("verbosity") not in (None, "low", "medium", "high"):
        raise _WrongError("Invalid value for 'text.verbosity'.", "text.verbosity", "invalid_value")


def _check_input(body: Mapping[str, Any], issued: Mapping[str, str], owners: Mapping[str, str]) -> None:
    items = body.get("input")
    if isinstance(items, str):
        return
    if not is_array(items) or not items:
        raise _WrongError("Missing required parameter: 'input'.", "input", "missing_required_parameter")
    called: list[str] = []
    answered: list[str] = []
    thoughts: set[str] = set()
    for index, item in enumerate(items):
        where = f"input[{index}]"
        kind = _kind_of(item, where)
        match kind:
            case "message":
                _check_message(item, where)
            case "function_call":
                called.append(_check_call(item, where, called))
            case "function_call_output":
                answered.append(_check_output(item, where, called, answered))
            case _:
                follower = items[index + 1] if index + 1 < len(items) else None
                thoughts.add(_check_thought(item, where, follower, issued))
        owner = owners.get(str(item.get("id")))
        if owner is not None and owner not in thoughts:
            text = f"Item '{item['id']}' of type '{kind}' was provided without its required 'reasoning' item"
            raise _WrongError(f"{text}: '{owner}'.", "input")
    for call_id in called:
        if call_id not in answered:
            raise _WrongError(f"No tool output found for function call {call_id}.", "input")


def _kind_of(item: Any, where: str) -> str:
    if not is_object(item):
        raise _WrongError(f"Invalid type for '{where}': expected an object.", where, "invalid_type")
    kind = item.get("type", "message" if "role" in item else None)
    if kind not in _FIELDS:
        raise _WrongError(f"Invalid value: '{kind}'.", where, "invalid_value")
    for key in sorted(set(item) - _FIELDS[str(kind)]):
        raise _WrongError(f"Unknown parameter: '{where}.{key}'.", f"{where}.{key}", "unknown_parameter")
    return str(kind)


def _check_message(item: Mapping[str, Any], where: str) -> None:
    role, content = item.get("role"), item.get("content")
    if role not in _PARTS:
        raise _WrongError(f"Invalid value: '{role}'.", f"{where}.role", "invalid_value")
    if isinstance(content, str):
        return
    if not is_array(content):
        raise _WrongError(f"Invalid type for '{where}.content'.", f"{where}.content", "invalid_type")
    for part in content:
        kind = part.get("type") if is_object(part) else None
        if kind not in _PARTS[role]:
            text = f"Invalid value: '{kind}'. Supported values are: {', '.join(_PARTS[role])}."
            raise _WrongError(text, f"{where}.content", "invalid_value")
        if kind == "output_text" and not is_array(part.get("annotations", [])):
            raise _WrongError("Invalid type for 'annotations'.", f"{where}.content", "invalid_type")


def _check_call(item: Mapping[str, Any], where: str, called: list[str]) -> str:
    call_id, name = item.get("call_id"), item.get("name")
    if not isinstance(call_id, str) or not call_id or len(call_id) > 64:
        raise _WrongError(f"Invalid '{where}.call_id': expected 1 to 64 characters.", f"{where}.call_id")
    if call_id in called:
        raise _WrongError(f"Duplicate function call {call_id}.", f"{where}.call_id")
    if not isinstance(name, str) or not _NAME.match(name):
        raise _WrongError(f"Invalid '{where}.name': wrong pattern.", f"{where}.name")
    if not isinstance(item.get("arguments"), str):
        raise _WrongError(f"Invalid type for '{where}.arguments'.", f"{where}.arguments", "invalid_type")
    if not str(item.get("id", "fc_")).startswith("fc"):
        raise _WrongError(f"Invalid '{where}.id': expected an ID that begins with 'fc'.", f"{where}.id")
    return call_id


def _check_output(item: Mapping[str, Any], where: str, called: list[str], answered: list[str]) -> str:
    call_id = item.get("call_id")
    if call_id not in called or call_id in answered:
        text = f"No tool call found for function call output with call_id {call_id}."
        raise _WrongError(text, "input")
    if not isinstance(item.get("output"), (str, list)):
        raise _WrongError(f"Invalid type for '{where}.output'.", f"{where}.output", "invalid_type")
    return str(call_id)


def _check_thought(item: Mapping[str, Any], where: str, follower: Any, issued: Mapping[str, str]) -> str:
    item_id, sealed = item.get("id"), item.get("encrypted_content")
    if not isinstance(item_id, str) or not item_id.startswith("rs"):
        raise _WrongError(f"Invalid '{where}.id': expected an ID that begins with 'rs'.", f"{where}.id")
    if not is_array(item.get("summary")):
        text = f"Missing required parameter: '{where}.summary'."
        raise _WrongError(text, f"{where}.summary", "missing_required_parameter")
    if sealed is None:
        text = f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false."
        raise _WrongError(text, "input")
    if issued.get(sealed) != item_id:
        text = f"The encrypted content for item {item_id} could not be verified."
        raise _WrongError(text, None, "invalid_encrypted_content")
    output = is_object(follower) and (
        follower.get("type") in ("function_call", "reasoning") or follower.get("role") == "assistant"
    )
    if not output:
        text = f"Item '{item_id}' of type 'reasoning' was provided without its required following item."
        raise _WrongError(text, "input")
    return item_id


def _check_tools(body: Mapping[str, Any]) -> None:
    tools = body.get("tools")
    if tools is None:
        if body.get("tool_choice") not in (None, "auto", "none"):
            raise _WrongError("Tool choice is only allowed when 'tools' are specified.", "tool_choice")
        return
    if not is_array(tools):
        raise _WrongError("Invalid type for 'tools'.", "tools", "invalid_type")
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if not is_object(tool) or tool.get("type") != "function":
            raise _WrongError(f"Invalid value for '{where}.type'.", f"{where}.type", "invalid_value")
        for key in sorted(set(tool) - {"type", "name", "description", "parameters", "strict"}):
            raise _WrongError(f"Unknown parameter: '{where}.{key}'.", where, "unknown_parameter")
        if not _NAME.match(str(tool.get("name"))):
            raise _WrongError(f"Invalid '{where}.name': wrong pattern.", f"{where}.name")
        # Unlike Chat, this API is strict unless told otherwise.
        fault = schema_fault(tool.get("parameters"), strict=tool.get("strict", True) is not False)
        if fault is not None:
            text = f"Invalid schema for function '{tool['name']}': {fault}"
            raise _WrongError(text, f"{where}.parameters", "invalid_function_parameters")


def _check_model(body: Mapping[str, Any], name: str, model: ChatModel, size_bytes: int) -> None:
    effort = body.get("reasoning", {}).get("effort")
    if model.reasoning == "no" and effort is not None:
        text = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
        raise _WrongError(text, "reasoning.effort", "unsupported_parameter")
    if model.reasoning == "no" and "reasoning.encrypted_content" in body.get("include", ()):
        raise _WrongError("Encrypted content is not supported with this model.", "include")
    if effort == "none" and model.reasoning == "always":
        text = f"Unsupported value: 'none' is not supported with the '{name}' model."
        raise _WrongError(text, "reasoning.effort", "unsupported_value")
    reasons = {
        "no": False,
        "always": True,
        "on_by_default": effort != "none",
        "off_by_default": effort not in (None, "none"),
    }[model.reasoning]
    for key in ("temperature", "top_p"):
        if reasons and body.get(key) is not None:
            text = f"Unsupported parameter: '{key}' is not supported with this model."
            raise _WrongError(text, key, "unsupported_parameter")
    bound = body.get("max_output_tokens")
    if bound is not None and bound > model.max_output_tokens:
        text = (
            f"max_output_tokens is too large: {bound}. This model supports at most {model.max_output_tokens}."
        )
        raise _WrongError(text, "max_output_tokens")
    if size_bytes // 4 > model.window_tokens:
        text = "Your input exceeds the context window of this model. Please adjust your input and try again."
        raise _WrongError(text, "input", "context_length_exceeded")
