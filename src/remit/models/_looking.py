"""What a provider says of itself and its models, when asked: by one plain request, without its SDK."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx2

from remit.errors import ConfigError
from remit.models._facts import Looked, ModelFacts
from remit.models._sdk_http import make_ssl_context, proxy_from_environment
from remit.models._settings import ProviderSettings
from remit.models._usage_reader import UsageReader
from remit.models._wire import is_array, is_object
from remit.primitives import Secret

_PATIENCE_S = 5.0
_LARGEST_BYTES = 16 * 1024 * 1024
_ANTHROPIC_VERSION = "2023-06-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    path: str
    headers: dict[str, str]


async def look_at(settings: ProviderSettings, *, model: str | None = None) -> Looked:
    """Ask a provider which models it has; never raises for what it does.

    Args:
        settings: The provider.
        model: A model to ask for by name, where the provider tells more of one.
    """
    if settings.kind == "scripted":
        there = settings.script is not None and settings.script.is_file()
        why = "" if there else f"{settings.script} isn't there"
        return Looked(reachable=there, why=why, models=None)
    question = _question(settings)
    if question is None:
        return Looked(reachable=None, why="not asked: its lists need an account of their own", models=None)
    try:
        async with _client(settings) as client:
            body = await _get(client, question)
            if settings.kind == "ollama" and model is not None:
                return await _with_shown(client, _models_of(body), model)
    except (_NoAnswerError, ConfigError) as error:
        return Looked(reachable=False, why=str(error))
    return Looked(reachable=True, models=_models_of(body))


def _client(settings: ProviderSettings) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=settings.url,
        timeout=_PATIENCE_S,
        follow_redirects=False,
        verify=make_ssl_context(settings) if settings.url.startswith("https:") else False,
        proxy=settings.proxy or proxy_from_environment(settings.url),
        trust_env=False,
    )


class _NoAnswerError(Exception):
    pass


async def _get(client: httpx2.AsyncClient, question: _Question) -> Any:
    try:
        response = await client.get(question.path, headers=question.headers)
    except (httpx2.HTTPError, OSError, ValueError) as error:
        raise _NoAnswerError(f"no answer ({type(error).__name__})") from None
    if response.status_code in (401, 403):
        raise _NoAnswerError(f"the key isn't taken (HTTP {response.status_code})")
    if response.status_code != 200:
        raise _NoAnswerError(f"HTTP {response.status_code}")
    return _json(response)


def _json(response: httpx2.Response) -> Any:
    try:
        return json.loads(response.content[:_LARGEST_BYTES])
    except (ValueError, RecursionError):
        raise _NoAnswerError("the answer isn't JSON") from None


def _question(settings: ProviderSettings) -> _Question | None:
    key = settings.api_key.reveal() if settings.api_key is not None else ""
    own = {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in settings.headers.items()
    }
    bearer = {"Authorization": f"Bearer {key}"} if key else {}
    match settings.kind:
        case "openai" | "openai-chat" | "openai-compatible":
            return _Question(path="models", headers={**bearer, **own})
        case "openrouter":
            return _Question(path="models/user", headers={**bearer, **own})
        case "azure":
            return _Question(path="openai/v1/models", headers={"api-key": key, **own})
        case "anthropic":
            named = {"x-api-key": key} if key else {}
            version = {"anthropic-version": _ANTHROPIC_VERSION}
            return _Question(path="v1/models?limit=1000", headers={**named, **version, **own})
        case "google":
            named = {"x-goog-api-key": key} if key else {}
            return _Question(path="v1beta/models?pageSize=1000", headers={**named, **own})
        case "ollama":
            return _Question(path="api/tags", headers={**bearer, **own})
        case _:
            return None


def _models_of(body: Any) -> dict[str, ModelFacts] | None:
    """The models of a list, whoever wrote it."""
    entries = (body.get("data") or body.get("models")) if is_object(body) else None
    if not is_array(entries):
        return None
    found: dict[str, ModelFacts] = {}
    for entry in entries:
        name = (entry.get("id") or entry.get("name")) if is_object(entry) else None
        if isinstance(name, str):
            found[name.removeprefix("models/")] = _facts(entry)
    return found


def _facts(entry: dict[str, Any]) -> ModelFacts:
    reader = UsageReader()
    window = reader.first(
        entry,
        ("context_length",),
        ("max_model_len",),
        ("loaded_context_length",),
        ("max_context_length",),
        ("context_window",),
        ("max_input_tokens",),
        ("inputTokenLimit",),
        ("meta", "n_ctx"),
        ("meta", "n_ctx_train"),
    )
    longest = reader.first(
        entry, ("top_provider", "max_completion_tokens"), ("max_tokens",), ("outputTokenLimit",)
    )
    takes = entry.get("supported_parameters")
    tools = "tools" in takes if is_array(takes) else None
    return ModelFacts(window_tokens=window or None, max_output_tokens=longest or None, tools=tools)


async def _with_shown(client: httpx2.AsyncClient, models: dict[str, ModelFacts] | None, model: str) -> Looked:
    """What Ollama tells of one model."""
    try:
        response = await client.post("api/show", json={"model": model})
        shown = _json(response) if response.status_code == 200 else None
    except (httpx2.HTTPError, OSError, ValueError) as error:
        raise _NoAnswerError(f"no answer ({type(error).__name__})") from None
    if not is_object(shown):
        return Looked(reachable=True, models=models)
    info: Any = shown.get("model_info")
    kind = info.get("general.architecture") if is_object(info) else None
    window = UsageReader().number(info, f"{kind}.context_length")
    able = shown.get("capabilities")
    tools = "tools" in able if is_array(able) else None
    facts = ModelFacts(window_tokens=window or None, tools=tools)
    return Looked(reachable=True, models={**(models or {}), model: facts})
