"""What a client library repeats after its host was started anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from door_kit import DoorWorld

RETRY = {"x-stainless-retry-count": "1"}
MESSAGE: list[dict[str, str]] = [{"role": "user", "content": "What is it?"}]
CALLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "answer", "messages": MESSAGE},
    "/v1/responses": {"model": "answer", "input": "What is it?"},
    "/v1/messages": {"model": "answer", "max_tokens": 100, "messages": MESSAGE},
}


@pytest.mark.parametrize("path", CALLS)
async def test_repeated_call_joins_the_run_of_the_host_before(tmp_path: Path, path: str) -> None:
    """R63: an answer that was lost with its host isn't paid for twice; any other call starts its own."""
    world = DoorWorld(
        home=tmp_path,
        replies=({"stage": "work", "text": "It."},),
        bindings={"answer": {"profile": "answer"}},
    )
    body = CALLS[path]
    async with world.open() as door:
        secret = await door.add_key("caller")
        async with door.client(secret) as client:
            first = await client.post(path, json=body)
            assert first.status_code == 200
            run_id = first.headers["x-remit-run-id"]
    async with world.open(key_name="again") as door, door.client(secret) as client, door.client() as other:
        joined = await client.post(path, json=body, headers=RETRY)
        assert (joined.status_code, joined.headers["x-remit-run-id"]) == (200, run_id)
        assert joined.json() == first.json()
        for asking, sent, headers in (
            (client, body, {}),
            (client, {**body, "temperature": 1}, RETRY),
            (other, body, RETRY),
        ):
            own = await asking.post(path, json=sent, headers=headers)
            assert (own.status_code, own.headers["x-remit-run-id"] == run_id) == (200, False)
        newest = await client.post(path, json=body, headers=RETRY)
        assert newest.headers["x-remit-run-id"] != run_id
        assert len((await client.get("/api/v1/runs")).json()["data"]) == 4


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("named", [True, False])
async def test_repeated_call_finds_its_run_though_its_model_is_gone(
    tmp_path: Path, path: str, named: bool
) -> None:
    """R63: an answer that is there is given again, streamed too; nothing new, and nothing to another key."""
    world = DoorWorld(
        home=tmp_path,
        replies=({"stage": "work", "text": "It."},),
        bindings={"answer": {"profile": "answer"}},
    )
    body, key = CALLS[path], {"Idempotency-Key": "k-1"} if named else {}
    async with world.open() as door:
        secret = await door.add_key("caller")
        async with door.client(secret) as client:
            first = await client.post(path, json=body, headers=key)
            assert first.status_code == 200
    world.bindings = {"other": {"profile": "answer"}}
    async with world.open(key_name="again") as door, door.client(secret) as client:
        again = await client.post(path, json=body, headers=key or RETRY)
        assert (again.status_code, again.json()) == (200, first.json())
        other = json.loads(json.dumps(body).replace("is it", "else"))
        for sent, headers in ((body, {}), (other, key or RETRY)):
            refused = await client.post(path, json=sent, headers=headers)
            assert refused.status_code == 404, refused.text
        bound = await door.add_key("bound", bindings=("other",))
        async with door.client(bound) as theirs:
            assert (await theirs.post(path, json=body, headers=key or RETRY)).status_code == 404
        assert len((await client.get("/api/v1/runs")).json()["data"]) == 1


async def test_stored_response_is_streamed_though_its_model_is_gone(tmp_path: Path) -> None:
    """R64: what was stored can be read again in every form."""
    world = DoorWorld(
        home=tmp_path,
        replies=({"stage": "work", "text": "It."},),
        bindings={"answer": {"profile": "answer"}},
    )
    async with world.open() as door:
        secret = await door.add_key("caller")
        async with door.client(secret) as client:
            first = await client.post("/v1/responses", json=CALLS["/v1/responses"])
    world.bindings = {"other": {"profile": "answer"}}
    async with world.open(key_name="again") as door, door.client(secret) as client:
        read = await client.get(f"/v1/responses/{first.json()['id']}", params={"stream": "true"})
    assert read.status_code == 200
    assert "response.completed" in read.text
