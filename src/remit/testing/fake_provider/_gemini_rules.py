"""What the Gemini API refuses, as far as requests of ours can run into it.

Source: the API reference, the pages on function calling, thinking and thought signatures, and errors in
public reports, as of 2026-11. The sentences are our own where they aren't what a client goes by.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from remit.testing.fake_provider._openai_rules import Refusal
from remit.testing.fake_provider._shapes import is_array, is_object

FOREIGN_SIGNATURES = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}\Z")
_TOP = frozenset(
    {
        "cachedContent", "contents", "generationConfig", "labels", "safetySettings", "serviceTier",
        "systemInstruction", "toolConfig", "tools",
    }
)  # fmt: skip
_CONFIG = frozenset(
    {
        "candidateCount", "frequencyPenalty", "maxOutputTokens", "mediaResolution", "presencePenalty",
        "responseJsonSchema", "responseMimeType", "responseModalities", "responseSchema", "seed",
        "stopSequences", "temperature", "thinkingConfig", "topK", "topP",
    }
)  # fmt: skip
_DATA = ("text", "functionCall", "functionResponse", "inlineData", "fileData")
_PART = frozenset({*_DATA, "thought", "thoughtSignature", "partMetadata"})
_SCHEMA_WORDS = frozenset(
    {
        "$anchor", "$defs", "$id", "$ref", "additionalProperties", "anyOf", "description", "enum", "format",
        "items", "maxItems", "maximum", "minItems", "minimum", "oneOf", "prefixItems", "properties",
        "propertyOrdering", "required", "title", "type",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiModel:
    """What a model of the fake takes."""

    thinking: Literal["no", "budget", "level"] = "level"
    levels: tuple[str, ...] = ("low", "medium", "high")
    can_be_off: bool = False
    """Whether a budget of 0 turns thinking off."""
    signs: bool = True
    """Whether it signs its calls, and wants the signatures of the turn under way back."""
    json_with_tools: bool = True
    """Whether a JSON reply may be asked for beside function tools."""
    max_output_tokens: int = 65_536
    window_tokens: int = 1_048_576
    least_cached_tokens: int = 1_024
    """A shorter prefix isn't found in the cache."""


class _WrongError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(400, message, type="INVALID_ARGUMENT")


def check_gemini_body(
    body: Mapping[str, Any], model: GeminiModel | None, *, issued: Mapping[str, str], size_bytes: int
) -> Refusal | None:
    """The first thing that is wrong with a request body, or None.

    Args:
        body: It.
        model: What the model takes; None: nothing is known of it.
        issued: What was signed here: signature to `fingerprint` of the part.
        size_bytes: Of the body.
    """
    try:
        _check_names(body, _TOP, "")
        _check_config(body.get("generationConfig") or {}, model, with_tools=bool(body.get("tools")))
        _check_tools(body)
        _check_contents(body, model, issued)
        if model is not None and size_bytes // 4 > model.window_tokens:
            raise _WrongError(
                f"The input token count ({size_bytes // 4}) exceeds the maximum number of tokens allowed "
                f"({model.window_tokens})."
            )
    except _WrongError as error:
        return error.refusal
    return None


def fingerprint(part: Mapping[str, Any]) -> str:
    """What a signature stands for: the part without it and without ids."""
    call = part.get("functionCall")
    if is_object(call):
        return json.dumps([call.get("name"), call.get("args") or {}], sort_keys=True)
    return json.dumps([part.get("text", ""), bool(part.get("thought"))])


