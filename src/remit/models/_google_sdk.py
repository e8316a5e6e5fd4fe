"""The part of the Gemini adapter that needs the SDK and pydantic-ai; imported in a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import httpx2
from google.genai import Client
from google.genai.types import HttpOptions
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.profiles.google import GoogleModelProfile
from pydantic_ai.providers.google import GoogleProvider

from remit.models._library_messages import Origin
from remit.models._library_stream import ToolForms, read_reply
from remit.models._port import Delta
from remit.models._sdk_adapter import LibraryReply
from remit.models._sdk_http import (
    NO_KEY,
    make_http_client,
    make_observed,
    make_timeout,
    own_headers,
    user_agent,
    waits_of,
)
from remit.models._settings import ProviderSettings
from remit.models._transport import WireRecord

_STAND_IN: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("-")])]
"""What the library maps; the contents that are sent are ours, since it joins and splits parts of a reply."""
_REQUEST = "remit_request"


class _GeminiModel(GoogleModel):
    """The library's Gemini model, which sends one body of ours, once.

    The library would map messages and options anew, and the SDK would go on by itself where a reply breaks
    off, unseen by the ledger.
    """

    async def _generate_content(
        self, messages: Any, stream: Any, model_settings: Mapping[str, Any], model_request_parameters: Any
    ) -> Any:
        models: Any = self.client.aio.models
        return await models.generate_content_stream(
            model=self._model_name, contents="-", config=model_settings[_REQUEST]
        )


class GoogleSdk:
    """One provider's client, and the library's models over it."""

    def __init__(self, settings: ProviderSettings, *, inner: httpx2.AsyncBaseTransport | None = None) -> None:
        self.waits = waits_of(settings)
        self._http = make_http_client(settings, make_observed(settings, inner), _Touch(settings))
        self._client = _make_client(settings, self._http)
        self._provider = GoogleProvider(client=self._client)
        self._origin = Origin(
            provider=settings.name,
            library_name=self._provider.name,
            canonical_system=self._provider.canonical_system,
        )
        self._models: dict[str, _GeminiModel] = {}
        self._tools = ToolForms()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()
        self._client.close()

    async def send(
        self,
        model: str,
        record: WireRecord,
        *,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        on_delta: Callable[[Delta], None],
    ) -> LibraryReply:
        """Send one request and read the reply through the library.

        Raises:
            Exception: Whatever the library makes of a bad reply; `record` knows better.
        """
        request = {
            "http_options": {"headers": dict(headers), "extra_body": dict(body)},
            "automatic_continuation": False,
            "automatic_function_calling": {"disable": True},
        }
        return await read_reply(
            self._model(model),
            _STAND_IN,
            record,
            settings={_REQUEST: request},
            parameters=self._tools.of(()),
            origin=self._origin,
            on_delta=on_delta,
        )

    def _model(self, name: str) -> _GeminiModel:
        model = self._models.get(name)
        if model is None:
            model = _GeminiModel(name, provider=self._provider, profile=GoogleModelProfile())
            self._models[name] = model
        return model


class _Touch:
    """The last touch to a request: who we are, how long connecting may take, no key where there is none."""

    def __init__(self, settings: ProviderSettings) -> None:
        self._timeout = make_timeout(settings).as_dict()

    async def __call__(self, request: httpx2.Request) -> None:
        request.headers["User-Agent"] = user_agent()
        request.extensions["timeout"] = self._timeout  # the SDK says that there is none
        if request.headers.get("x-goog-api-key") == NO_KEY:
            del request.headers["x-goog-api-key"]


def _make_client(settings: ProviderSettings, http: httpx2.AsyncClient) -> Client:
    """The SDK's client: our transport, no retries of its own, and nothing taken from the environment."""
    key = settings.api_key.reveal() if settings.api_key is not None else ""
    options = HttpOptions(
        base_url=settings.url,
        headers=own_headers(settings),
        httpx_async_client=http,
    )
    if settings.kind == "google":
        return Client(vertexai=False, api_key=key or NO_KEY, http_options=options)
    if key:
        return Client(vertexai=True, api_key=key, http_options=options)
    return Client(
        vertexai=True,
        project=settings.project,
        location=settings.location or "global",
        http_options=options,
    )
