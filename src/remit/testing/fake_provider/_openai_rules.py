"""What OpenAI Chat Completions refuses, as far as requests of ours can run into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from remit.testing.fake_provider._shapes import is_array, is_object

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_ARGUMENTS = frozenset(
    {
        "frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "messages",
        "metadata", "modalities", "model", "n", "parallel_tool_calls", "prediction", "presence_penalty",
        "prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "response_format",
        "safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options",
        "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity",
    }
)  # fmt: skip
_RANGES = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}
_SAMPLING = {"temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModel:
    """What a model of the fake takes."""

    reasoning: Literal["no", "always", "on_by_default", "off_by_default"] = "no"
    max_output_tokens: int = 16_384
    window_tokens: int = 128_000
    tools_with_effort: bool = True
    """Whether function tools and a reasoning effort may stand together."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    type: str = "invalid_request_error"


def check_body(
    body: Mapping[str, Any], *, models: Mapping[str, ChatModel] | None, size_bytes: int
) -> Refusal | None:
    """The first thing that is wrong with a request body, or None."""
    name = body.get("model")
    if not isinstance(name, str) or not name:
        return Refusal(400, "you must provide a model parameter")
    if models is not None and name not in models:
        message = f"The model `{name}` does not exist or you do not have access to it."
        return Refusal(404, message, code="model_not_found")
    unknown = sorted(set(body) - _ARGUMENTS) if models is not None else []
    if unknown:
        return Refusal(400, f"Unrecognized request argument supplied: {unknown[0]}")
    for check in (_check_messages, _check_tools, _check_numbers, _check_stream):
        refusal = check(body)
        if refusal is not None:
            return refusal
    if models is None:
        return None
    return _check_model(body, name, models[name]) or _check_size(models[name], size_bytes)


def _wrong(param: str, message: str, code: str | None = "invalid_value") -> Refusal:
    return Refusal(400, message, param=param, code=code)


def _check_messages(body: Mapping[str, Any]) -> Refusal | None:
    messages = body.get("messages")
    if not is_array(messages):
        return _wrong("messages", "Missing required parameter: 'messages'.", "missing_required_parameter")
    if not messages:
        return _wrong("messages", "Invalid 'messages': empty array.", "empty_array")
    waiting: list[str] = []
    for index, message in enumerate(messages):
        where = f"messages.[{index}]"
        refusal = _check_message(message, where) or _check_order(message, where, waiting)
        if refusal is not None:
            return refusal
    if waiting:
        return _unanswered(f"messages.[{len(messages)}]", waiting)
    return None


def _check_message(message: Any, where: str) -> Refusal | None:
    if not is_object(message):
        return _wrong(where, f"Invalid type for '{where}': expected an object.", "invalid_type")
    role = message.get("role")
    if role not in _ROLES:
        return _wrong(f"{where}.role", f"Invalid value: '{role}'. Supported values are: {', '.join(_ROLES)}.")
    calls = message.get("tool_calls")
    if calls is not None and (role != "assistant" or not is_array(calls) or not calls):
        return _wrong(f"{where}.tool_calls", f"Invalid '{where}.tool_calls': empty array or wrong role.")
    for number, call in enumerate(calls or []):
        refusal = _check_call(call, f"{where}.tool_calls[{number}]")
        if refusal is not None:
            return refusal
    if role == "assistant" and message.get("content") is None and (calls or message.get("refusal")):
        return None
    return _check_content(message.get("content"), where)


def _check_content(content: Any, where: str) -> Refusal | None:
    param = f"{where}.content"
    if isinstance(content, str):
        return None
    if not is_array(content):
        return _wrong(param, f"Invalid value for 'content': expected a string, got {_kind(content)}.", None)
    if not content:
        return _wrong(param, f"Invalid '{param}': empty array.", "empty_array")
    for part in content:
        if not is_object(part) or part.get("type") not in ("text", "image_url", "refusal"):
            return _wrong(param, f"Invalid content part in '{param}'.")
    return None


