"""The part of the Chat adapter that needs the SDK and pydantic-ai. Imported in a thread, when first used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, cast
from urllib.parse import quote

import httpx2
from openai import AsyncOpenAI, Omit
from openai.types import chat
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers import Provider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from remit.models._arguments import wire_arguments
from remit.models._attempt import AttemptCall
from remit.models._gateway import put_details
from remit.models._library_messages import Origin, messages_for_library
from remit.models._library_stream import ToolForms, read_reply
from remit.models._options import OPENAI_KINDS
from remit.models._plain_client import PlainClient
from remit.models._plain_requests import PlainRequests
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
from remit.models._transport import ObservingTransport, WireRecord

_NO_TAG = ("\x00think", "\x00/think")
"""Thinking tags that no model writes: text is text."""
_TEXT_EXTRA = "extra_content"


class _ChatModel(OpenAIChatModel):
    """The library's Chat model, with our rules for what goes out.

    What is overridden are hooks that the library's own provider classes use; tests over real HTTP fail
    when it stops calling them.
    """

    with_usage: bool = True
    plain: PlainClient | None = None

    @property
    def client(self) -> AsyncOpenAI:
        return super().client if self.plain is None else cast("AsyncOpenAI", self.plain)

    def _get_stream_options(
        self, model_settings: OpenAIChatModelSettings
    ) -> chat.ChatCompletionStreamOptionsParam:
        if self.with_usage:
            return {"include_usage": True}
        return cast("chat.ChatCompletionStreamOptionsParam", Omit())

    @staticmethod
    def _map_tool_call(t: ToolCallPart) -> chat.ChatCompletionMessageFunctionToolCallParam:
        arguments = t.args if isinstance(t.args, str) else ""
        return {
            "id": t.tool_call_id,
            "type": "function",
            "function": {"name": t.tool_name, "arguments": wire_arguments(arguments)},
        }

    def _map_model_response(self, message: ModelResponse) -> chat.ChatCompletionMessageParam | None:
        mapped = super()._map_model_response(message)
        for part in message.parts:
            if mapped is not None and isinstance(part, ThinkingPart) and part.provider_details:
                put_details(cast("dict[str, Any]", mapped), part.provider_details)
            if mapped is not None and isinstance(part, TextPart) and part.provider_details:
                extra = part.provider_details.get(_TEXT_EXTRA)
                if extra is not None:
                    cast("dict[str, Any]", mapped)[_TEXT_EXTRA] = extra
        return mapped


class OpenAISdk:
    """One provider's client, and the library's models over it."""

    def __init__(self, settings: ProviderSettings, *, inner: httpx2.AsyncBaseTransport | None = None) -> None:
        self.waits = waits_of(settings)
        self._settings = settings
        self._transport = make_observed(settings, inner)
        self._client = make_openai_client(settings, self._transport)
        self._provider: Provider[AsyncOpenAI] = (
            OpenAIProvider(openai_client=self._client)
            if settings.kind in OPENAI_KINDS
            else OpenAICompatibleProvider(settings.name, openai_client=self._client)
        )
        self._origin = Origin(
            provider=settings.name,
            library_name=self._provider.name,
            canonical_system=self._provider.canonical_system,
        )
        self._models: dict[tuple[str, bool, str], _ChatModel] = {}
        self._tools = ToolForms()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def send(
        self,
        call: AttemptCall,
        record: WireRecord,
        *,
        settings: Mapping[str, Any],
        headers: Mapping[str, str],
        cache_key: str | None,
        with_usage: bool,
        max_field: str,
        extra_body: Mapping[str, Any] | None = None,
        on_delta: Callable[[Delta], None],
    ) -> LibraryReply:
        """Send one request and read the reply through the library.

        Raises:
            Exception: Whatever the library makes of a bad reply; `record` knows better.
        """
        model = self._model(call.model, with_usage, max_field)
        model_settings: dict[str, Any] = {
            **settings,
            "extra_headers": {"User-Agent": user_agent(), **headers},
        }
        if cache_key is not None:
            model_settings["openai_prompt_cache_key"] = cache_key
        extra = {**(extra_body or {}), **self._settings.extra_body}
        if extra:
            model_settings["extra_body"] = extra
        # Behind a gateway stand many vendors: what is opaque goes back to the same model only.
        gateway = self._settings.kind == "openrouter"
        origin = replace(self._origin, model=call.full_model) if gateway else self._origin
        return await read_reply(
            model,
            messages_for_library(call.request.messages, origin),
            record,
            settings=model_settings,
            parameters=self._tools.of(call.request.tools),
            origin=self._origin,
            on_delta=on_delta,
        )

    def _plain_client(self, model: str) -> PlainClient:
        """What sends the requests for a model."""
        return self._sending_to(self._path_for(model))

    def _sending_to(
        self, path: str, convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    ) -> PlainClient:
        requests = openai_requests(self._client, self._transport, path, self._settings)
        return PlainClient(self._client.base_url, requests, convert=convert)

    def _path_for(self, model: str) -> str:
        if self._settings.kind != "azure":
            return "chat/completions"
        version = self._settings.api_version
        if version is None:
            return "openai/v1/chat/completions"
        return f"openai/deployments/{quote(model, safe='')}/chat/completions?api-version={version}"

    def _model(self, name: str, with_usage: bool, max_field: str) -> _ChatModel:
        key = (name, with_usage, max_field)
        model = self._models.get(key)
        if model is None:
            profile = OpenAIModelProfile(
                json_schema_transformer=None,  # schemas go out as they are
                openai_chat_supports_max_completion_tokens=max_field == "max_completion_tokens",
            )
            if self._settings.kind in OPENAI_KINDS:
                profile["thinking_tags"] = _NO_TAG
            model = _ChatModel(name, provider=self._provider, profile=profile)
            model.with_usage = with_usage
            model.plain = self._plain_client(name)
            self._models[key] = model
        return model


def make_openai_client(settings: ProviderSettings, transport: ObservingTransport) -> AsyncOpenAI:
    """The SDK's client: our transport, no retries of its own, and nothing taken from the environment."""
    key = settings.api_key.reveal() if settings.api_key is not None else ""
    headers = own_headers(settings)
    client = AsyncOpenAI(
        api_key=key or NO_KEY,
        base_url=settings.url,
        organization=settings.organization,
        project=settings.project,
        default_headers=headers,
        max_retries=0,
        timeout=make_timeout(settings),
        http_client=make_http_client(settings, transport, _sign_of(settings)),
    )
    # What the SDK found in OPENAI_ORG_ID, OPENAI_PROJECT_ID, OPENAI_ADMIN_KEY and OPENAI_CUSTOM_HEADERS is
    # the user's own, and isn't for whichever provider stands in the configuration.
    client.organization, client.project = settings.organization, settings.project
    client.admin_api_key = None
    client._custom_headers = headers  # pyright: ignore[reportPrivateUsage] - no public way
    return client


def openai_requests(
    client: AsyncOpenAI, transport: ObservingTransport, path: str, settings: ProviderSettings
) -> PlainRequests:
    """Requests to one path of the provider, as the SDK would sign them."""
    return PlainRequests(client, transport, path, timeout=make_timeout(settings), sign=_sign_of(settings))


def _sign_of(settings: ProviderSettings) -> Callable[[httpx2.Request], Awaitable[None]]:
    return _sign_for_azure if settings.kind == "azure" else _leave_out_no_key


async def _sign_for_azure(request: httpx2.Request) -> None:
    """The key in the header of its own that Azure wants."""
    request.headers["api-key"] = request.headers["authorization"].removeprefix("Bearer ")
    del request.headers["authorization"]


async def _leave_out_no_key(request: httpx2.Request) -> None:
    """The SDK insists on a key; a provider without one gets no header."""
    if request.headers.get("authorization") == f"Bearer {NO_KEY}":
        del request.headers["authorization"]
