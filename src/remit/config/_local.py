"""A model server on this machine, looked for when nothing else is configured."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import Any, cast

from remit.config._schema import ProviderTable
from remit.primitives import StrictJsonError, load_json

_PORTS = (11434, 1234, 8080, 8000)
"""Where Ollama, LM Studio, llama.cpp and vLLM listen by default."""
_PATIENCE_S = 0.3
_LARGEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that speaks the OpenAI wire form, and a model that it serves."""

    base_url: str
    model: str
    kind: str = "openai-compatible"
    """`ollama` where it is one, since its window can only be set in its own form."""

    def provider(self) -> ProviderTable:
        """It as a provider; its models are free."""
        return ProviderTable(kind=self.kind, base_url=self.base_url)


def find_local_server(ports: tuple[int, ...] = _PORTS) -> LocalServer | None:
    """The first server on this machine that lists a model. Asks each port once, for 0.3 s at most."""
    for port in ports:
        model = _first_model(port)
        if model is not None:
            kind = "ollama" if _is_ollama(port) else "openai-compatible"
            return LocalServer(f"http://127.0.0.1:{port}/v1", model, kind)
    return None


def _is_ollama(port: int) -> bool:
    body = _get(port, "/api/version")
    return isinstance(body, dict) and isinstance(cast("dict[str, Any]", body).get("version"), str)


def _get(port: int, path: str) -> Any:
    """What a server on this machine answers; None where it doesn't, or no JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        return load_json(answer.read(_LARGEST_BYTES)) if answer.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException, StrictJsonError):
        return None
    finally:
        connection.close()


def _first_model(port: int) -> str | None:
    for model in _entries(_get(port, "/v1/models")):
        name = model.get("id")
        if isinstance(name, str) and name and not any(character.isspace() for character in name):
            return name
    return None


def _entries(body: Any) -> list[dict[str, Any]]:
    models = cast("dict[str, Any]", body).get("data") if isinstance(body, dict) else None
    if not isinstance(models, list):
        return []
    return [cast("dict[str, Any]", model) for model in cast("list[Any]", models) if isinstance(model, dict)]
