"""Sends a chat request through the SDK without walking it first.

The SDK's own `create` checks every value of the body against its types on the way out: 27 ms of CPU for
a conversation of 200 messages, each round anew, and the body is the same afterwards. The SDK's public
`post` sends a body as it is; headers, errors and the stream stay the SDK's.
"""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI, AsyncStream, NotGiven, Omit
from openai._types import RequestOptions  # the type of the public `options`
from openai.types.chat import ChatCompletion, ChatCompletionChunk


class PlainClient:
    """Stands where the library expects `client.chat.completions`."""

    def __init__(self, client: AsyncOpenAI) -> None:
        self._client = client
        self.chat = self
        self.completions = self

    @property
    def base_url(self) -> Any:
        """Where the SDK sends to."""
        return self._client.base_url

    async def create(self, **arguments: Any) -> AsyncStream[ChatCompletionChunk]:
        """A streamed chat request with the arguments of the SDK's own `create`."""
        options: RequestOptions = {"headers": arguments.pop("extra_headers")}
        extra_body = arguments.pop("extra_body")
        if extra_body is not None:
            options["extra_json"] = extra_body
        arguments.pop("timeout")  # never set: the transport bounds the waits
        body = {name: value for name, value in arguments.items() if not isinstance(value, (Omit, NotGiven))}
        return await self._client.post(
            "/chat/completions",
            cast_to=ChatCompletion,
            body=body,
            options=options,
            stream=True,
            stream_cls=AsyncStream[ChatCompletionChunk],
        )
