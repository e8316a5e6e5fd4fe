"""How long a provider may keep us, what a caller's own end does, and the way there."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from chat_kit import COMPATIBLE, GOOD, USAGE, chunk, failure, stream, success
from model_kit import MemoryLedger, ask, pool_for, request
from remit.errors import ProviderError
from remit.models import Delta, TextBlock, UserMessage
from remit.testing import FakeProvider, FakeToolCall, Reply


async def test_a_provider_that_never_answers() -> None:
    """R53: nearest clock wins: first byte; each attempt ends by itself, and the reason is named."""
    started = time.monotonic()
    error, ledger, fake = await failure(Reply(delay_ms=60_000, repeat=True), first_byte_timeout_ms=150)
    assert error.reason == "unavailable"
    assert ledger.statuses == ["failed"] * 5
    assert "0.15 s" in (ledger.last.detail or "")
    assert {end.usage.coverage for end in ledger.ends} == {"interrupted"}, "it may have worked for us"
    assert time.monotonic() - started < 10
    assert all(item.wait() and item.hung_up for item in fake.requests)


async def test_a_head_without_body() -> None:
    """R53: a server that sends its headers at once and then nothing is bounded by the same clock."""
    _, ledger, _ = await failure(Reply(body_delay_ms=60_000, repeat=True), first_byte_timeout_ms=150)
    assert ledger.statuses == ["failed"] * 5


async def test_a_stream_that_falls_silent() -> None:
    """R53: the idle clock ends it; what came before is cut."""
    silent = Reply(raw=GOOD, break_after_bytes=60, break_how="hang")
    got, ledger = await success(silent, Reply(text="ok"), idle_timeout_ms=150)
    assert (got.message.text, ledger.statuses) == ("ok", ["cut", "completed"])
    assert "silent for 0.15 s" in (ledger.ends[0].detail or "")


async def test_a_byte_now_and_then_for_ever() -> None:
    """R53: no single wait is too long; the attempt's own bound, or the stage's, ends it."""
    dripping = Reply(raw=GOOD, piece_bytes=1, piece_delay_ms=40, repeat=True)
    error, ledger, _ = await failure(dripping, dialect=COMPATIBLE, idle_timeout_ms=5_000, call_timeout_ms=200)
    assert error.reason == "cut"
    assert "call_timeout_ms = 200" in (ledger.last.detail or "")
    ledger = MemoryLedger()
    with FakeProvider([dripping], dialect=COMPATIBLE) as fake:
        async with pool_for(fake) as pool:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await ask(pool, ledger=ledger)
        assert fake.requests[0].wait()
        assert fake.requests[0].hung_up
    assert ledger.statuses == ["cancelled"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(delay_ms=20_000),
        Reply(body_delay_ms=20_000),
        Reply(raw=GOOD, break_after_bytes=60, break_how="hang"),
    ],
    ids=["before the head", "before the body", "in the stream"],
)
async def test_a_cancel_hangs_up(reply: Reply) -> None:
    """R3, R4, S42: the provider sees the hang-up at once, the row ends, and nothing more is sent."""
    ledger = MemoryLedger()
    with FakeProvider([reply], dialect=COMPATIBLE) as fake:
        async with pool_for(fake) as pool:
            task = asyncio.get_running_loop().create_task(ask(pool, ledger=ledger))
            await asyncio.to_thread(fake.wait_for_requests, 1)
            await asyncio.sleep(0.1)
            task.cancel()
            started = time.monotonic()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert fake.requests[0].wait(2)
            assert time.monotonic() - started < 1
            assert fake.requests[0].hung_up
            await asyncio.sleep(0.05)
            assert len(fake.requests) == 1
    assert ledger.statuses == ["cancelled"]
    assert ledger.last.usage.coverage == "interrupted"
    assert ledger.last.code is None


async def test_a_cancel_keeps_the_usage_that_was_read() -> None:
    """R21: a lower bound, marked as interrupted."""
    raw = stream(chunk({"content": "a"}, usage=USAGE), chunk({"content": "b"}))
    ledger, deltas = MemoryLedger(), list[Delta]()
    with FakeProvider(
        [Reply(raw=raw, break_after_bytes=len(raw), break_how="hang")], dialect=COMPATIBLE
    ) as fake:
        async with pool_for(fake) as pool:
            task = asyncio.get_running_loop().create_task(ask(pool, ledger=ledger, deltas=deltas))
            while len(deltas) < 2:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    usage = ledger.last.usage
    assert (usage.input_tokens, usage.output_tokens, usage.coverage) == (100, 10, "interrupted")


async def test_a_connection_is_used_again() -> None:
    """A whole reply leaves its connection fit for the next request; a broken one doesn't spoil it."""
    with FakeProvider([Reply(text="ok", repeat=True)]) as fake:
        async with pool_for(fake) as pool:
            for _ in range(3):
                await ask(pool)
            assert fake.connection_count == 1


