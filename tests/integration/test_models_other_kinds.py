"""Kinds azure, openrouter, ollama and vertex over real HTTP: what differs of each on the wire."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from model_kit import PROMPT, JumpingClock, MemoryLedger, ask, need_sdk, pool_for, request
from remit.errors import ProviderError
from remit.models import (
    AssistantMessage,
    ThinkingBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
    message_from_json,
    message_to_json,
)
from remit.testing import (
    AzureDialect,
    FakeProvider,
    FakeToolCall,
    GeminiDialect,
    OllamaDialect,
    OllamaModel,
    OpenAIChatDialect,
    OpenRouterDialect,
    Reply,
)

CALL = FakeToolCall(name="read_file", arguments='{"relative_path": "a.py"}')
LONG = UserMessage(text="The quick brown fox jumps over the lazy dog. " * 3_000)


def results(message: AssistantMessage) -> ToolResultsMessage:
    return ToolResultsMessage(
        results=tuple(
            ToolResult(tool_call_id=call.tool_call_id, name=call.name, content="found")
            for call in message.tool_calls
        )
    )


async def two_rounds(fake: FakeProvider, **settings: Any) -> AssistantMessage:
    """A call, its result, the answer; what went back is what the first reply was, also when it was stored."""
    async with pool_for(fake, **settings) as pool:
        first = await ask(pool)
        stored = message_from_json(json.loads(json.dumps(message_to_json(first.message))))
        second = await ask(pool, request(*PROMPT, stored, results(first.message)))
    assert [got.status for got in fake.requests] == [200, 200]
    assert second.message.text == "done"
    assert second.usage.coverage == "reported"
    return first.message


# ---- azure


@pytest.mark.parametrize("version", [None, "2024-10-21"])
async def test_azure(version: str | None) -> None:
    """The key in its own header; the newer path, or the deployment's with its dated version."""
    with FakeProvider([Reply(tool_calls=(CALL,)), "done"], dialect=AzureDialect(api_version=version)) as fake:
        await two_rounds(fake, kind="azure", model="gpt-4.1", api_version=version)
        got = fake.requests[0]
    assert got.headers["api-key"] == fake.api_key
    assert "authorization" not in got.headers
    assert "prompt_cache_key" not in got.json
    expected = "/openai/v1/chat/completions"
    if version is not None:
        expected = f"/openai/deployments/gpt-4.1/chat/completions?api-version={version}"
    assert got.path == expected


async def test_azure_says_when_to_come_back() -> None:
    """R52: milliseconds are kept as they are asked for."""
    clock = JumpingClock()
    with FakeProvider(
        [Reply(status=429, headers={"retry-after-ms": "7500"}), "ok"], dialect=AzureDialect()
    ) as fake:
        async with pool_for(fake, kind="azure", clock=clock) as pool:
            await ask(pool)
    assert 7.5 <= sum(clock.slept) <= 9


# ---- openrouter


async def test_openrouter() -> None:
    """R29, R30: signed reasoning goes back as it came; the vendor must honour every parameter."""
    thinking = Reply(thinking="Let me look at it.", tool_calls=(CALL,))
    with FakeProvider([thinking, "done"], dialect=OpenRouterDialect()) as fake:
        first = await two_rounds(fake, kind="openrouter", model="anthropic/claude-sonnet-4.6")
        one, two = (got.json for got in fake.requests)
    thought = next(block for block in first.blocks if isinstance(block, ThinkingBlock))
    assert thought.text == "Let me look at it."
    assert thought.details is not None
    sent = two["messages"][2]
    assert sent["reasoning_details"] == thought.details["reasoning_details"]
    assert len(sent["reasoning_details"]) == 1
    assert "reasoning" not in sent
    assert one["provider"] == {"require_parameters": True}


async def test_openrouter_cost_and_effort() -> None:
    """R18: what the gateway says it cost stays on the attempt; effort goes in its own field."""
    ledger = MemoryLedger()
    with FakeProvider(["ok"], dialect=OpenRouterDialect()) as fake:
        async with pool_for(fake, kind="openrouter", model="openai/gpt-5.2") as pool:
            await ask(pool, request(options={"reasoning_effort": "high"}), ledger=ledger)
        body = fake.requests[0].json
    assert body["reasoning"] == {"effort": "high"}
    assert "reasoning_effort" not in body
    assert ledger.last.usage.raw is not None
    assert ledger.last.usage.raw["cost"] == 0.00042