def _check_call(call: Any, where: str) -> Refusal | None:
    if not is_object(call):
        return _wrong(where, f"Invalid type for '{where}': expected an object.", "invalid_type")
    identifier, function = call.get("id"), call.get("function")
    if not isinstance(identifier, str) or not identifier or len(identifier) > 40:
        return _wrong(f"{where}.id", f"Invalid '{where}.id': expected a string of 1 to 40 characters.")
    if call.get("type") != "function" or not is_object(function):
        return _wrong(f"{where}.type", f"Invalid value for '{where}.type'.")
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not _NAME.match(name):
        return _wrong(f"{where}.function.name", f"Invalid '{where}.function.name': wrong pattern.")
    if not isinstance(arguments, str):
        return _wrong(f"{where}.function.arguments", f"Invalid type for '{where}.function.arguments'.")
    return None


def _check_order(message: Mapping[str, Any], where: str, waiting: list[str]) -> Refusal | None:
    """Each call has exactly one answer, right after the message that asked; `waiting` is kept here."""
    if message["role"] == "tool":
        identifier = message.get("tool_call_id")
        if not isinstance(identifier, str):
            return _wrong(f"{where}.tool_call_id", f"Missing required parameter: '{where}.tool_call_id'.")
        if identifier not in waiting:
            text = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
            return _wrong(f"{where}.role", f"Invalid parameter: {text}", None)
        waiting.remove(identifier)
        return None
    if waiting:
        return _unanswered(f"{where}.role", waiting)
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    identifiers = [str(call["id"]) for call in calls]
    if len(set(identifiers)) != len(identifiers):
        return _wrong(f"{where}.tool_calls", f"Duplicate value for 'tool_call_id' in '{where}'.")
    waiting.extend(identifiers)
    return None


def _unanswered(param: str, waiting: list[str]) -> Refusal:
    text = (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}"
    )
    return _wrong(param, text, None)


def _check_tools(body: Mapping[str, Any]) -> Refusal | None:
    tools = body.get("tools")
    if tools is None:
        for argument in ("tool_choice", "parallel_tool_calls"):
            if argument in body:
                return _wrong(argument, f"'{argument}' is only allowed when 'tools' are specified.", None)
        return None
    if not is_array(tools) or not tools:
        return _wrong("tools", "Invalid 'tools': empty array.", "empty_array")
    if len(tools) > 128:
        return _wrong("tools", "Invalid 'tools': array too long.", "array_above_max_length")
    for index, tool in enumerate(tools):
        refusal = _check_tool(tool, f"tools[{index}]")
        if refusal is not None:
            return refusal
    return None


def _check_tool(tool: Any, where: str) -> Refusal | None:
    function = tool.get("function") if is_object(tool) and tool.get("type") == "function" else None
    if not is_object(function):
        return _wrong(f"{where}.type", f"Invalid value: '{where}' is no function tool.")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        return _wrong(f"{where}.function.name", f"Invalid '{where}.function.name': wrong pattern.")
    schema = function.get("parameters")
    if schema is None:
        return None
    fault = schema_fault(schema, strict=bool(function.get("strict")))
    if fault is None:
        return None
    message = f"Invalid schema for function '{name}': {fault}"
    return _wrong(f"{where}.function.parameters", message, "invalid_function_parameters")


def schema_fault(schema: Any, *, strict: bool) -> str | None:
    """Why a tool's parameters are refused, or None."""
    if not is_object(schema):
        return f"{_kind(schema)} is not of type 'object'."
    if schema.get("type") != "object":
        return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: {schema.get('type')!r}'."
    return _property_fault(schema, "", strict)


def _property_fault(schema: Mapping[str, Any], where: str, strict: bool) -> str | None:
    kind = schema.get("type")
    if kind == "array" and "items" not in schema:
        return f"In context=({where}), array schema missing items."
    if kind is not None and not is_array(kind) and kind not in _JSON_TYPES:
        return f"In context=({where}), {kind!r} is not valid under any of the given schemas."
    properties = schema.get("properties", {})
    if not is_object(properties):
        return f"In context=({where}), 'properties' is not an object."
    if strict and kind == "object":
        if schema.get("additionalProperties") is not False:
            return f"In context=({where}), 'additionalProperties' is required to be supplied and to be false."
        if set(schema.get("required", ())) != set(properties):
            return f"In context=({where}), 'required' must include every key in properties."
    for key, child in {**properties, "items": schema.get("items")}.items():
        fault = _property_fault(child, f"{where}.{key}", strict) if is_object(child) else None
        if fault is not None:
            return fault
    return None


_JSON_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")


