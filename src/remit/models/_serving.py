"""What a provider of some kind needs to be told of, and which models it can't serve at all."""

from __future__ import annotations

from typing import Final

__all__ = ["describe_table", "why_not_served"]

_TABLES: Final = {
    "openai-chat": 'api_key_env = "OPENAI_API_KEY"',
    "openai-compatible": 'base_url = "http://127.0.0.1:8000/v1" and, where it wants a key, api_key_env',
    "azure": 'base_url = "https://RESOURCE.openai.azure.com" and api_key_env = "AZURE_OPENAI_API_KEY"',
    "bedrock": 'location = "us-east-1" (an API key or an AWS account comes from the usual variables)',
    "vertex": (
        'project = "PROJECT" and location = "europe-west4" (with the login that '
        "`gcloud auth application-default login` makes, or api_key_env)"
    ),
    "scripted": 'script = "FILE"',
}
"""Kinds that nobody can know enough of without a table, and the least that stands in it."""

_OWNERS: Final = {
    "claude": "anthropic",
    "llama": "meta",
    "mistral": "mistralai",
    "codestral": "mistralai",
    "deepseek": "deepseek-ai",
    "qwen": "qwen",
    "jamba": "ai21",
    "gpt": "openai",
}
"""The first word of a model's name -> whose it is, as Vertex calls them."""


def describe_table(name: str) -> str | None:
    """What to write for a provider that is named like its kind; None: no kind, or one that needs no table."""
    told = _TABLES.get(name)
    return None if told is None else f'[providers.{name}] with kind = "{name}", {told}'


def why_not_served(kind: str, model: str) -> str | None:
    """Why no provider of this kind can serve a model, from the names alone; None: it may."""
    if kind != "vertex":
        return None
    owner = _owner(model.lower())
    if owner in (None, "google"):
        return None
    return (
        f"kind vertex speaks Gemini alone, and `{model}` is a model of {owner}: ask it at a provider of "
        "another kind, such as anthropic, bedrock or openai-compatible"
    )


def _owner(model: str) -> str | None:
    """Whose model it is: said by its path, or known by its first word."""
    first, slash, rest = model.partition("/")
    if first == "publishers":
        return rest.partition("/")[0]
    if slash and first not in ("projects", "models"):
        return first
    word = model.rpartition("/")[2]
    return next((owner for start, owner in _OWNERS.items() if word.startswith(start)), None)
