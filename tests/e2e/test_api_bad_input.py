"""Whatever comes over the wire gets a clean error: the same shape always, no traceback, no path, no hang."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from door_kit import DIRECT, Door, DoorWorld
from remit.api import OPERATIONS

KEYS = {"type", "title", "status", "code", "detail", "param", "retryable", "request_id"}
BODY = '{"binding": "direct", "prompt": "x"'
DEEP = "[" * 100_000


@pytest.fixture
async def door(tmp_path: Path) -> AsyncGenerator[Door]:
    async with DoorWorld(home=tmp_path, replies=DIRECT).open() as door:
        yield door


@pytest.fixture
async def client(door: Door) -> AsyncGenerator[httpx2.AsyncClient]:
    async with door.client() as client:
        yield client


def check_problem(answer: httpx2.Response, *, where: object) -> dict[str, Any]:
    """An error in its one form, which shows nothing of the host's inside."""
    assert answer.headers["content-type"] == "application/problem+json", where
    problem = answer.json()
    assert set(problem) == KEYS, where
    assert problem["status"] == answer.status_code, where
    assert problem["request_id"] == answer.headers["x-request-id"], where
    for inside in ("Traceback", 'File "', ".py", "/remit/", "pydantic", "sqlite"):
        assert inside not in answer.text, where
    return problem