def _check_numbers(body: Mapping[str, Any]) -> Refusal | None:
    ranges = {
        "temperature": (0, 2),
        "top_p": (0, 1),
        "presence_penalty": (-2, 2),
        "frequency_penalty": (-2, 2),
    }
    for name, (low, high) in ranges.items():
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return _wrong(name, f"Invalid type for '{name}': expected a decimal, got {_kind(value)}.")
        if not low <= value <= high:
            code = "decimal_below_min_value" if value < low else "decimal_above_max_value"
            return _wrong(name, f"Invalid '{name}': expected a value between {low} and {high}.", code)
    for name in ("max_tokens", "max_completion_tokens", "n"):
        value = body.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            return _wrong(name, f"Invalid '{name}': integer below minimum value.", "integer_below_min_value")
    if "max_tokens" in body and "max_completion_tokens" in body:
        text = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        return _wrong("max_tokens", text, "invalid_parameter_combination")
    stop = body.get("stop")
    if is_array(stop) and len(stop) > 4:
        return _wrong("stop", "Invalid 'stop': array too long.", "array_above_max_length")
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in _EFFORTS:
        return _wrong("reasoning_effort", f"Invalid value: '{effort}'.")
    key = body.get("prompt_cache_key")
    if key is not None and (not isinstance(key, str) or len(key) > 64):
        return _wrong("prompt_cache_key", "Invalid 'prompt_cache_key': string too long.")
    return None


def _check_stream(body: Mapping[str, Any]) -> Refusal | None:
    options = body.get("stream_options")
    if options is not None and not body.get("stream"):
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        return _wrong("stream_options", text, None)
    return None


def _check_model(body: Mapping[str, Any], name: str, model: ChatModel) -> Refusal | None:
    effort = body.get("reasoning_effort")
    if model.reasoning == "no" and effort is not None:
        return Refusal(400, "Unrecognized request argument supplied: reasoning_effort")
    if effort == "none" and model.reasoning == "always":
        text = "Unsupported value: 'reasoning_effort' does not support 'none' with this model."
        return _wrong("reasoning_effort", text, "unsupported_value")
    if model.reasoning != "no" and "max_tokens" in body:
        text = (
            "Unsupported parameter: 'max_tokens' isn't supported here. Use 'max_completion_tokens' instead."
        )
        return _wrong("max_tokens", text, "unsupported_parameter")
    refusal = _check_effort_with_tools(body, name, model) or _check_sampling(body, model)
    if refusal is not None:
        return refusal
    asked = body.get("max_completion_tokens") or body.get("max_tokens")
    if asked is not None and asked > model.max_output_tokens:
        text = f"max_tokens is too large: {asked}. This model supports at most {model.max_output_tokens}."
        return _wrong("max_tokens", text)
    return None


def _check_effort_with_tools(body: Mapping[str, Any], name: str, model: ChatModel) -> Refusal | None:
    if model.tools_with_effort or not body.get("tools"):
        return None
    effort = body.get("reasoning_effort")
    reasons = effort not in (None, "none") or (effort is None and model.reasoning == "on_by_default")
    if not reasons:
        return None
    text = f"Function tools with reasoning_effort are not supported for {name} in /v1/chat/completions."
    return _wrong("reasoning_effort", text, None)


def _check_sampling(body: Mapping[str, Any], model: ChatModel) -> Refusal | None:
    effort = body.get("reasoning_effort")
    reasons = {
        "no": False,
        "always": True,
        "on_by_default": effort != "none",
        "off_by_default": effort not in (None, "none"),
    }[model.reasoning]
    for name, default in _SAMPLING.items():
        if reasons and name in body and body[name] != default:
            text = f"Unsupported value: '{name}' does not support {body[name]} with this model."
            return _wrong(name, text, "unsupported_value")
    return None


def _check_size(model: ChatModel, size_bytes: int) -> Refusal | None:
    tokens = size_bytes // 4
    if tokens <= model.window_tokens:
        return None
    text = (
        f"This model's maximum context length is {model.window_tokens} tokens. However, your messages "
        f"resulted in {tokens} tokens. Please reduce the length of the messages."
    )
    return _wrong("messages", text, "context_length_exceeded")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {"str": "a string", "list": "an array", "dict": "an object", "bool": "a boolean"}
    return names.get(value.__class__.__name__, "a number")