async def test_openrouter_to_another_model() -> None:
    """R29: one model's signed reasoning isn't shown to another behind the same gateway."""
    thinking = Reply(thinking="Hm, well.", text="so")
    with FakeProvider([thinking, "ok"], dialect=OpenRouterDialect()) as fake:
        async with pool_for(fake, kind="openrouter", model="vendor/one") as pool:
            first = await ask(pool)
        async with pool_for(fake, kind="openrouter", model="vendor/two") as pool:
            await ask(pool, request(*PROMPT, first.message, UserMessage(text="Go on.")))
        assert "reasoning_details" not in json.dumps(fake.requests[1].json)


# ---- ollama


async def test_ollama() -> None:
    """The window is asked for and set; calls and results in its own form; a long prompt is an error there."""
    dialect = OllamaDialect(models={"tiny:1b": OllamaModel(window_tokens=8_192)})
    with FakeProvider([Reply(tool_calls=(CALL,)), "done"], dialect=dialect) as fake:
        await two_rounds(fake, kind="ollama", model="tiny:1b", api_key=None)
        one, two = (got.json for got in fake.requests)
        assert [look.path for look in fake.looks] == ["/api/tags", "/api/show"]
    assert one["options"]["num_ctx"] == 8_192
    assert (one["truncate"], one["stream"]) == (False, True)
    assert one["tools"][0]["function"]["name"] == "read_file"
    assert two["messages"][2]["tool_calls"][0]["function"]["arguments"] == {"relative_path": "a.py"}
    assert (two["messages"][3]["role"], two["messages"][3]["tool_name"]) == ("tool", "read_file")


async def test_ollama_with_a_window_of_ones_own() -> None:
    """What the member says wins, options go where they belong, and `/v1` in the address does no harm."""
    with FakeProvider(["ok"], dialect=OllamaDialect()) as fake:
        member = {"context_window_tokens": 20_000}
        url = f"{fake.base_url}/v1"
        async with pool_for(
            fake, kind="ollama", model="tiny:1b", member=member, base_url=url, api_key=None
        ) as pool:
            options = {"temperature": 0.5, "seed": 7, "stop": ["END"]}
            await ask(pool, request(options=options, max_output_tokens=99))
        assert fake.looks == []
        sent = fake.requests[0].json["options"]
    assert sent == {"num_ctx": 20_000, "temperature": 0.5, "seed": 7, "stop": ["END"], "num_predict": 99}


async def test_ollama_streams() -> None:
    """Text and thoughts come as they are made, however the lines are cut."""
    deltas: list[Any] = []
    said = Reply(text="Grüße, 世界 \u2028", thinking="hm hm", chunk_count=3, piece_bytes=11)
    with FakeProvider([said], dialect=OllamaDialect()) as fake:
        async with pool_for(fake, kind="ollama", model="tiny:1b", api_key=None) as pool:
            reply = await ask(pool, deltas=deltas)
    assert reply.message.text == "Grüße, 世界 \u2028"
    assert len([delta for delta in deltas if delta.kind == "text"]) == 3
    assert "".join(delta.text for delta in deltas if delta.kind == "reasoning") == "hm hm"
    assert (reply.finish, reply.usage.coverage) == ("stop", "reported")


@pytest.mark.parametrize("silent", [False, True])
async def test_ollama_beyond_its_window(silent: bool) -> None:
    """A prompt that doesn't fit is `context_length`, also where an old server cuts it without a word."""
    dialect = OllamaDialect(models={"tiny:1b": OllamaModel(window_tokens=4_096)}, cuts_in_silence=silent)
    ledger = MemoryLedger()
    with FakeProvider(["ok"], dialect=dialect) as fake:
        async with pool_for(fake, kind="ollama", model="tiny:1b", api_key=None) as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, request(LONG), ledger=ledger)
    assert caught.value.reason == "context_length"
    assert len(ledger.ends) == 1
    if silent:
        assert "context_window_tokens" in str(ledger.last.detail)
        assert ledger.last.usage.input_tokens == 4_096


async def test_a_compatible_server_that_cuts_in_silence() -> None:
    """A server of another kind that reads too little is caught by its own count."""
    usage = {"prompt_tokens": 4_096, "completion_tokens": 5, "total_tokens": 4_101}
    with FakeProvider([Reply(text="ok", usage=usage)], dialect=OpenAIChatDialect(models=None)) as fake:
        async with pool_for(fake, kind="openai-compatible") as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, request(LONG))
    assert caught.value.reason == "context_length"


