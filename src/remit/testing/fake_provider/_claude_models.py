"""What single models behind Anthropic Messages refuse, whatever the form of a request.

Source: the pages on models, extended thinking and structured outputs, as of 2026-11. The sentences are our
own where they aren't what a client goes by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from remit.testing.fake_provider._shapes import is_array, is_object

_EFFORTS = ("low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaudeModel:
    """What a model of the fake takes."""

    thinking: Literal["no", "budget", "adaptive", "adaptive_only", "always"] = "adaptive"
    """`adaptive_only`: takes no budget; `always`: can't be turned off either."""
    thinks_by_default: bool = False
    sampling: bool = True
    efforts: tuple[str, ...] = ()
    max_output_tokens: int = 64_000
    window_tokens: int = 200_000
    least_cached_tokens: int = 1_024
    """A shorter prefix isn't cached."""
    schemas: bool = True
    """Whether its replies can be held to a schema."""


@dataclass(frozen=True, slots=True)
class WrongError(Exception):
    """What is wrong with a request, in the words of the API."""

    message: str


def check_model(body: Mapping[str, Any], model: ClaudeModel, size_bytes: int) -> None:
    """Look at what the model would do with a body whose form is right.

    Raises:
        WrongError: It wouldn't take it.
    """
    most = body["max_tokens"]
    if most > model.max_output_tokens:
        limit = f"max_tokens: {most} > {model.max_output_tokens}"
        raise WrongError(f"{limit}, which is the maximum allowed number of output tokens for {body['model']}")
    _check_model_config(body, model)
    thinks = _check_thinking(body, model)
    for key in ("temperature", "top_p"):
        value = body.get(key)
        if value is None:
            continue
        if not model.sampling:
            raise WrongError(f"{key}: this model doesn't support {key}")
        if thinks and ((key == "temperature" and value != 1) or (key == "top_p" and value < 0.95)):
            raise WrongError(f"`{key}` may only be set to its default when thinking is enabled.")
    tokens = size_bytes // 4
    if tokens > model.window_tokens:
        raise WrongError(f"prompt is too long: {tokens} tokens > {model.window_tokens} maximum")


def _check_model_config(body: Mapping[str, Any], model: ClaudeModel) -> None:
    config: Mapping[str, Any] = body.get("output_config") or {}
    if config.get("format") is not None and not model.schemas:
        raise WrongError("output_config.format: this model does not support structured outputs")
    effort = config.get("effort")
    if effort is not None and (effort not in _EFFORTS or effort not in model.efforts):
        raise WrongError(f"output_config.effort: this model doesn't support the effort {effort!r}")


def _check_thinking(body: Mapping[str, Any], model: ClaudeModel) -> bool:
    """Whether the model thinks in this request."""
    config = body.get("thinking")
    if config is None:
        return model.thinks_by_default
    kind = config.get("type") if is_object(config) else None
    if kind == "enabled":
        _check_budget(body, config, model)
        return True
    if kind == "adaptive":
        if model.thinking in ("no", "budget"):
            raise WrongError("adaptive thinking is not supported on this model")
        return True
    if kind not in ("disabled", "between_tools") or (kind == "between_tools" and model.thinking == "budget"):
        raise WrongError(f"thinking.type: Input should be adaptive, enabled or disabled, not {kind!r}")
    if model.thinking == "always":
        raise WrongError("thinking.type: this model can't have its thinking disabled")
    return False


def _check_budget(body: Mapping[str, Any], config: Mapping[str, Any], model: ClaudeModel) -> None:
    if model.thinking not in ("budget", "adaptive"):
        raise WrongError("thinking.type.enabled: use adaptive thinking on this model")
    budget = config.get("budget_tokens")
    if not isinstance(budget, int) or budget < 1_024:
        raise WrongError("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    if budget >= body["max_tokens"]:
        raise WrongError("`max_tokens` must be greater than `thinking.budget_tokens`.")
    assistants = [
        m["content"] for m in body["messages"] if m["role"] == "assistant" and is_array(m["content"])
    ]
    if not assistants:
        return
    kinds = [block["type"] for block in assistants[-1]]
    if "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking"):
        raise WrongError(
            f"Expected `thinking` or `redacted_thinking`, but found `{kinds[0]}`. When `thinking` is "
            "enabled, a final `assistant` message must start with a thinking block."
        )
