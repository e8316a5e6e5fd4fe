"""Keys and other secrets of callers: in no log, at whatever level, and in no answer."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from door_kit import DoorWorld

RUNS = "/api/v1/runs"
PATHS = (RUNS, "/v1/chat/completions", "/v1/responses", "/v1/messages", "/mcp", "/login", "/nowhere", "/")
UNKNOWN = ("rk_" + "q7_-" * 10 + "q7_", "sk-test-0123456789abcdef01234567", "rk_Ab+/Cd==Ef+/Gh==", "k7zQxV")
"""One of the right shape, which this host doesn't know, and those of other services."""


def ways(secret: str) -> list[tuple[dict[str, str], dict[str, str], Any]]:
    """Where callers put a secret, also by mistake: headers, query, body."""
    return [
        ({"Authorization": f"Bearer {secret}"}, {}, {}),
        ({"Authorization": f"Basic {secret}"}, {}, {}),
        ({"Authorization": secret}, {}, {}),
        ({"x-api-key": secret}, {}, {}),
        ({"Cookie": f"remit_key={secret}"}, {}, {}),
        ({"Origin": f"http://{secret}.example"}, {}, {}),
        ({"Last-Event-ID": secret, "Idempotency-Key": secret * 9}, {}, {}),
        ({}, {"api_key": secret}, {}),
        ({}, {"wait_ms": secret, "limit": secret, "cursor": secret}, {}),
        (
            {},
            {},
            {"binding": "reviewed", "prompt": "x", "on_busy": secret, "limits": secret},
        ),
        ({}, {}, {"model": "reviewed", "messages": secret, "input": 1, "max_tokens": secret}),
        ({}, {}, {"binding": "reviewed", "prompt": "x", "webhook": f"https://me:{secret}@example.org/"}),
        ({}, {}, f'{{"prompt": "{secret}'),
    ]


async def test_secret_of_a_caller_is_in_no_log_and_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R79: with debug logs on; a key in the query isn't taken as one, and is told to nobody either."""
    caplog.set_level(logging.DEBUG)
    (tmp_path / "secret").write_text("whsec_" + "a2tra" * 8)
    signs = {"webhook_secret_file": str(tmp_path / "secret")}
    for name in ("httpx2", "httpcore2", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)  # this test's own client
    async with DoorWorld(home=tmp_path, host_table=signs).open() as door:
        told: list[str] = []
        async with door.client("") as client:
            for path in PATHS:
                for secret in (door.secret, *UNKNOWN):
                    for headers, query, body in ways(secret):
                        sent = body if isinstance(body, str) else json.dumps(body)
                        typed = {"Content-Type": "application/json", **headers}
                        keyed = {"Authorization": f"Bearer {door.secret}"} if body or query else {}
                        for more in ({}, keyed):
                            answer = await client.post(
                                path, content=sent, params=query, headers={**more, **typed}
                            )
                            told.append(f"{dict(answer.headers)}\n{answer.text}")
                            answer = await client.get(path, params=query, headers={**more, **headers})
                            told.append(f"{dict(answer.headers)}\n{answer.text}")
                            if query.get("api_key") and not more and path.startswith(RUNS):
                                assert answer.status_code == 401, "a key in the query is none"
    logged = [f"{record.getMessage()} {record.exc_text or ''} {record.args}" for record in caplog.records]
    for secret in (door.secret, *UNKNOWN):
        for text in (*told, *logged):
            assert secret not in text, text[:2_000]


async def test_what_is_no_message_of_the_protocol_opens_no_session(tmp_path: Path) -> None:
    """R79, R73: `/mcp` says in two lines that it isn't one, and shows nothing of it."""
    bodies = (
        "", "{", "[]", "1", "null", '{"jsonrpc": "2.0"}', '{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
        '{"jsonrpc": "2.0", "id": true, "method": "ping"}', '{"jsonrpc": "2.0", "id": 1, "method": 2}',
        '{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}',
        '{"jsonrpc": "2.0", "id": 1, "result": 1}', '{"jsonrpc": "2.0", "id": 1, "error": {"code": "x"}}',
        '[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', '{"jsonrpc": "2.0", "id": NaN, "method": "ping"}',
    )  # fmt: skip
    async with DoorWorld(home=tmp_path).open() as door, door.client() as client:
        for body in bodies:
            answer = await client.post("/mcp", content=body, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["id"]) == (400, None), body
            assert answer.json()["error"]["code"] in {-32_700, -32_600}
            assert len(answer.text) < 150
            assert "mcp-session-id" not in answer.headers
