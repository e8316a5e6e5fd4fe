"""The part of the Responses adapter that needs the SDK and pydantic-ai; imported in a thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import httpx2
from openai import AsyncOpenAI, AsyncStream, NotGiven, Omit
from openai._models import construct_type_unchecked
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

from remit.contract import ToolSpec
from remit.models._library_messages import Origin
from remit.models._library_stream import ToolForms, read_reply
from remit.models._openai_sdk import make_openai_client, openai_requests
from remit.models._plain_requests import PlainRequests, RecordStream
from remit.models._port import Delta
from remit.models._sdk_adapter import LibraryReply
from remit.models._sdk_http import make_observed, user_agent, waits_of
from remit.models._settings import ProviderSettings
from remit.models._transport import WireRecord

_STAND_IN: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("-")])]
"""What the library maps; the items that are sent are ours, since it splits and joins those of a reply."""


class _PlainClient:
    """Stands where the library expects `client.responses`, and sends one body as it is.

    The SDK's own `create` would walk every value of the body first.
    """

    def __init__(self, base_url: Any, requests: PlainRequests) -> None:
        self.base_url = base_url
        """Where the SDK sends to."""
        self._requests = requests
        self.responses = self

    async def create(self, **arguments: Any) -> AsyncStream[ResponseStreamEvent]:
        """A streamed request with the arguments of the SDK's own `create`."""
        headers = arguments.pop("extra_headers")
        ours: Mapping[str, Any] = arguments.pop("extra_body")
        # Of the library's own ideas (what to include, how to reason) none: only what it was asked to map.
        body = {
            name: value
            for name in ("model", "stream", "tools", "tool_choice")
            if not isinstance(value := arguments[name], (Omit, NotGiven))
        }
        response = await self._requests.send({**body, **ours}, headers)
        return cast("AsyncStream[ResponseStreamEvent]", RecordStream(response, _read_event))


_EVENTS: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


def _read_event(text: str) -> ResponseStreamEvent:
    """One event out of its JSON; one that isn't as the SDK knows it is read loosely, as the SDK does."""
    try:
        return _EVENTS.validate_json(text)
    except ValidationError:
        loosely: Any = construct_type_unchecked(
            value=json.loads(text), type_=cast("Any", ResponseStreamEvent)
        )
        return loosely


class _ResponsesModel(OpenAIResponsesModel):
    """The library's Responses model over our client."""

    plain: _PlainClient | None = None

    @property
    def client(self) -> AsyncOpenAI:
        return super().client if self.plain is None else cast("AsyncOpenAI", self.plain)


class ResponsesSdk:
    """One provider's client, and the library's models over it."""

    def __init__(self, settings: ProviderSettings, *, inner: httpx2.AsyncBaseTransport | None = None) -> None:
        self.waits = waits_of(settings)
        transport = make_observed(settings, inner)
        self._client = make_openai_client(settings, transport)
        requests = openai_requests(self._client, transport, "responses", settings)
        self._plain = _PlainClient(self._client.base_url, requests)
        self._provider = OpenAIProvider(openai_client=self._client)
        self._origin = Origin(
            provider=settings.name,
            library_name=self._provider.name,
            canonical_system=self._provider.canonical_system,
        )
        self._models: dict[str, _ResponsesModel] = {}
        self._tools = ToolForms()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def send(
        self,
        model: str,
        record: WireRecord,
        *,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        tools: tuple[ToolSpec, ...],
        on_delta: Callable[[Delta], None],
    ) -> LibraryReply:
        """Send one request and read the reply through the library.

        Raises:
            Exception: Whatever the library makes of a bad reply; `record` knows better.
        """
        return await read_reply(
            self._model(model),
            _STAND_IN,
            record,
            settings={"extra_headers": {"User-Agent": user_agent(), **headers}, "extra_body": dict(body)},
            parameters=self._tools.of(tools),
            origin=self._origin,
            on_delta=on_delta,
        )

    def _model(self, name: str) -> _ResponsesModel:
        model = self._models.get(name)
        if model is None:
            profile = OpenAIModelProfile(json_schema_transformer=None)  # schemas go out as they are
            model = _ResponsesModel(name, provider=self._provider, profile=profile)
            model.plain = self._plain
            self._models[name] = model
        return model