async def test_a_small_count_alone_is_no_cut() -> None:
    """A server that counts only what its cache didn't hold has cut nothing."""
    usage = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
    with FakeProvider([Reply(text="ok", usage=usage)], dialect=OpenAIChatDialect(models=None)) as fake:
        async with pool_for(fake, kind="openai-compatible") as pool:
            assert (await ask(pool, request(LONG))).message.text == "ok"


@pytest.mark.parametrize(
    ("reply", "status", "reason"),
    [
        (Reply(text="half", done=False), "cut", "cut"),
        (Reply(raw=b'{"error":"model runner has unexpectedly stopped"}\n'), "failed", "unavailable"),
        (Reply(raw=b"not json\n"), "failed", "protocol"),
        (Reply(text="x", finish="load"), "failed", "protocol"),
        (Reply(status=404), "refused", "unavailable"),
    ],
)
async def test_ollama_fails(reply: Reply, status: str, reason: str) -> None:
    """R69: a stream without its last line is a cut; an error line is one; each in our words."""
    ledger = MemoryLedger()
    with FakeProvider([reply] * 5, dialect=OllamaDialect()) as fake:
        async with pool_for(fake, kind="ollama", model="tiny:1b", api_key=None, clock=JumpingClock()) as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, ledger=ledger)
    assert (ledger.ends[0].status, caught.value.reason) == (status, reason)


async def test_ollama_without_tools() -> None:
    """A model that has no tools is asked in JSON from its own refusal on."""
    said = json.dumps({"thought": "t", "call": {"tool": "read_file", "arguments": {"relative_path": "a"}}})
    dialect = OllamaDialect(models={"tiny:1b": OllamaModel(capabilities=("completion",))})
    with FakeProvider([said], dialect=dialect) as fake:
        async with pool_for(fake, kind="ollama", model="tiny:1b", api_key=None) as pool:
            reply = await ask(pool)
        assert fake.requests[1].json["format"]["properties"]["call"]
    assert [call.name for call in reply.message.tool_calls] == ["read_file"]


# ---- vertex


async def test_vertex_with_a_key() -> None:
    """Gemini at the cloud's door, by a key."""
    need_sdk("vertex")
    dialect = GeminiDialect(vertex=True)
    with FakeProvider([Reply(thinking="hm", tool_calls=(CALL,)), "done"], dialect=dialect) as fake:
        await two_rounds(fake, kind="vertex", model="gemini-3.8-flash")
        path = fake.requests[0].path
    assert path == "/v1beta1/publishers/google/models/gemini-3.8-flash:streamGenerateContent?alt=sse"


@contextmanager
def token_server(token: str) -> Generator[str]:
    """Answers whoever asks with a login for a token, as the vendor's own server does."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.dumps({"access_token": token, "expires_in": 3_600, "token_type": "Bearer"}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


async def test_vertex_with_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gemini in a project of one's own: by the login of the machine, at the region's path."""
    need_sdk("vertex")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    dialect = GeminiDialect(vertex=True)
    with token_server(str(dialect.api_key)) as token_url:
        login = {
            "type": "service_account",
            "project_id": "own",
            "private_key_id": "1",
            "private_key": key.decode(),
            "client_email": "agent@own.example",
            "client_id": "1",
            "token_uri": token_url,
        }
        path = tmp_path / "login.json"
        path.write_text(json.dumps(login))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        with FakeProvider([Reply(tool_calls=(CALL,)), "done"], dialect=dialect) as fake:
            settings = {"project": "own", "location": "europe-west4", "api_key": None}
            await two_rounds(fake, kind="vertex", model="gemini-3.8-flash", **settings)
            got = fake.requests[0].path
    assert got.startswith("/v1beta1/projects/own/locations/europe-west4/publishers/google/models/")


async def test_vertex_without_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R56: a login that isn't there is `auth`, found before anything is sent, and asked for once."""
    need_sdk("vertex")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    ledger = MemoryLedger()
    with FakeProvider(["ok"], dialect=GeminiDialect(vertex=True)) as fake:
        async with pool_for(
            fake, kind="vertex", model="gemini-3.8-flash", project="own", api_key=None
        ) as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, ledger=ledger)
        assert fake.requests == []
    assert (caught.value.reason, ledger.statuses) == ("auth", ["failed"])
    assert ledger.last.usage.total_tokens == 0
