"""The part of the Ollama adapter that needs the SDK and pydantic-ai; imported in a thread."""

from __future__ import annotations

from typing import Any

from remit.models._ollama import WINDOW_FIELD
from remit.models._ollama_wire import ollama_body
from remit.models._openai_sdk import OpenAISdk
from remit.models._plain_client import PlainClient


class OllamaSdk(OpenAISdk):
    """The library's Chat models over Ollama's own door."""

    def _plain_client(self, model: str) -> PlainClient:
        return self._sending_to("api/chat", _converted)


def _converted(body: dict[str, Any]) -> dict[str, Any]:
    return ollama_body(body, window_tokens=body.pop(WINDOW_FIELD))
