"""The part of the Bedrock adapter that sends; imported in a thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx2

from remit.models._aws_signing import sign
from remit.models._bedrock_exchange import ConverseExchange
from remit.models._plain_requests import RefusedError
from remit.models._port import Delta
from remit.models._sdk_http import make_observed, make_timeout, own_headers, user_agent, waits_of
from remit.models._settings import ProviderSettings
from remit.models._transport import CURRENT


class BedrockHttp:
    """One region's door."""

    def __init__(
        self,
        settings: ProviderSettings,
        *,
        now: Callable[[], datetime],
        inner: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.waits = waits_of(settings)
        self._settings = settings
        self._now = now
        self._transport = make_observed(settings, inner)
        self._timeout = make_timeout(settings).as_dict()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def send(
        self,
        model: str,
        exchange: ConverseExchange,
        *,
        body: Mapping[str, Any],
        on_delta: Callable[[Delta], None],
    ) -> None:
        """Send one request and read the reply into its exchange.

        Raises:
            RefusedError: The answer is an error.
            httpx2.TransportError: The connection broke, or took too long.
        """
        request = self._request(model, body)
        token = CURRENT.set(exchange)
        try:
            response = await self._transport.handle_async_request(request)
            if response.status_code != 200:
                raise RefusedError(f"HTTP {response.status_code}")
            stream = response.stream
            assert isinstance(stream, httpx2.AsyncByteStream)
            async for _ in stream:
                for delta in exchange.take_deltas():
                    on_delta(delta)
        finally:
            CURRENT.reset(token)

    def _request(self, model: str, body: Mapping[str, Any]) -> httpx2.Request:
        headers = {
            "user-agent": user_agent(),
            "accept": "application/vnd.amazon.eventstream",
            "accept-encoding": "identity",
            "content-type": "application/json",
            **own_headers(self._settings),
        }
        url = httpx2.URL(f"{self._settings.url}/model/{quote(model, safe='')}/converse-stream")
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        request = httpx2.Request(
            "POST", url, headers=headers, content=content, extensions={"timeout": self._timeout}
        )
        request.headers.update(self._authority(request, content))
        return request

    def _authority(self, request: httpx2.Request, content: bytes) -> dict[str, str]:
        """The headers that say who asks: a key, or a signature."""
        key, aws = self._settings.api_key, self._settings.aws
        if key is not None:
            return {"authorization": f"Bearer {key.reveal()}"}
        if aws is None:
            return {}
        return sign(
            aws,
            method=request.method,
            host=request.headers["host"],
            path=request.url.raw_path.decode(),
            headers={"content-type": request.headers["content-type"]},
            body=content,
            region=self._settings.location or "",
            service="bedrock",
            now=self._now(),
        )
