"""What no client library would send: framing, encodings and offers, byte by byte, at each door."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from door_kit import Door, DoorWorld, raw

NATIVE = ("/api/v1/runs", '{"binding": "answer", "prompt": "x"}', 201)
CHAT = ("/v1/chat/completions", '{"model": "answer", "messages": [{"role": "user", "content": "x"}]}', 200)
RESPONSES = ("/v1/responses", '{"model": "answer", "input": "x"}', 200)
MESSAGES = (
    "/v1/messages",
    '{"model": "answer", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}',
    200,
)
DOORS = (NATIVE, CHAT, RESPONSES, MESSAGES)
CHUNKED = "Transfer-Encoding: chunked\r\n"


@pytest.fixture
async def door(tmp_path: Path) -> AsyncGenerator[Door]:
    world = DoorWorld(
        home=tmp_path,
        replies=({"stage": "work", "text": "Yes."},),
        bindings={"answer": {"profile": "answer"}},
        door={"max_body_bytes": 100_000, "body_timeout_s": 1},
    )
    async with world.open() as door:
        yield door


def head(door: Door, path: str, more: str, *, closes: bool = True) -> bytes:
    close = "Connection: close\r\n" if closes else ""
    lines = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nAuthorization: Bearer {door.secret}\r\n"
        f"Content-Type: application/json\r\n{close}{more}\r\n"
    )
    return lines.encode()


def chunk(body: str, *, size: str | None = None) -> bytes:
    return f"{size or format(len(body), 'x')}\r\n{body}\r\n0\r\n\r\n".encode()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def check_form(answer: bytes, path: str) -> None:
    """The error in the words of its door, with nothing of the host's inside."""
    told = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert b"Traceback" not in answer
    if path.startswith("/api/"):
        assert told["code"] in {"malformed_request", "too_slow", "payload_too_large"}
    elif path == "/v1/messages":
        assert told["type"] == "error"
    else:
        assert {"message", "type", "code"} <= told["error"].keys()


BROKEN_BODIES = {
    "a chunk without a size": (CHUNKED, lambda body: chunk(body, size="zz"), 400),
    "a chunk larger than anything": (CHUNKED, lambda body: chunk(body, size="f" * 16), 408),
    "gzip, then chunks": ("Transfer-Encoding: gzip, chunked\r\n", chunk, 400),
    "another encoding": ("Transfer-Encoding: identity\r\n", str.encode, 400),
    "a body that stops": ("Content-Length: 5000\r\n", str.encode, 408),
    "a body that is announced too large": (
        "Content-Length: 999999999\r\nExpect: 100-continue\r\n",
        lambda body: b"",
        413,
    ),
    "chunks beyond the bound": (CHUNKED, lambda body: chunk("x" * 200_000), 413),
}


@pytest.mark.parametrize("name", BROKEN_BODIES)
async def test_broken_bodies_are_told_in_each_dialect(
    door: Door, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R73: framing that can't be read is the caller's mistake: it is answered, and no fault of ours."""
    caplog.set_level(logging.ERROR)
    more, encode, status = BROKEN_BODIES[name]
    async with asyncio.TaskGroup() as group:
        asked = {
            path: group.create_task(raw(door.port, head(door, path, more) + encode(body), wait_s=30))
            for path, body, _ in DOORS
        }
    for path, answer in asked.items():
        assert status_of(answer.result()) == status, (path, answer.result())
        check_form(answer.result(), path)
    assert caplog.records == []
    async with door.client() as client:
        assert (await client.get("/api/v1/runs")).json()["data"] == []


async def test_client_that_leaves_within_its_body_is_no_fault_of_ours(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """R79: whoever hangs up can't fill the log with tracebacks."""
    caplog.set_level(logging.WARNING)
    for path, body, _ in DOORS:
        _, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(head(door, path, "Content-Length: 500\r\n") + body.encode())
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        await writer.wait_closed()
    async with door.client() as client:
        assert (await client.get("/healthz")).status_code == 200
    await asyncio.sleep(0.1)
    assert [record.getMessage() for record in caplog.records] == []


HEADS = {
    "two lengths": "Content-Length: 2\r\nContent-Length: 2\r\n",
    "two lengths that differ": "Content-Length: 2\r\nContent-Length: 3\r\n",
    "a length and chunks": f"Content-Length: 2\r\n{CHUNKED}",
    "a negative length": "Content-Length: -2\r\n",
    "a length with a sign": "Content-Length: +2\r\n",
    "a length without an end": f"Content-Length: {'9' * 40}\r\n",
    "NUL in a header": "X-A: a\0b\r\nContent-Length: 2\r\n",
    "a folded header": "X-A: a\r\n b\r\nContent-Length: 2\r\n",
    "a space before the colon": "X-A : a\r\nContent-Length: 2\r\n",
    "two hosts": "Host: evil.example\r\nContent-Length: 2\r\n",
    "two types": "Content-Type: text/plain\r\nContent-Length: 2\r\n",
    "two keys": "Authorization: Bearer x\r\nContent-Length: 2\r\n",
    "chunks twice": f"{CHUNKED}{CHUNKED}",
}


@pytest.mark.parametrize("name", HEADS)
async def test_ambiguous_heads_are_refused(door: Door, name: str) -> None:
    """R73, R77: what two readers could read in two ways is read by none."""
    for path, _, _ in DOORS:
        answer = await raw(door.port, head(door, path, HEADS[name]) + b"{}", wait_s=30)
        assert status_of(answer) == 400, (path, answer)
        assert b"Traceback" not in answer


@pytest.mark.parametrize("offer", ["websocket", "h2c"])
@pytest.mark.parametrize("apart", [False, True])
async def test_offer_of_another_protocol_is_passed_over(door: Door, offer: str, apart: bool) -> None:
    """A request that offers an upgrade is answered as any other; its body isn't taken for the next one."""
    path, body, status = NATIVE
    upgrade = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {offer}\r\nHTTP2-Settings: AAMAAABk\r\n"
    first = head(door, path, f"{upgrade}Content-Length: {len(body)}\r\n", closes=False)
    last = head(door, path, f"Content-Length: {len(body)}\r\n") + body.encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    try:
        if apart:
            writer.write(first)
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.write(body.encode() + last)
        else:
            writer.write(first + body.encode() + last)
        async with asyncio.timeout(30):
            answers = await reader.read()
    finally:
        writer.close()
    assert answers.count(f"HTTP/1.1 {status} ".encode()) == 2
    async with door.client() as client:
        assert len((await client.get("/api/v1/runs")).json()["data"]) == 2


async def test_continue_is_said_before_the_body(door: Door) -> None:
    """A client that waits for `100 Continue` gets it, at each door, and then its answer."""
    for path, body, status in DOORS:
        more = f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        try:
            writer.write(head(door, path, more))
            async with asyncio.timeout(30):
                assert (await reader.readline()).startswith(b"HTTP/1.1 100 ")
                writer.write(body.encode())
                answer = await reader.read()
        finally:
            writer.close()
        assert f"HTTP/1.1 {status} ".encode() in answer
