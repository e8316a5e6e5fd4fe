"""The part of the Anthropic adapter that needs the SDK and pydantic-ai; imported in a thread."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import httpx2
from anthropic import AsyncAnthropic, AsyncStream, NotGiven, Omit
from anthropic._models import construct_type_unchecked
from anthropic.types.beta import BetaRawMessageStreamEvent
from pydantic import TypeAdapter, ValidationError
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.profiles.anthropic import AnthropicModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider

from remit.contract import ToolSpec
from remit.models._anthropic_body import finish_body
from remit.models._attempt import AttemptCall
from remit.models._library_messages import Origin, messages_for_library
from remit.models._library_stream import ToolForms, read_reply
from remit.models._plain_requests import PlainRequests, RecordStream
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


class _PlainClient:
    """Stands where the library expects `client.beta.messages`, and sends one body as it is.

    The library would send a refused request a second time without its thinking, unseen by the ledger;
    the SDK would walk every value of the body. Neither happens here.
    """

    def __init__(self, client: AsyncAnthropic, requests: PlainRequests) -> None:
        self._client = client
        self._requests = requests
        self.beta = self
        self.messages = self
        self.timeout = client.timeout

    @property
    def base_url(self) -> Any:
        """Where the SDK sends to."""
        return self._client.base_url

    @property
    def default_headers(self) -> Mapping[str, Any]:
        """The SDK's own headers."""
        return self._client.default_headers

    async def create(self, **arguments: Any) -> AsyncStream[BetaRawMessageStreamEvent]:
        """A streamed request with the arguments of the SDK's own `create`."""
        headers = arguments.pop("extra_headers")
        extra_body: Mapping[str, Any] = arguments.pop("extra_body") or {}
        for name in ("timeout", "betas"):
            arguments.pop(name)
        body = {name: value for name, value in arguments.items() if not isinstance(value, (Omit, NotGiven))}
        # The library's effort and our form of the reply are of one field.
        config: dict[str, Any] = {**(body.get("output_config") or {}), **extra_body.get("output_config", {})}
        merged: dict[str, Any] = {**body, **extra_body}
        if config:
            merged["output_config"] = config
        response = await self._requests.send(finish_body(merged), headers)
        return cast("AsyncStream[BetaRawMessageStreamEvent]", RecordStream(response, _read_event))


_EVENTS: TypeAdapter[BetaRawMessageStreamEvent] = TypeAdapter(BetaRawMessageStreamEvent)


def _read_event(text: str) -> BetaRawMessageStreamEvent:
    """One event out of its JSON; one that isn't as the SDK knows it is read loosely, as the SDK does."""
    try:
        return _EVENTS.validate_json(text)
    except ValidationError:
        kind = cast("Any", BetaRawMessageStreamEvent)
        loosely: Any = construct_type_unchecked(value=json.loads(text), type_=kind)
        return loosely


class _MessagesModel(AnthropicModel):
    """The library's Anthropic model over our client."""

    plain: _PlainClient | None = None

    @property
    def client(self) -> AsyncAnthropic:
        return cast("AsyncAnthropic", super().client if self.plain is None else self.plain)


class AnthropicSdk:
    """One provider's client, and the library's models over it."""

    def __init__(self, settings: ProviderSettings, *, inner: httpx2.AsyncBaseTransport | None = None) -> None:
        self.waits = waits_of(settings)
        self._settings = settings
        transport = make_observed(settings, inner)
        self._client = _make_client(settings, transport)
        requests = PlainRequests(
            self._client, transport, "v1/messages", timeout=make_timeout(settings), sign=_sign
        )
        self._plain = _PlainClient(self._client, requests)
        self._provider = AnthropicProvider(anthropic_client=self._client)
        self._models: dict[str, _MessagesModel] = {}
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
        extra_body: Mapping[str, Any],
        tools: tuple[ToolSpec, ...],
        on_delta: Callable[[Delta], None],
    ) -> LibraryReply:
        """Send one request and read the reply through the library.

        Raises:
            Exception: Whatever the library makes of a bad reply; `record` knows better.
        """
        origin = Origin(
            provider=self._settings.name,
            library_name=self._provider.name,
            canonical_system=self._provider.canonical_system,
            model=call.full_model,
            whole_arguments=True,
            image_bytes=_image_bytes,
        )
        headers = {"User-Agent": user_agent(), "X-Client-Request-Id": call.attempt_id}
        return await read_reply(
            self._model(call.model),
            messages_for_library(call.request.messages, origin),
            record,
            settings={**settings, "extra_headers": headers, "extra_body": dict(extra_body)},
            parameters=self._tools.of(tools),
            origin=origin,
            on_delta=on_delta,
        )

    def _model(self, name: str) -> _MessagesModel:
        model = self._models.get(name)
        if model is None:
            profile = AnthropicModelProfile(
                json_schema_transformer=None,  # schemas go out as they are
                anthropic_binds_thinking_blocks=False,  # no second request that nobody counts
                anthropic_max_output_tokens=None,  # the bound that was granted is the one that is sent
                anthropic_disallows_sampling_settings=False,  # refused at start, not dropped here
            )
            model = _MessagesModel(name, provider=self._provider, profile=profile)
            model.plain = self._plain
            self._models[name] = model
        return model


def _image_bytes(data_url: str) -> tuple[bytes, str] | None:
    """The bytes and the media type of a data URL; None where it is another kind of address."""
    head, comma, data = data_url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    try:
        return base64.b64decode(data, validate=True), head.removeprefix("data:").removesuffix(";base64")
    except (binascii.Error, ValueError):
        return None


def _make_client(settings: ProviderSettings, transport: ObservingTransport) -> AsyncAnthropic:
    """The SDK's client: our transport, no retries of its own, and nothing taken from the environment."""
    key = settings.api_key.reveal() if settings.api_key is not None else ""
    headers = own_headers(settings)
    client = AsyncAnthropic(
        api_key=key or NO_KEY,
        base_url=settings.url,
        default_headers=headers,
        max_retries=0,
        timeout=make_timeout(settings),
        http_client=make_http_client(settings, transport, _sign),
    )
    # What the SDK found in ANTHROPIC_CUSTOM_HEADERS and ANTHROPIC_AUTH_TOKEN is the user's own, and isn't
    # for whichever provider stands in the configuration.
    client.auth_token = None
    client._custom_headers = headers  # pyright: ignore[reportPrivateUsage] - no public way
    return client


async def _sign(request: httpx2.Request) -> None:
    """The key in the header that every server of this dialect knows; none where there is no key.

    The SDK's newest versions send it as a bearer token, which older servers don't take.
    """
    key = request.headers.get("authorization", "").removeprefix("Bearer ")
    if key == NO_KEY:
        del request.headers["authorization"]
    elif key and "x-api-key" not in request.headers:
        request.headers["x-api-key"] = key
        del request.headers["authorization"]
