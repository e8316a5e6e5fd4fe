"""Sends bodies as they are to one address of a provider, below its SDK.

An SDK makes each request anew out of what never changes: it copies its options twice, merges and checks its
headers, joins its address, and walks a client's auth, hooks, cookies and redirects, for 0.6 ms of CPU. Here
its headers and address are asked for once. Bodies, errors and replies are the exchange's affair anyway.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Generic, Protocol, TypeVar

import httpx2

from remit.models._transport import ObservingTransport

_log = logging.getLogger(__name__)
_SAME = {"accept-encoding": "identity", "connection": "keep-alive", "x-stainless-retry-count": "0"}
"""Nothing compressed; and what the SDKs say of a request that isn't a retry of theirs."""


class SdkClient(Protocol):
    """What is asked of an SDK's client."""

    @property
    def base_url(self) -> httpx2.URL:
        """Where it sends to; ends with a slash."""
        ...

    @property
    def auth_headers(self) -> dict[str, str]:
        """The key, as it is sent."""
        ...

    @property
    def default_headers(self) -> Mapping[str, object]:
        """What it sends with each request; what is no text is left out."""
        ...


class RefusedError(Exception):
    """The provider answered with an error status; the exchange knows its body."""


class PlainRequests:
    """Requests to one address.

    Args:
        client: The SDK's client, whose headers and address are sent.
        transport: Sends them.
        path: Below the client's address.
        timeout: For connecting and writing.
        sign: Puts the headers of a request into their last form.
    """

    def __init__(
        self,
        client: SdkClient,
        transport: ObservingTransport,
        path: str,
        *,
        timeout: httpx2.Timeout,
        sign: Callable[[httpx2.Request], Awaitable[None]],
    ) -> None:
        self._client = client
        self._transport = transport
        base = client.base_url
        self._url = base.copy_with(raw_path=base.raw_path + path.lstrip("/").encode())
        self._timeout = timeout.as_dict()
        self._sign = sign
        self._headers: dict[str, str] | None = None

    async def send(self, body: Mapping[str, object], headers: Mapping[str, str]) -> httpx2.Response:
        """Send one body; the reply's records are still to be read, and the reply to be closed.

        Raises:
            RefusedError: The answer is an error.
            httpx2.TransportError: The connection broke, or took too long.
        """
        if self._headers is None:
            self._headers = await self._learn_headers()
        request = httpx2.Request(
            "POST",
            self._url,
            headers={**self._headers, **{name.lower(): value for name, value in headers.items()}},
            content=json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(),
            extensions={"timeout": self._timeout},
        )
        _log.debug("POST %s", self._url)
        response = await self._transport.handle_async_request(request)
        if response.status_code != 200:
            raise RefusedError(f"HTTP {response.status_code}")
        return response

    async def _learn_headers(self) -> dict[str, str]:
        """The headers that stay the same."""
        named = {**self._client.auth_headers, **self._client.default_headers}
        texts = {name.lower(): value for name, value in named.items() if isinstance(value, str)}
        request = httpx2.Request("POST", self._url, headers={**_SAME, **texts})
        await self._sign(request)
        return {name: value for name, value in request.headers.items() if name != "content-length"}


RecordT = TypeVar("RecordT")
_END = "[DONE]"


class RecordStream(Generic[RecordT]):
    """The records of a reply, where the library expects an SDK's stream.

    The transport gives on whole records only, one line each, so that nothing is to be put together here.

    Args:
        response: Of `PlainRequests.send`.
        read: Makes a record of its JSON.
    """

    def __init__(self, response: httpx2.Response, read: Callable[[str], RecordT]) -> None:
        self._response = response
        self._records = self._read_all(read)

    async def _read_all(self, read: Callable[[str], RecordT]) -> AsyncIterator[RecordT]:
        stream = self._response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        async for piece in stream:
            for record in piece.decode().split("\n\n"):
                text = record.rpartition("\n")[2].removeprefix("data: ")
                if text and text != _END:
                    yield read(text)

    def __aiter__(self) -> AsyncIterator[RecordT]:
        return self._records

    async def __aenter__(self) -> RecordStream[RecordT]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give the connection back."""
        await self._response.aclose()
