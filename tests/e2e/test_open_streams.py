"""Answers that go on, many at once: whatever kind they are, nobody else waits for them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from door_kit import PLAN, REVIEW, SLEEP, WORK, Door, DoorWorld
from remit.api._app import OPERATIONS

RUNS = "/api/v1/runs"
ASKED = {"binding": "reviewed", "prompt": "Mend it."}
MESSAGES = [{"role": "user", "content": "Mend it."}]
CHAT = {"model": "reviewed", "messages": MESSAGES}
RESPONSE = {"model": "reviewed", "input": "Mend it."}
MESSAGE = {"model": "reviewed", "max_tokens": 100, "messages": MESSAGES}
RETRY = {"x-stainless-retry-count": "1"}
READERS = 4
"""Connections by which a store reads."""


def request(door: Door, method: str, path: str, body: Any = None, **headers: str) -> bytes:
    """What a client sends."""
    text = b"" if body is None else json.dumps(body).encode()
    lines = {"Host": f"127.0.0.1:{door.port}", "Authorization": f"Bearer {door.secret}", **headers}
    if body is not None:
        lines |= {"Content-Type": "application/json", "Content-Length": str(len(text))}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + text


async def long_answer(kind: str, door: Door, client: httpx2.AsyncClient) -> bytes:
    """A request whose answer lasts as long as its run; each that is sent again waits for the same one."""
    if kind in {"chat", "responses", "messages"}:
        door_of = {
            "chat": ("/v1/chat/completions", CHAT),
            "responses": ("/v1/responses", RESPONSE),
            "messages": ("/v1/messages", MESSAGE),
        }
        return request(door, "POST", *door_of[kind], **RETRY)
    if kind.endswith("streamed"):
        door_of = {
            "chat streamed": ("/v1/chat/completions", CHAT),
            "responses streamed": ("/v1/responses", RESPONSE),
            "messages streamed": ("/v1/messages", MESSAGE),
        }
        path, body = door_of[kind]
        return request(door, "POST", path, {**body, "stream": True}, **RETRY)
    if kind == "response read":
        answer = await client.post("/v1/responses", json={**RESPONSE, "background": True})
        return request(door, "GET", f"/v1/responses/{answer.json()['id']}?stream=true")
    if kind == "wait":
        return request(door, "POST", f"{RUNS}?wait_ms=60000", ASKED, **{"Idempotency-Key": "k-1"})
    run = (await client.post(RUNS, json=ASKED)).json()["id"]
    if kind == "page":
        return request(door, "GET", f"/runs/{run}/live", Cookie=f"remit_key={door.secret}")
    return request(door, "GET", f"{RUNS}/{run}/events")


@pytest.mark.parametrize(
    ("kind", "at_once"),
    [
        ("events", 100),
        ("page", 4 * READERS),
        ("wait", 4 * READERS),
        ("chat", 4 * READERS),
        ("chat streamed", 4 * READERS),
        ("responses", 4 * READERS),
        ("responses streamed", 4 * READERS),
        ("response read", 4 * READERS),
        ("messages", 4 * READERS),
        ("messages streamed", 4 * READERS),
    ],
)
async def test_open_streams_hold_no_store_connection(tmp_path: Path, kind: str, at_once: int) -> None:
    """R71: while many of a kind are open, also past their signs of life, every plain call answers."""
    world = DoorWorld(home=tmp_path, replies=(PLAN, SLEEP, WORK, REVIEW), door={"keep_alive_s": 0.2})
    async with world.open() as door, door.client() as client:
        sent = await long_answer(kind, door, client)
        writers: list[asyncio.StreamWriter] = []
        try:
            for number in range(at_once):
                _, writer = await asyncio.open_connection("127.0.0.1", door.port)
                writer.write(sent)
                writers.append(writer)
                async with asyncio.timeout(60):
                    while number == 0 and not (await client.get(RUNS)).json()["data"]:
                        await asyncio.sleep(0.02)
            async with asyncio.timeout(60):
                while door.app.traffic.open["request"] < at_once:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(
                1.0
            )  # the first second of remembering a key is over, and signs of life are due
            (run,) = (one["id"] for one in (await client.get(RUNS)).json()["data"])
            for operation in OPERATIONS:
                if operation.method == "GET":
                    path = operation.path.replace("{name:path}", "plan").replace("{id}", run)
                    answer = await client.get(path, headers={"Accept": "application/json"})
                    assert answer.status_code in {200, 404, 409}, (path, answer.text)
            assert door.app.traffic.open["request"] >= at_once, "they are still open"
            cancelled = await client.post(f"{RUNS}/{run}/cancel", json={})
            assert cancelled.json()["run"]["status"] == "cancelled"
        finally:
            for writer in writers:
                writer.close()
