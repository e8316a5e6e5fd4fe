"""The SDK against a served host: the same calls sync and async, errors as themselves, streams that go on."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx2
import pytest

from door_kit import LOOK, PLAN, REVIEW, REVIEWED, SLEEP, WORK, DoorWorld, slowly
from remit.client import AsyncClient, Client
from remit.client._reading import FrameReader, read_shape
from remit.contract import RunRequest
from remit.errors import (
    HostUnreachable,
    IdempotencyConflict,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    SessionBusy,
    Unauthenticated,
)
from remit.events import Event

FIELDS = {"binding": "reviewed", "prompt": "Mend it."}


@pytest.fixture
def world(tmp_path: Path) -> DoorWorld:
    return DoorWorld(home=tmp_path, replies=REVIEWED)


async def test_async_client_runs_follows_and_waits(world: DoorWorld) -> None:
    """A run is started, followed to its terminal and read, typed all the way."""
    async with world.open() as door, AsyncClient(door.base_url, api_key=door.secret) as client:
        run = await client.create(FIELDS)
        types = [event.type async for event in client.events(run.id)]
        assert (types[0], types[-1]) == ("run.queued", "run.completed")
        ended = await client.wait(run.id)
        assert (ended.status, ended.output) == ("completed", "It is mended.")
        assert await client.get(run.id) == ended
        assert await client.list(status="completed") == ((ended,), None)
        whole = await client.create(RunRequest.model_validate(FIELDS), wait_ms=30_000)
        assert whole.status == "completed"
        assert (await client.dry_run(FIELDS))["would"] == "start"
        assert (await client.read("host"))["status"] == "ready"
        assert await client.patch(run.id) == ""


async def test_sync_client_does_the_same(world: DoorWorld) -> None:
    """The same calls, without `await`."""
    async with world.open() as door:

        def use() -> tuple[str, str, list[str]]:
            with Client(door.base_url, api_key=door.secret) as client:
                run = client.create(binding="reviewed", prompt="Mend it.")
                types = [event.type for event in client.events(run.id)]
                client.cancel(run.id)
                return client.wait(run.id).status.value, client.get(run.id).id, types

        status, _, types = await asyncio.to_thread(use)
        assert (status, types[-1]) == ("completed", "run.completed")


async def test_a_message_is_sent_once(world: DoorWorld) -> None:
    """Clients give the host a message for a run that goes on; where a line breaks they don't say it twice."""
    world.replies = (PLAN, SLEEP, WORK, REVIEW)
    async with world.open() as door, AsyncClient(door.base_url, api_key=door.secret) as client:
        run = await client.create(FIELDS)
        assert (await client.input(run.id, "Mind the tabs."))["changed"] is True

        def use() -> None:
            with Client(door.base_url, api_key=door.secret) as sync:
                sync.input(run.id, "And the ends of lines.")

        await asyncio.to_thread(use)
        await client.cancel(run.id)
        with pytest.raises(PreconditionFailed):
            await client.input(run.id, "Too late.")
    sent: list[str] = []

    def breaks(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.url.path)
        raise httpx2.ReadError("reset", request=request)

    async with AsyncClient("http://127.0.0.1:1", transport=httpx2.MockTransport(breaks)) as client:
        with pytest.raises(HostUnreachable):
            await client.input("run_1", "Mind the tabs.")
    assert len(sent) == 1


def test_sync_and_async_have_the_same_calls() -> None:
    """Whoever knows one knows the other."""
    for name, method in inspect.getmembers(AsyncClient, inspect.isfunction):
        if name.startswith("_") or name == "aclose":
            continue
        twin = getattr(Client, name)
        assert list(inspect.signature(method).parameters) == list(inspect.signature(twin).parameters), name


