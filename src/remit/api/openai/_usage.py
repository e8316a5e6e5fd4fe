"""A run's bill in OpenAI's words."""

from __future__ import annotations

from typing import Any

from remit.contract import RunView


def chat_usage(run: RunView) -> dict[str, Any] | None:
    """As Chat Completions has it; None where a number isn't known, since a guess would be a lie."""
    usage = run.usage
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens or 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens or 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def responses_usage(run: RunView) -> dict[str, Any] | None:
    """As Responses has it."""
    usage = run.usage
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens or 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
