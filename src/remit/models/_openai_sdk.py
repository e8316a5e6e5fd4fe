"""The part of the Chat adapter that needs the SDK and pydantic-ai. Imported in a thread, when first used."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
from openai import AsyncOpenAI, Omit
from openai.types import chat
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers import Provider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

import remit
from remit.contract import ToolSpec
from remit.models._attempt import AttemptCall
from remit.models._lanes import LanedTransport
from remit.models._library_messages import Origin, blocks_from_library, messages_for_library, wire_arguments
from remit.models._messages import (
    AssistantBlock,
)
from remit.models._options import OPENAI_KINDS
from remit.models._plain_client import PlainClient
from remit.models._port import Delta
from remit.models._settings import ProviderSettings
from remit.models._transport import CURRENT, ObservingTransport, Waits, WireRecord
from remit.primitives import Secret

_NO_TAG = ("\x00think", "\x00/think")
"""Thinking tags that no model writes: text is text."""
_NO_KEY = "no-key-is-set"
_KEEPALIVE_S = 20.0
_WRITE_S = 60.0
_TEXT_EXTRA = "extra_content"


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryReply:
    """A reply as the library understood it."""

    blocks: tuple[AssistantBlock, ...]
    counted: tuple[int, int]
    """Its input and output tokens."""


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
            if mapped is not None and isinstance(part, TextPart) and part.provider_details:
                extra = part.provider_details.get(_TEXT_EXTRA)
                if extra is not None:
                    cast("dict[str, Any]", mapped)[_TEXT_EXTRA] = extra
        return mapped


class OpenAISdk:
    """One provider's client, and the library's models over it."""

    def __init__(self, settings: ProviderSettings, *, inner: httpx2.AsyncBaseTransport | None = None) -> None:
        self.waits = Waits(
            first_byte_s=settings.first_byte_timeout_ms / 1000, idle_s=settings.idle_timeout_ms / 1000
        )
        self._settings = settings
        self._client = _make_client(settings, inner or _make_transport(settings))
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
        self._parameters: tuple[tuple[ToolSpec, ...], ModelRequestParameters] | None = None

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
        on_delta: Callable[[Delta], None],
    ) -> LibraryReply:
        """Send one request and read the reply through the library.

        Raises:
            Exception: Whatever the library makes of a bad reply; `record` knows better.
        """
        model = self._model(call.model, with_usage, max_field)
        model_settings: dict[str, Any] = {**settings, "extra_headers": {"User-Agent": _agent(), **headers}}
        if cache_key is not None:
            model_settings["openai_prompt_cache_key"] = cache_key
        if self._settings.extra_body:
            model_settings["extra_body"] = dict(self._settings.extra_body)
        token = CURRENT.set(record)
        try:
            async with model_request_stream(
                model,
                messages_for_library(call.request.messages, self._origin),
                model_settings=cast("ModelSettings", model_settings),
                model_request_parameters=self._tools(call.request.tools),
            ) as stream:
                async for event in stream:
                    delta = _delta(event)
                    if delta is not None:
                        on_delta(delta)
                response = stream.get()
        finally:
            CURRENT.reset(token)
        blocks = blocks_from_library(response.parts, self._origin)
        return LibraryReply(
            blocks=blocks, counted=(response.usage.input_tokens, response.usage.output_tokens)
        )

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
            model.plain = PlainClient(self._client)
            self._models[key] = model
        return model

    def _tools(self, tools: tuple[ToolSpec, ...]) -> ModelRequestParameters:
        """The tools in the library's form; the rounds of a stage share one."""
        if self._parameters is None or self._parameters[0] is not tools:
            definitions = [
                ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=cast("dict[str, Any]", tool.parameters),
                )
                for tool in tools
            ]
            self._parameters = (tools, ModelRequestParameters(function_tools=definitions))
        return self._parameters[1]


def _agent() -> str:
    return f"remit/{remit.__version__}"


def _delta(event: object) -> Delta | None:
    """What a viewer sees of an event of the library; None when that is nothing."""
    match event:
        case (
            PartStartEvent(part=TextPart(content=text))
            | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
        ):
            return Delta(kind="text", text=text) if text else None
        case PartStartEvent(part=ThinkingPart(content=text)):
            return Delta(kind="reasoning", text=text) if text else None
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)):
            return Delta(kind="reasoning", text=text) if text else None
        case PartStartEvent(part=ToolCallPart(tool_name=name, args=arguments)):
            return Delta(kind="tool_call", text=f"{name} {arguments if isinstance(arguments, str) else ''}")
        case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=arguments)):
            return (
                Delta(kind="tool_call", text=arguments) if isinstance(arguments, str) and arguments else None
            )
        case _:
            return None


def _make_transport(settings: ProviderSettings) -> httpx2.AsyncBaseTransport:
    if settings.ca_file is not None:
        context = ssl.create_default_context(cafile=str(settings.ca_file))
    else:
        context = httpx2.create_ssl_context()
    proxy = settings.proxy or _proxy_from_environment(settings.url)
    limits = httpx2.Limits(max_connections=1, keepalive_expiry=_KEEPALIVE_S)

    def lane() -> httpx2.AsyncBaseTransport:
        return httpx2.AsyncHTTPTransport(verify=context, limits=limits, proxy=proxy)

    return LanedTransport(lane, keepalive_s=_KEEPALIVE_S)


def _make_client(settings: ProviderSettings, inner: httpx2.AsyncBaseTransport) -> AsyncOpenAI:
    """The SDK's client: our transport, no retries of its own, and nothing taken from the environment."""
    http_client = httpx2.AsyncClient(
        transport=ObservingTransport(inner),
        event_hooks={"request": [_leave_out_no_key]},
        follow_redirects=False,
        headers={"Accept-Encoding": "identity"},
        timeout=_timeout(settings),
    )
    key = settings.api_key.reveal() if settings.api_key is not None else ""
    headers: dict[str, Any] = {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in settings.headers.items()
    }
    client = AsyncOpenAI(
        api_key=key or _NO_KEY,
        base_url=settings.url,
        organization=settings.organization,
        project=settings.project,
        default_headers=headers,
        max_retries=0,
        timeout=_timeout(settings),
        http_client=http_client,
    )
    # What the SDK found in OPENAI_ORG_ID, OPENAI_PROJECT_ID, OPENAI_ADMIN_KEY and OPENAI_CUSTOM_HEADERS is
    # the user's own, and isn't for whichever provider stands in the configuration.
    client.organization, client.project = settings.organization, settings.project
    client.admin_api_key = None
    client._custom_headers = headers  # pyright: ignore[reportPrivateUsage]
    return client


async def _leave_out_no_key(request: httpx2.Request) -> None:
    """The SDK insists on a key; a provider without one gets no header."""
    if request.headers.get("authorization") == f"Bearer {_NO_KEY}":
        del request.headers["authorization"]


def _timeout(settings: ProviderSettings) -> httpx2.Timeout:
    """Only connecting and writing are bounded here; reading is the transport's affair."""
    return httpx2.Timeout(connect=settings.connect_timeout_ms / 1000, read=None, write=_WRITE_S, pool=None)


def _proxy_from_environment(url: str) -> str | None:
    """The proxy that the environment names for this address, as everywhere else on the machine."""
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