async def test_errors_come_back_as_themselves(world: DoorWorld) -> None:
    """What the host refuses is raised as the error that it is, with the field that is to blame."""
    world.replies = (PLAN, SLEEP, WORK, REVIEW)
    async with world.open() as door, AsyncClient(door.base_url, api_key=door.secret) as client:
        with pytest.raises(NotFound):
            await client.get("nobody")
        with pytest.raises(InvalidRequest) as refused:
            await client.create({"prompt": "x", "colour": "red"})
        assert refused.value.fields["param"] == "colour"
        run = await client.create({**FIELDS, "session_id": "thread"}, idempotency_key="k")
        with pytest.raises(IdempotencyConflict):
            await client.create({**FIELDS, "prompt": "Other."}, idempotency_key="k")
        with pytest.raises(SessionBusy):
            await client.create({**FIELDS, "session_id": "thread"})
        cancelled = await client.cancel(run.id, reason="enough")
        assert cancelled.changed
        assert cancelled.receipt is not None
        assert (await client.cancel(run.id)).changed is False
        async with AsyncClient(door.base_url, api_key="rk_nope") as stranger:
            with pytest.raises(Unauthenticated):
                await stranger.get(run.id)
        with pytest.raises(HostUnreachable, match=r"doesn't speak TLS; without it the address is http://127"):
            async with AsyncClient(door.base_url.replace("http:", "https:"), api_key=door.secret) as mistaken:
                await mistaken.get(run.id)
    with pytest.raises(HostUnreachable, match="remit serve"):
        async with AsyncClient(door.base_url, api_key=door.secret) as late:
            await late.get("x")
    with pytest.raises(InvalidRequest):
        AsyncClient("ftp://example.com")


class Cutting(httpx2.AsyncBaseTransport):
    """Breaks each stream after some bytes, and each other call every second time."""

    def __init__(self) -> None:
        self.inner = httpx2.AsyncHTTPTransport()
        self.streams = 0
        self._calls = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self._calls += 1
        is_stream = request.headers.get("accept") == "text/event-stream"
        if not is_stream and self._calls % 2:
            lost = await self.inner.handle_async_request(request)
            await lost.aclose()
            raise httpx2.ReadError("cut")
        response = await self.inner.handle_async_request(request)
        if not is_stream:
            return response
        self.streams += 1
        return httpx2.Response(response.status_code, headers=response.headers, stream=_Cut(response))

    async def aclose(self) -> None:
        await self.inner.aclose()


class _Cut(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        left = 9_000
        async for piece in self._response.aiter_raw():
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                raise httpx2.ReadError("cut")

    async def aclose(self) -> None:
        await self._response.aclose()


async def test_broken_connections_lose_and_double_nothing(world: DoorWorld) -> None:
    """R63, R66: with every answer lost once and every stream cut, one run is made and its log is whole."""
    world.replies = (PLAN, LOOK, slowly(WORK, 300), REVIEW)
    cutting = Cutting()
    async with world.open() as door:
        async with AsyncClient(door.base_url, api_key=door.secret, transport=cutting) as client:
            run = await client.create(FIELDS)
            numbers = [event.seq async for event in client.events(run.id) if event.seq is not None]
            ended = await client.get(run.id)
            assert len((await client.list())[0]) == 1
        assert ended.status == "completed"
        assert numbers == list(range(1, len(numbers) + 1))
        assert cutting.streams > 1


def test_frames_are_read_however_they_are_cut() -> None:
    """R70: CR, LF and CRLF end lines, nothing else does; what isn't known is passed over."""
    event = {
        "type": "message.delta", "seq": None, "run_id": "r", "session_id": "r", "at": "2026-11-30T00:00:00Z",
        "work_id": None, "parent_work_id": None, "data": {"text": "x\u2028y\u0085z"}, "later": 1,
    }  # fmt: skip
    text = json.dumps(event, ensure_ascii=False)
    for end in ("\n", "\r\n", "\r"):
        stream = f": hello{end}{end}retry: 5{end}{end}event: x{end}data: {text}{end}{end}".encode()
        for size in (1, 2, 3, 7, 1_000):
            reader = FrameReader()
            found = [one for at in range(0, len(stream), size) for one in reader.feed(stream[at : at + size])]
            found += reader.feed(b"\n") if end == "\r" else []
            assert [one.data for one in found] == [{"text": "x\u2028y\u0085z"}], (end, size)


def test_newer_hosts_are_understood() -> None:
    """What a newer host adds, however deep, is left out; what isn't a run at all is refused."""
    event = read_shape(Event, {
        "type": "x", "seq": 1, "run_id": "r", "session_id": "r", "at": "2026-11-30T00:00:00Z", "data": {},
        "colour": {"deep": 1},
    })  # fmt: skip
    assert event.seq == 1
    with pytest.raises(HostUnreachable):
        read_shape(Event, {"hello": "world"})
