"""Who may knock: keys, scopes, hosts, origins, types and sizes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from door_kit import DIRECT, DoorWorld, raw
from remit.api import OPERATIONS, new_secret

BODY = {"binding": "direct", "prompt": "Mend it."}
RUNS = "/api/v1/runs"


@pytest.fixture
def world(tmp_path: Path) -> DoorWorld:
    return DoorWorld(home=tmp_path, replies=DIRECT)


async def test_every_call_but_the_named_ones_needs_a_key(world: DoorWorld) -> None:
    """R77: on loopback too; a missing, malformed, unknown, expired or revoked key is told the same way."""
    async with world.open() as door:
        past = datetime.now(UTC) - timedelta(seconds=1)
        expired = await door.add_key("expired", expires_at=past)
        revoked = await door.add_key("revoked")
        await door.host.store.revoke_key("revoked")  # type: ignore[attr-defined] - a SQLite store
        bad = {"": None, "Basic x": "x", "Bearer nope": "nope", f"Bearer {new_secret()}": "u"}
        async with door.client("") as client:
            for operation in OPERATIONS:
                path = operation.path.replace("{id}", "x").replace("{name:path}", "x")
                answer = await client.request(operation.method, path)
                if operation.scope is None:
                    assert answer.status_code == 200, path
                    continue
                assert answer.status_code == 401, path
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert answer.json()["code"] == "unauthenticated"
            for header in [*bad, f"Bearer {expired}", f"Bearer {revoked}"]:
                answer = await client.get(RUNS, headers={"Authorization": header} if header else {})
                assert answer.status_code == 401, header


async def test_scopes_bound_what_a_key_may_do(world: DoorWorld) -> None:
    """A key does what its scopes say and no more: 403 names the scope that it lacks."""
    async with world.open() as door:
        for scope in ("run", "read", "admin", "node"):
            secret = await door.add_key(f"only-{scope}", scopes=(scope,))
            async with door.client(secret) as client:
                for operation in OPERATIONS:
                    if operation.scope in (None, scope):
                        continue
                    path = operation.path.replace("{id}", "x").replace("{name:path}", "x")
                    answer = await client.request(operation.method, path)
                    assert answer.status_code == 403, (scope, path)
                    assert f"`{operation.scope}`" in answer.json()["detail"]


async def test_key_narrows_what_its_requests_get(world: DoorWorld) -> None:
    """Bindings, money and places of a key hold for each of its runs."""
    async with world.open() as door:
        secret = await door.add_key("narrow", bindings=("direct",), max_cost_usd="0.5", max_running=1)
        async with door.client(secret) as client:
            other = await client.post(RUNS, json={**BODY, "binding": "reviewed"})
            assert (other.status_code, other.json()["code"]) == (404, "not_found")
            names = [one["name"] for one in (await client.get("/api/v1/bindings")).json()["data"]]
            assert names == ["direct"]
            body = {**BODY, "limits": {"max_cost_usd": 3}}
            run = (await client.post(RUNS, json=body, params={"wait_ms": 30_000})).json()
            assert float(run["limits"]["max_cost_usd"]) == 0.5
            assert run["status"] == "completed"


async def test_foreign_pages_and_other_names_are_refused(world: DoorWorld) -> None:
    """R77: Host is matched exactly; a foreign Origin may not act, nor may another site's page."""
    async with world.open() as door, door.client() as client:
        own = f"http://127.0.0.1:{door.port}"
        port = door.port
        for host in ("evil.example", f"127.0.0.1.evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port}.", ""):
            answer = await client.get(RUNS, headers={"Host": host})
            assert (answer.status_code, answer.json()["code"]) == (421, "unknown_host"), host
        for host in (f"localhost:{door.port}", f"LOCALHOST:{door.port}", f"[::1]:{door.port}"):
            assert (await client.get(RUNS, headers={"Host": host})).status_code == 200, host
        for origin in (
            "https://evil.example",
            "null",
            f"{own}.evil.example",
            f"https://127.0.0.1:{door.port}",
        ):
            answer = await client.post(RUNS, json=BODY, headers={"Origin": origin})
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), origin
        for site in ("cross-site", "same-site"):
            answer = await client.post(RUNS, json=BODY, headers={"Sec-Fetch-Site": site})
            assert answer.status_code == 403
        answer = await client.post(RUNS, json=BODY, headers={"Origin": own}, params={"dry_run": "1"})
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers


async def test_only_json_is_read(world: DoorWorld) -> None:
    """R77: what a form could send is refused by its type."""
    async with world.open() as door, door.client() as client:
        for media in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "",
        ):
            answer = await client.post(
                RUNS, content=b'{"prompt": "x"}', headers={"Content-Type": media} if media else {}
            )
            assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media"), media
        answer = await client.post(
            RUNS, content=b"{}", headers={"Content-Type": "application/json", "Content-Encoding": "gzip"}
        )
        assert answer.status_code == 415


async def test_size_is_bounded_without_reading_it(world: DoorWorld) -> None:
    """R73: a body over the bound is 413, by its stated length at once and by its bytes as they come."""
    world.door = {"max_body_bytes": 10_000}
    async with world.open() as door, door.client() as client:
        answer = await client.post(RUNS, json={**BODY, "prompt": "x" * 20_000})
        assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
        head = (
            f"POST {RUNS} HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nAuthorization: Bearer {door.secret}\r\n"
            "Content-Type: application/json\r\n"
        )
        told = await raw(door.port, f"{head}Content-Length: 99999999999\r\n\r\n{{".encode())
        assert told.startswith(b"HTTP/1.1 413 ")
        chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
        told = await raw(door.port, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 4)
        assert told.startswith(b"HTTP/1.1 413 ")
        assert (await client.get("/healthz")).status_code == 200


async def test_slow_senders_are_cut(world: DoorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head or a body that never comes ends its connection, and nobody else's."""
    from remit.api._protocol import BoundedProtocol

    monkeypatch.setattr(BoundedProtocol, "header_timeout_s", 0.3)
    world.door = {"body_timeout_s": 0.3}
    async with world.open() as door, door.client() as client:
        assert await raw(door.port, b"") == b""
        told = await raw(door.port, b"GET /healthz HTTP/1.1\r\nHost: ")
        assert told.startswith(b"HTTP/1.1 408 ")
        head = (
            f"POST {RUNS} HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nAuthorization: Bearer {door.secret}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        told = await raw(door.port, head.encode())
        assert told.startswith(b"HTTP/1.1 408 ")
        assert b'"too_slow"' in told
        assert (await client.get("/healthz")).status_code == 200


async def test_what_isnt_http_is_answered_as_a_problem(world: DoorWorld) -> None:
    """R73: garbage, endless heads and doubled headers get an answer in the form of every other error."""
    async with world.open() as door:
        told = await raw(door.port, b"\x16\x03\x01 hello\r\n\r\n")
        assert told.startswith(b"HTTP/1.1 400 ")
        assert b'"malformed_request"' in told
        endless = b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000
        told = await raw(door.port, endless)
        assert told.startswith(b"HTTP/1.1 431 ")
        head = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nConnection: close\r\n"
        told = await raw(door.port, f"{head}Host: evil.example\r\n\r\n".encode())
        assert told.startswith(b"HTTP/1.1 400 ")