def _check_names(value: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for name in sorted(set(value) - known):
        place = f" at '{where}'" if where else ""
        raise _WrongError(f'Invalid JSON payload received. Unknown name "{name}"{place}: Cannot find field.')


def _check_config(config: Any, model: GeminiModel | None, *, with_tools: bool) -> None:
    if not is_object(config):
        raise _WrongError("Invalid value at 'generation_config'.")
    _check_names(config, _CONFIG, "generation_config")
    for name, (low, high) in {"temperature": (0, 2), "topP": (0, 1)}.items():
        value = config.get(name)
        if value is not None and (not isinstance(value, (int, float)) or not low <= value <= high):
            raise _WrongError(f"{name} must be in the range [{low}, {high}].")
    bound = config.get("maxOutputTokens")
    most = model.max_output_tokens if model is not None else 2**31
    if bound is not None and (not isinstance(bound, int) or not 1 <= bound <= most):
        raise _WrongError(
            f"Unable to submit request because it has a maxOutputTokens value of {bound} but the supported "
            f"range is from 1 (inclusive) to {most + 1} (exclusive)."
        )
    _check_thinking(config.get("thinkingConfig"), model)
    if "responseJsonSchema" in config and config.get("responseMimeType") != "application/json":
        raise _WrongError("response_json_schema needs response_mime_type application/json.")
    wants_json = config.get("responseMimeType") == "application/json"
    if wants_json and with_tools and model is not None and not model.json_with_tools:
        raise _WrongError("Function calling with a response mime type: 'application/json' is unsupported")


def _check_thinking(config: Any, model: GeminiModel | None) -> None:
    if config is None or model is None:
        return
    if not is_object(config):
        raise _WrongError("Invalid value at 'generation_config.thinking_config'.")
    _check_names(
        config,
        frozenset({"includeThoughts", "thinkingBudget", "thinkingLevel"}),
        "generation_config.thinking_config",
    )
    budget, level = config.get("thinkingBudget"), config.get("thinkingLevel")
    if model.thinking == "no":
        raise _WrongError("Thinking is not enabled for this model.")
    if budget is not None and level is not None:
        raise _WrongError("You can only set one of thinking budget and thinking level.")
    if budget == 0 and not model.can_be_off:
        raise _WrongError("Budget 0 is invalid. This model only works in thinking mode.")
    if level is not None and (model.thinking != "level" or str(level).lower() not in model.levels):
        raise _WrongError(f"Thinking level {level} is not supported for this model.")


def _check_tools(body: Mapping[str, Any]) -> None:
    tools: Any = body.get("tools", [])
    if not is_array(tools):
        raise _WrongError("Invalid value at 'tools'.")
    names: list[str] = []
    for tool in tools:
        declarations: list[dict[str, Any]] = tool.get("functionDeclarations", []) if is_object(tool) else []
        for declaration in declarations:
            name = declaration.get("name")
            if not isinstance(name, str) or not _NAME.match(name):
                raise _WrongError("Invalid function name. Must start with a letter or an underscore.")
            if name in names:
                raise _WrongError(f"Duplicate function declaration found: {name}")
            names.append(name)
            if "parameters" in declaration and "parametersJsonSchema" in declaration:
                raise _WrongError("Only one of parameters and parameters_json_schema may be set.")
            _check_schema(declaration.get("parametersJsonSchema", {}))
    choice: dict[str, Any] = body.get("toolConfig") or {}
    mode: Any = choice.get("functionCallingConfig", {}).get("mode")
    if mode not in (None, "AUTO", "ANY", "NONE", "VALIDATED"):
        raise _WrongError(f"Invalid value at 'tool_config.function_calling_config.mode': {mode}")
    if mode not in (None, "NONE") and not names:
        raise _WrongError("Function calling config is set without function_declarations.")


def _check_schema(schema: Any) -> None:
    if not is_object(schema):
        return
    for word in sorted(set(schema) - _SCHEMA_WORDS):
        raise _WrongError(f"Unknown keyword in a schema: {word}")
    properties = schema.get("properties", {})
    for inner in (*properties.values(), schema.get("items"), *schema.get("anyOf", [])):
        _check_schema(inner)


def _check_contents(body: Mapping[str, Any], model: GeminiModel | None, issued: Mapping[str, str]) -> None:
    contents = body.get("contents")
    if not is_array(contents) or not contents:
        raise _WrongError("* GenerateContentRequest.contents: contents is not specified")
    for number, content in enumerate(contents):
        _check_content(content, f"contents[{number}]", issued)
    waiting: list[dict[str, Any]] = []
    before = ""
    for content in contents:
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        results = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if results or waiting:
            _check_results(results, waiting, mixed=len(results) != len(content["parts"]))
        if calls and before not in ("user", "results"):
            raise _WrongError(
                "Please ensure that function call turn comes immediately after a user turn or after a "
                "function response turn."
            )
        waiting = calls
        before = "results" if results else "user" if content["role"] == "user" else "model"
    if waiting:
        raise _WrongError("A function call turn must be followed by its function responses.")
    if contents[0]["role"] != "user":
        raise _WrongError("Please ensure that the contents begin with a user turn.")
    if model is not None and model.signs:
        _check_turn(contents)


def _check_content(content: Any, where: str, issued: Mapping[str, str]) -> None:
    if not is_object(content) or content.get("role") not in ("user", "model"):
        raise _WrongError("Please use a valid role: user, model.")
    parts = content.get("parts")
    if not is_array(parts) or not parts:
        raise _WrongError(f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.")
    for number, part in enumerate(parts):
        place = f"{where}.parts[{number}]"
        if not is_object(part):
            raise _WrongError(f"Invalid value at '{place}'.")
        _check_names(part, _PART, place)
        if sum(key in part for key in _DATA) != 1:
            raise _WrongError(
                f"* GenerateContentRequest.{place}.data: required oneof field 'data' must have one"
            )
        if part.get("text") == "" and "thoughtSignature" not in part:
            raise _WrongError(f"{place}: text must not be empty.")
        for kind, field in (("functionCall", "args"), ("functionResponse", "response")):
            if kind in part and not is_object(part[kind].get(field, {})):
                raise _WrongError(f"Invalid value at '{place}.{kind}.{field}' (Struct).")
        _check_signature(part, issued)


def _check_signature(part: Mapping[str, Any], issued: Mapping[str, str]) -> None:
    signature = part.get("thoughtSignature")
    if signature is None or signature in FOREIGN_SIGNATURES:
        return
    try:
        base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise _WrongError(
            "Invalid value at 'thought_signature' (TYPE_BYTES), Base64 decoding failed."
        ) from None
    if issued.get(signature) != fingerprint(part):
        raise _WrongError("Thought signature is not valid.")


def _check_results(results: list[dict[str, Any]], calls: list[dict[str, Any]], *, mixed: bool) -> None:
    if len(results) != len(calls) or mixed:
        raise _WrongError(
            "Please ensure that the number of function response parts is equal to the number of function "
            "call parts of the function call turn."
        )
    for call, result in zip(calls, results, strict=True):
        if call.get("name") != result.get("name") or call.get("id") != result.get("id"):
            raise _WrongError("A function response doesn't match its function call by name and id.")


def _check_turn(contents: list[Any]) -> None:
    """Of the turn under way, each step's first call brings its signature."""
    begins = [
        number
        for number, content in enumerate(contents)
        if content["role"] == "user" and not any("functionResponse" in part for part in content["parts"])
    ]
    for content in contents[begins[-1] if begins else 0 :]:
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and "thoughtSignature" not in calls[0]:
            name = calls[0]["functionCall"].get("name")
            raise _WrongError(
                f"Function call is missing a thought_signature in functionCall parts: {name}. This is "
                "required for tools to work correctly."
            )
