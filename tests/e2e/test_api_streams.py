"""Streams of events: frames, signs of life, resuming, slow readers, and the host's end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from pathlib import Path

import pytest

from door_kit import DIRECT, LOOK, PLAN, REVIEW, REVIEWED, SLEEP, WORK, DoorWorld, frames_of, slowly

BODY = {"binding": "reviewed", "prompt": "Mend it."}


@pytest.fixture
def world(tmp_path: Path) -> DoorWorld:
    return DoorWorld(home=tmp_path, replies=REVIEWED)


async def test_stream_tells_the_whole_log_and_closes(world: DoorWorld) -> None:
    """R65, R66: headers that no proxy buffers or packs; numbers from 1 up by 1; the terminal is last."""
    async with world.open() as door, door.client() as client:
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        headers = {"Accept-Encoding": "gzip, br", "Accept": "text/event-stream"}
        answer = await client.get(f"/api/v1/runs/{run_id}/events", headers=headers)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert "content-encoding" not in answer.headers
        stored = [frame for frame in frames_of(answer.text) if "id" in frame]
        assert [int(frame["id"]) for frame in stored] == list(range(1, len(stored) + 1))
        last = json.loads(stored[-1]["data"])
        assert stored[-1]["event"] == last["type"] == "run.completed"
        view = (await client.get(f"/api/v1/runs/{run_id}")).json()
        assert last["data"] == view
        assert set(last) == {
            "type", "seq", "run_id", "session_id", "at", "work_id", "parent_work_id", "data",
        }  # fmt: skip
        page = await client.get(f"/api/v1/runs/{run_id}/events", headers={"Accept": "application/json"})
        assert [json.loads(frame["data"]) for frame in stored] == page.json()["data"]


async def test_reader_resumes_where_it_was(world: DoorWorld) -> None:
    """R66: joined over reconnects the log is whole, once and in order, by header and by address."""
    async with world.open() as door, door.client() as client:
        run_id = (await client.post("/api/v1/runs", json=BODY, params={"wait_ms": 30_000})).json()["id"]
        path = f"/api/v1/runs/{run_id}/events"
        whole = [frame["id"] for frame in frames_of((await client.get(path)).text)]
        joined: list[str] = []
        while True:
            headers = {"Last-Event-ID": joined[-1]} if joined else {}
            async with client.stream("GET", path, headers=headers) as stream:
                if stream.status_code == 204:
                    break
                text = (await stream.aread()).decode()
            joined += [frame["id"] for frame in frames_of(text)][:3]
        assert joined == whole
        rest = frames_of((await client.get(path, params={"after": whole[-3]})).text)
        assert [frame["id"] for frame in rest] == whole[-2:]
        both = await client.get(path, params={"after": 0}, headers={"Last-Event-ID": whole[-2]})
        assert [frame["id"] for frame in frames_of(both.text)] == whole[-1:]
        page = await client.get(path, params={"limit": 2}, headers={"Accept": "application/json"})
        assert page.json()["next_cursor"] == "2"
        for wrong in ("x", "-1", "1.5", "99999", "9" * 40):
            answer = await client.get(path, headers={"Last-Event-ID": wrong})
            assert answer.status_code == 422, wrong


async def test_silent_streams_give_signs_of_life(world: DoorWorld) -> None:
    """R64: from the first moment, and while nothing happens."""
    world.replies = (slowly(PLAN, 1_500), LOOK, WORK, REVIEW)
    world.door = {"keep_alive_s": 0.2}
    async with world.open() as door, door.client() as client:
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        begun = time.monotonic()
        async with client.stream("GET", f"/api/v1/runs/{run_id}/events") as stream:
            pieces = stream.aiter_bytes()
            first = await anext(pieces)
            assert time.monotonic() - begun < 1
            assert first.startswith(b":")
            text = first + b"".join([piece async for piece in pieces])
        assert text.count(b": keep-alive\n\n") >= 4
        assert frames_of(text.decode())[-1]["event"] == "run.completed"


async def test_viewer_that_leaves_changes_nothing(world: DoorWorld) -> None:
    """R4, R15: a viewer isn't the owner: the run goes on without it, and no task of the stream is left."""
    world.replies = (PLAN, LOOK, slowly(WORK, 500), REVIEW)
    async with world.open() as door, door.client() as client:
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        async with client.stream("GET", f"/api/v1/runs/{run_id}/events") as stream:
            await anext(stream.aiter_bytes())
            assert len(door.app.streams) == 1
        async with asyncio.timeout(10):
            while len(door.app.streams):
                await asyncio.sleep(0.01)
        run = (await client.get(f"/api/v1/runs/{run_id}")).json()
        assert run["terminal"] is None
        whole = await client.get(f"/api/v1/runs/{run_id}/events")
        assert frames_of(whole.text)[-1]["event"] == "run.completed"


