"""Requests below the SDK: the same headers and address as the SDK's own, and the same chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import httpx2
import pytest
from openai.types.chat import ChatCompletionChunk

from remit.models import ProviderSettings
from remit.models._openai_sdk import make_openai_client, openai_requests
from remit.models._plain_client import StreamError, read_chunk
from remit.models._plain_requests import RecordStream, RefusedError
from remit.models._sdk_http import make_observed
from remit.models._transport import CURRENT, Waits
from remit.primitives import Secret

CHUNK: dict[str, Any] = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "Hi", "extra_content": {"a": [1]}}, "finish_reason": None}],
    "usage": None,
}


class Unobserved:
    """A record that lets everything pass."""

    waits = Waits(first_byte_s=5, idle_s=5)
    ended = False
    complete = True
    lines_of_json = False

    def sends(self, request: httpx2.Request) -> None:
        """Anything may go out."""

    def answered(self, status: int, headers: httpx2.Headers) -> None:
        """Not noted."""

    def opened(self, body: httpx2.AsyncByteStream) -> None:
        """Not noted."""

    def refused(self, body: bytes) -> None:
        """Not noted."""

    def failed(self, error: Exception, *, connected: bool) -> None:
        """Not noted."""

    def feed(self, data: bytes) -> bytes:
        """As it came."""
        return data

    def feed_whole(self, body: bytes) -> bytes:
        """As it came."""
        return body

    def finish(self) -> bytes:
        """Nothing is left."""
        return b""

    def note_tail(self, data: bytes | None) -> None:
        """Not noted."""


def settings(key: str | None = "sk-test") -> ProviderSettings:
    return ProviderSettings(
        name="own",
        kind="openai-compatible",
        base_url="http://127.0.0.1:9/v1",
        api_key=Secret(key) if key else None,
        headers={"X-Team": "blue"},
    )


@pytest.mark.parametrize("key", ["sk-test", None])
async def test_a_plain_request_is_the_sdks_own(key: str | None) -> None:
    """Address, headers and body are those that the SDK would send; without a key none is sent."""
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, content=f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n".encode())

    transport = make_observed(settings(key), httpx2.MockTransport(answer))
    client = make_openai_client(settings(key), transport)
    requests = openai_requests(client, transport, "chat/completions", settings(key))
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "é"}], "stream": True}
    token = CURRENT.set(Unobserved())
    try:
        theirs = await client.chat.completions.create(**body, extra_headers={"User-Agent": "remit/1"})
        chunks = [chunk async for chunk in theirs]
        for _ in range(2):
            ours = RecordStream(await requests.send(body, {"User-Agent": "remit/1"}), read_chunk)
            assert [chunk.model_dump() async for chunk in ours] == [chunk.model_dump() for chunk in chunks]
            await ours.close()
    finally:
        CURRENT.reset(token)
    await client.close()
    first, *others = seen
    assert ("authorization" in first.headers) is (key is not None)
    for other in others:
        assert (other.method, other.url, json.loads(other.content)) == ("POST", first.url, body)
        assert _said(other.headers) == _said(first.headers)


def _said(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name != "content-length"}


async def test_an_error_status_is_raised() -> None:
    """What answers with an error has no records."""
    inner = httpx2.MockTransport(lambda _: httpx2.Response(429, content=b"{}"))
    transport = make_observed(settings(), inner)
    client = make_openai_client(settings(), transport)
    requests = openai_requests(client, transport, "chat/completions", settings())
    token = CURRENT.set(Unobserved())
    try:
        with pytest.raises(RefusedError, match="429"):
            await requests.send({"model": "m"}, {})
    finally:
        CURRENT.reset(token)
    await client.close()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"created": None},
        {"created": 1.5},
        {"object": "odd", "added": {"deep": [1, None]}},
        {"choices": [{"index": 0, "delta": {"role": "robot", "content": "x"}, "finish_reason": "eos"}]},
        {"choices": [{"index": None, "delta": None, "finish_reason": "stop"}]},
        {"usage": {"prompt_tokens": None, "completion_tokens": 3}},
        {"usage": {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4, "cost": 0.1}},
    ],
)
def test_a_chunk_is_read_as_the_sdk_reads_it(changes: dict[str, Any]) -> None:
    """Servers that keep to their own shape of a chunk are read as far as the SDK reads them."""
    value = {**CHUNK, **changes}
    expected = cast("Any", ChatCompletionChunk).construct(**value)
    read = read_chunk(json.dumps(value))
    assert read.model_dump(warnings=False) == expected.model_dump(warnings=False)


@pytest.mark.parametrize("value", [{"error": {"message": "no"}}, {**CHUNK, "error": "no"}])
def test_an_error_in_the_stream_ends_it(value: dict[str, Any]) -> None:
    """A stream that says an error isn't read on."""
    with pytest.raises(StreamError):
        read_chunk(json.dumps(value))