MALFORMED = {
    "broken": "{",
    "not an object": "[]",
    "text": '"x"',
    "null": "null",
    "two values": "{} {}",
    "NaN": BODY + ', "metadata": {"x": NaN}}',
    "Infinity": BODY + ', "metadata": {"x": -Infinity}}',
    "overflow": BODY + ', "metadata": {"x": 1e999}}',
    "doubled key": BODY + ', "prompt": "y"}',
    "deep": BODY + ', "metadata": {"x": ' + DEEP + "}}",
    "deep and closed": BODY + ', "metadata": {"x": ' + "[" * 300 + "]" * 300 + "}}",
    "many digits": BODY + ', "metadata": {"x": ' + "9" * 5_000 + "}}",
    "not UTF-8": b'{"prompt": "\xff\xfe"}',
    "UTF-16": '{"prompt": "x"}'.encode("utf-16"),
    "empty": "",
    "unknown field": BODY + ', "colour": "red"}',
    "unknown limit": BODY + ', "limits": {"max_colours": 1}}',
    "zero limit": BODY + ', "limits": {"wall_clock_ms": 0}}',
    "text for a number": BODY + ', "limits": {"wall_clock_ms": "10"}}',
    "no prompt": '{"binding": "direct"}',
    "blank prompt": '{"binding": "direct", "prompt": " \\n"}',
    "prompt and content": BODY + ', "content": []}',
    "bad id": BODY + ', "id": "a/b"}',
    "long id": BODY + ', "id": "' + "a" * 129 + '"}',
    "surrogate key": BODY + ', "\\ud800": 1}',
    "unknown binding": '{"binding": "nope\\ud800", "prompt": "x"}',
    "unknown session word": BODY + ', "on_busy": "wait"}',
    "a webhook without a secret": BODY + ', "webhook": "https://example.com/x"}',
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_bodies(client: httpx2.AsyncClient, name: str) -> None:
    """R73, R84, R85: JSON that can't be taken, and fields that can't be meant, are 4xx with a reason."""
    content = MALFORMED[name]
    headers = {"Content-Type": "application/json"}
    answer = await client.post("/api/v1/runs", content=content, headers=headers)
    assert answer.status_code in {400, 404, 422}, answer.text
    problem = check_problem(answer, where=name)
    assert problem["retryable"] is False
    assert (await client.get("/api/v1/runs")).json()["data"] == []


async def test_big_numbers_come_back_exactly(client: httpx2.AsyncClient) -> None:
    """R85: integers of 64 bits are exact from end to end; larger ones are refused by name."""
    large = 2**63 - 1
    body = {"binding": "direct", "prompt": "x", "metadata": {"n": large}}
    run = (await client.post("/api/v1/runs", json=body)).json()
    assert run["metadata"]["n"] == large
    answer = await client.post("/api/v1/runs", json={**body, "metadata": {"n": large + 1}})
    assert (answer.status_code, answer.json()["param"]) == (422, "metadata.n")


async def test_malformed_paths_methods_and_parameters(client: httpx2.AsyncClient) -> None:
    """R73: 404, 405 with Allow, 422 with the parameter's name; for every call."""
    for path in (
        "/nope",
        "/api/v1",
        "/api/v1/runs/",
        "/api/v1/runs/x/nope",
        "/api/v2/runs",
        "/nope//",
        "/%00",
    ):
        answer = await client.get(path)
        assert answer.status_code == 404, path
        check_problem(answer, where=path)
    for name in ("x%00", "%2e%2e%2f", "%ff", "a" * 3_000, "%F0%9F%98%80", "x%2Fy", "..;", "%ED%A0%80"):
        answer = await client.get(f"/api/v1/runs/{name}")
        assert answer.status_code == 404, name
        check_problem(answer, where=name)
    for operation in OPERATIONS:
        path = operation.path.replace("{id}", "x").replace("{name:path}", "x")
        for method in ("PUT", "PATCH", "TRACE", "OPTIONS", "BREW"):
            answer = await client.request(method, path)
            assert answer.status_code in {400, 405}, (method, path)
            if answer.status_code == 405:
                assert operation.method in answer.headers["allow"]
                check_problem(answer, where=(method, path))
        if operation.scope is None:
            continue
        wrong = await client.request(operation.method, path, params={"colour": "red"})
        assert wrong.status_code == 422, path
        assert check_problem(wrong, where=path)["param"] == "colour"
        twice = await client.request(operation.method, f"{path}?a=1&a=2")
        assert twice.status_code == 422, path


PARAMETERS = [
    ("/api/v1/runs?limit=0", "limit"),
    ("/api/v1/runs?limit=501", "limit"),
    ("/api/v1/runs?limit=x", "limit"),
    ("/api/v1/runs?limit=1e9999", "limit"),
    ("/api/v1/runs?status=done", "status"),
    ("/api/v1/runs?status=", "status"),
    ("/api/v1/runs?created_after=yesterday", "created_after"),
    ("/api/v1/runs?created_after=2026-01-01T00:00:00", "created_after"),
    ("/api/v1/runs?cursor=nobody", "cursor"),
    ("/api/v1/runs?cursor=%00", "cursor"),
    ("/api/v1/sessions?cursor=%ED%A0%80", "cursor"),
    ("/api/v1/usage?group_by=colour", "group_by"),
    ("/api/v1/usage?from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z", "from"),
    ("/api/v1/work?after=", "after"),
    ("/api/v1/work?limit=x", "limit"),
]


@pytest.mark.parametrize(("path", "param"), PARAMETERS)
async def test_parameters_are_named(client: httpx2.AsyncClient, path: str, param: str) -> None:
    """R73: a wrong parameter is 422 and named."""
    answer = await client.get(path)
    assert answer.status_code == 422, answer.text
    assert check_problem(answer, where=path)["param"] == param


async def test_waits_and_keys_are_bounded(client: httpx2.AsyncClient) -> None:
    """A wait without end, a key that can't be one and a body where none belongs are refused."""
    body = {"binding": "direct", "prompt": "x"}
    for wait in ("-1", "99999999999", "x"):
        answer = await client.post("/api/v1/runs", json=body, params={"wait_ms": wait})
        assert (answer.status_code, answer.json()["param"]) == (422, "wait_ms")
    for key in (b"", b"a b", b"x" * 256, b"\xe9"):
        answer = await client.post("/api/v1/runs", json=body, headers=[(b"Idempotency-Key", key)])
        assert (answer.status_code, answer.json()["param"]) == (422, "Idempotency-Key"), key
    answer = await client.post("/api/v1/runs/x/acknowledge", json={"accepted": "yes"})
    assert (answer.status_code, answer.json()["param"]) == (422, "accepted")
    for text in ("", 7, None, "x" * 40_000):
        answer = await client.post("/api/v1/runs/x/input", json={"text": text})
        assert (answer.status_code, answer.json()["param"]) == (422, "text")
    answer = await client.post("/api/v1/work/x/cancel", json={"now": True})
    assert answer.status_code == 422
    answer = await client.post("/api/v1/runs/x/cancel", json={"reason": "x" * 2_000})
    assert (answer.status_code, answer.json()["param"]) == (422, "reason")


async def test_fault_of_ours_shows_nothing(
    door: Door, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R73: an error that nobody foresaw is 500 without its text; the log has it, and the next call works."""

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret inside")

    monkeypatch.setattr(door.host.store, "find_run", broken)
    answer = await client.get("/api/v1/runs/x")
    assert answer.status_code == 500
    check_problem(answer, where="fault")
    assert "secret inside" not in answer.text
    assert "secret inside" in caplog.text
    assert (await client.get("/healthz")).status_code == 200


async def test_full_host_says_when_to_come_back(tmp_path: Path) -> None:
    """R73: a host at its bound answers 503 with Retry-After, and an admitted request again with its run."""
    from door_kit import PLAN, REVIEW, SLEEP, WORK

    world = DoorWorld(
        home=tmp_path, replies=(PLAN, SLEEP, WORK, REVIEW), host_table={"max_running": 1, "max_queued": 1}
    )
    async with world.open() as door, door.client() as client:
        body = {"binding": "reviewed", "prompt": "x"}
        answers = [
            await client.post("/api/v1/runs", json=body, headers={"Idempotency-Key": f"k{number}"})
            for number in range(3)
        ]
        assert [answer.status_code for answer in answers] == [201, 201, 503]
        problem = check_problem(answers[2], where="full")
        assert (problem["code"], problem["retryable"]) == ("queue_full", True)
        assert int(answers[2].headers["retry-after"]) > 0
        again = await client.post("/api/v1/runs", json=body, headers={"Idempotency-Key": "k1"})
        assert (again.status_code, again.json()["id"]) == (200, answers[1].json()["id"])