@pytest.mark.parametrize("kernel_helps", [True, False])
async def test_reader_that_stops_reading_is_cut(
    world: DoorWorld, monkeypatch: pytest.MonkeyPatch, *, kernel_helps: bool
) -> None:
    """R67: what one viewer doesn't take is bounded and ends its connection; another one gets everything.

    Also where the kernel knows no time for what isn't acknowledged.
    """
    from remit.api._protocol import BoundedProtocol

    if not kernel_helps:
        monkeypatch.delattr(socket, "TCP_USER_TIMEOUT")
    monkeypatch.setattr(BoundedProtocol, "write_timeout_s", 0.5)
    monkeypatch.setattr(BoundedProtocol, "send_buffer_bytes", 8_192)
    async with world.open() as door, door.client() as client:
        body = {**BODY, "prompt": "y" * 400_000}
        run_id = (await client.post("/api/v1/runs", json=body)).json()["id"]
        path = f"/api/v1/runs/{run_id}/events"
        who = f"Host: 127.0.0.1:{door.port}\r\nAuthorization: Bearer {door.secret}"
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect(("127.0.0.1", door.port))
            deaf.sendall(f"GET {path} HTTP/1.1\r\n{who}\r\n\r\n".encode())
            whole = await client.get(path, timeout=60)
            assert frames_of(whole.text)[-1]["event"] == "run.completed"
            assert len(whole.content) > 200_000
            async with asyncio.timeout(20):
                while len(door.app.streams):
                    await asyncio.sleep(0.01)
            deaf.settimeout(5)
            seen = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := deaf.recv(65_536):
                    seen += piece
            assert b"run.completed" not in seen


async def test_streams_are_bounded_and_say_when_to_come_back(world: DoorWorld) -> None:
    """R67, R73: one more than may be open is refused at once, on every door; a place is free again later."""
    world.replies = (PLAN, SLEEP, WORK, REVIEW)
    world.door = {"most_streams": 1}
    async with world.open() as door, door.client() as client:
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        path = f"/api/v1/runs/{run_id}/events"
        async with client.stream("GET", path):
            more = await client.get(path)
            assert (more.status_code, more.json()["code"]) == (429, "quota_exceeded")
            assert int(more.headers["retry-after"]) > 0
            asked = {"model": "reviewed", "messages": [{"role": "user", "content": "x"}], "stream": True}
            chat = await client.post("/v1/chat/completions", json=asked)
            assert (chat.status_code, chat.headers["x-should-retry"]) == (429, "true")
            assert len((await client.get("/api/v1/runs")).json()["data"]) == 1, "no run came of it"
        async with asyncio.timeout(30):
            while len(door.app.streams):
                await asyncio.sleep(0.01)
        await client.post(f"/api/v1/runs/{run_id}/cancel")
        assert (await client.get(path, timeout=60)).status_code == 200


async def test_stream_of_a_revoked_key_ends(world: DoorWorld) -> None:
    """A viewer whose key has ended is cut at the next sign of life."""
    world.replies = (PLAN, SLEEP, WORK, REVIEW)
    world.door = {"keep_alive_s": 0.5}
    async with world.open() as door, door.client() as client:
        secret = await door.add_key("leaving")
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        async with (
            door.client(secret) as leaving,
            leaving.stream("GET", f"/api/v1/runs/{run_id}/events") as stream,
        ):
            pieces = stream.aiter_bytes()
            await anext(pieces)
            await door.host.store.revoke_key("leaving")  # type: ignore[attr-defined] - a SQLite store
            async with asyncio.timeout(10):
                text = b"".join([piece async for piece in pieces])
        assert b"run.cancelled" not in text
        await client.post(f"/api/v1/runs/{run_id}/cancel")


async def test_odd_line_ends_stay_in_one_frame(world: DoorWorld) -> None:
    """R70: separators of other alphabets don't split a frame, and come back as they were."""
    odd = "x\u0085y\u2028z\u2029w\u000bv"
    world.replies = DIRECT
    async with world.open() as door, door.client() as client:
        body = {"binding": "direct", "prompt": odd, "metadata": {"odd": odd}}
        run_id = (await client.post("/api/v1/runs", json=body, params={"wait_ms": 30_000})).json()["id"]
        raw = (await client.get(f"/api/v1/runs/{run_id}/events")).content
        for mark in ("\u0085", "\u2028", "\u2029"):
            assert mark.encode() not in raw
        first = json.loads(frames_of(raw.decode())[0]["data"])
        assert first["data"]["request"]["prompt"] == odd