async def test_many_at_once() -> None:
    """No client library holds back what the pool lets through; every reply goes to its own caller."""
    calls = FakeToolCall(name="read_file")
    with FakeProvider(dialect=COMPATIBLE) as fake:
        for number in range(120):
            wanted = f"request {number}."

            def asks(item: Any, wanted: str = wanted) -> bool:
                return wanted in item.text

            fake.script(Reply(text=f"answer {number}.", tool_calls=(calls,), when=asks, delay_ms=300))
        async with pool_for(fake, kind="openai-compatible") as pool:
            started = time.monotonic()
            async with asyncio.TaskGroup() as group:
                asked = [
                    request(UserMessage(text=f"request {number}."), run_id=f"run_{number}")
                    for number in range(120)
                ]
                tasks = [group.create_task(ask(pool, item)) for item in asked]
            assert time.monotonic() - started < 10
    texts = [task.result().message.text for task in tasks]
    assert texts == [f"answer {number}." for number in range(120)]


async def test_a_reply_is_never_shared_between_keys() -> None:
    """The blocks of a reply name the provider that gave them."""
    got, _ = await success(Reply(text="x"))
    assert got.message.blocks == (TextBlock(text="x", provider="fake"),)


# The way there.


async def test_a_compressed_reply() -> None:
    """Compression that we didn't ask for is undone before anything is read."""
    packed = gzip.compress(GOOD)
    reply = Reply(raw=packed, headers={"content-encoding": "gzip"}, piece_bytes=11)
    got, _ = await success(reply)
    assert (got.message.text, got.usage.coverage) == ("whole", "reported")


async def test_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy that the environment names is used, unless the address is to be left out."""
    with FakeProvider([Reply(text="ok", repeat=True)]) as fake:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{nobody.getsockname()[1]}")
            monkeypatch.setenv("no_proxy", "")
            async with pool_for(fake) as pool:
                with pytest.raises(ProviderError) as caught:
                    await ask(pool)
            assert caught.value.reason == "unavailable"
            assert fake.requests == []
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with pool_for(fake) as pool:
            await ask(pool)
        assert len(fake.requests) == 1


async def test_a_proxy_that_is_configured() -> None:
    """A configured proxy gets the request with the whole address in it."""
    with FakeProvider() as proxy:
        url = proxy.base_url.removesuffix("/v1")
        async with pool_for(proxy, proxy=url, base_url="http://provider.invalid/v1") as pool:
            with pytest.raises(ProviderError):
                await ask(pool)
        assert proxy.requests[0].path == "http://provider.invalid/v1/chat/completions"


async def test_a_server_that_cannot_prove_who_it_is(tmp_path: Path) -> None:
    """R56: a certificate that nobody vouches for won't be better in a second: once, and nothing is sent."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    made = subprocess.run(
        [*command, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=False,
        capture_output=True,
    )
    if made.returncode != 0:
        pytest.skip("no openssl to make a certificate with")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def serve() -> None:
            while not seen:
                plain, _ = server.accept()
                plain.settimeout(3)
                try:
                    with context.wrap_socket(plain, server_side=True) as client:
                        asked = client.recv(65_536)
                        while asked and not asked.endswith(b"}"):  # head and body come apart
                            asked += client.recv(65_536)
                        if not asked:
                            continue  # it shook hands, didn't like what it saw, and left
                        seen.append(asked)
                        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(GOOD)}\r\n\r\n".encode()
                        client.sendall(head + GOOD)
                except OSError:
                    plain.close()

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}/v1"
        error, ledger, _ = await failure(base_url=url)
        assert (error.reason, ledger.statuses, seen) == ("unavailable", ["failed"], [])
        with FakeProvider() as fake:
            async with pool_for(fake, base_url=url, ca_file=certificate) as pool:
                assert (await ask(pool)).message.text == "whole"
        thread.join(10)
    assert len(seen) == 1


async def test_debug_logs_hold_no_key(caplog: pytest.LogCaptureFixture) -> None:
    """R79: with every library's debug log on, the key stands in none of their lines."""
    caplog.set_level(logging.DEBUG)
    with FakeProvider([Reply(status=401, echo_key=True), Reply(text="ok")]) as fake:
        async with pool_for(fake) as pool:
            with pytest.raises(ProviderError):
                await ask(pool)
            await ask(pool)
        lines = [record.getMessage() for record in caplog.records]
    assert any("chat/completions" in line for line in lines)
    assert not [line for line in lines if fake.api_key in line]
