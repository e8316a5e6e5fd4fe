"""Webhooks over real sockets: signed, tried again over restarts, and never into the inside network."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from host_kit import MODEL, make_config
from remit.contract import RunView
from remit.errors import InvalidRequest
from remit.host import Host
from remit.host._webhook_sending import Tried, send_webhook
from remit.results import read_target
from remit.runs import HistoryEntry

KEY = b"k" * 32
SECRET = "whsec_" + base64.b64encode(KEY).decode()
LOOPBACK = (ip_network("127.0.0.0/8"),)


@dataclass(slots=True)
class Listener:
    """A server that keeps what it was told, and answers as it is told."""

    answers: list[bytes] = field(default_factory=list[bytes])
    heard: list[tuple[dict[str, str], bytes]] = field(default_factory=list[tuple[dict[str, str], bytes]])
    port: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?a=b"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            assert lines[0] == "POST /hook?a=b HTTP/1.1"
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
            body = await reader.readexactly(int(headers["content-length"]))
            self.heard.append((headers, body))
            self.came.set()
            answer = self.answers.pop(0) if self.answers else b"HTTP/1.1 204 No Content\r\n\r\n"
            if answer == b"silence":
                await reader.read()
            writer.write(answer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def listening(*answers: bytes) -> AsyncGenerator[Listener]:
    listener = Listener(list(answers))
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
    finally:
        server.close()


def config_of(folder: Path, *, networks: Sequence[str] = ("127.0.0.0/8",), secret: bool = True) -> Any:
    file = folder / "secret"
    file.write_text(SECRET)
    table: dict[str, Any] = {"webhook_networks": list(networks)}
    if secret:
        table["webhook_secret_file"] = str(file)
    return make_config(folder, host=table)


def asked(listener: Listener, **fields: Any) -> dict[str, Any]:
    return {"prompt": "Make a.txt new.", "model": MODEL, "webhook": listener.url, **fields}


async def until(host: Host, run: RunView, type_: str) -> HistoryEntry:
    """An entry of the run's host log, once it is there."""
    async with asyncio.timeout(60):
        while True:
            for entry in await host.door().store.read_history(run.id):
                if entry.type == type_:
                    return entry
            await asyncio.sleep(0.02)


async def test_it_is_sent_signed_after_the_terminal(tmp_path: Path) -> None:
    """The body is the whole run, the signature holds, the host log says that it was taken."""
    async with listening() as listener, Host(config_of(tmp_path)) as host:
        run = await (await host.start(asked(listener))).wait()
        entry = await until(host, run, "webhook.delivered")
        stored = await host.door().store.find_run(run.id)
        work = host.door().all_work(tenant="local")
    assert work == ()
    ((headers, body),) = listener.heard
    said = json.loads(body)
    assert (said["type"], said["data"]) == ("run.completed", run.model_dump(mode="json", by_alias=True))
    assert stored is not None
    assert stored.view == run
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert entry.data == {"webhook_id": headers["webhook-id"], "attempt": 1, "status": 204}
    assert list((tmp_path / "home").rglob("webhooks/*.json")) == []


async def test_what_is_owed_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note of a webhook that is owed outlives a loss of power: file and folder are synced."""
    synced: list[str] = []
    sync = os.fsync

    def note(opened: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{opened}"))
        sync(opened)

    monkeypatch.setattr(os, "fsync", note)
    async with listening() as listener, Host(config_of(tmp_path)) as host:
        run = await (await host.start(asked(listener))).wait()
        await until(host, run, "webhook.delivered")
    notes = [Path(path) for path in synced if "webhooks" in path]
    assert [path.name for path in notes[1:]] == ["webhooks"]
    assert (notes[0].suffix, notes[0].parent) == (".new", notes[1])


async def test_it_is_tried_again_by_the_next_host(tmp_path: Path) -> None:
    """A try that failed is repeated with the same id and body, also by a host that starts later."""
    async with listening(b"HTTP/1.1 503 No\r\n\r\n") as listener:
        async with Host(config_of(tmp_path)) as host:
            run = await (await host.start(asked(listener))).wait()
            tried = await until(host, run, "webhook.tried")
            (work,) = host.door().all_work(tenant="local")
            assert (work.kind, work.label) == ("event_delivery", f"webhook of {run.id}")
        assert (tried.data["reason"], tried.data["status"]) == ("status", 503)
        async with Host(config_of(tmp_path)) as host:
            taken = await until(host, run, "webhook.delivered")
        async with Host(config_of(tmp_path)) as host:
            await asyncio.sleep(0.1)
    assert taken.data["attempt"] == 2
    first, second = listener.heard
    assert (first[0]["webhook-id"], first[1]) == (second[0]["webhook-id"], second[1])


@pytest.mark.parametrize(
    ("answer", "stage"), [(b"HTTP/1.1 500 No\r\n\r\n", "dispatch"), (b"silence", "receipt_wait")], ids=str
)
async def test_a_cancel_of_the_work_gives_it_up(tmp_path: Path, answer: bytes, stage: str) -> None:
    """A webhook is work under the host, cancelled like any other: once sent, or until its next try."""
    async with listening(answer) as listener, Host(config_of(tmp_path)) as host:
        run = await (await host.start(asked(listener))).wait()
        async with asyncio.timeout(60):
            await listener.came.wait()
            while (work := host.door().all_work(tenant="local")[0]).stage != stage:
                await asyncio.sleep(0.02)
        host.door().cancel_work(work.work_id, tenant="local")
        entry = await until(host, run, "webhook.failed")
    assert entry.data["reason"] == "cancelled"
    assert len(listener.heard) == 1


async def test_what_cannot_be_sent_is_refused_at_the_door(tmp_path: Path) -> None:
    """R55, R81: without a secret, or to an address inside, nothing is started."""
    async with listening() as listener:
        async with Host(config_of(tmp_path, secret=False)) as host:
            with pytest.raises(InvalidRequest, match="webhook_secret_env"):
                await host.start(asked(listener))
        async with Host(config_of(tmp_path, networks=())) as host:
            for url in (listener.url, "https://169.254.169.254/x", "https://[::1]/"):
                with pytest.raises(InvalidRequest, match="webhook"):
                    await host.start(asked(listener, webhook=url))
            assert (await host.door().store.list_runs())[0] == ()
    assert listener.heard == []


async def test_repetition_in_this_process_is_answered_too(tmp_path: Path) -> None:
    """R63: a run that was started is found again, also where its webhook couldn't be sent any more."""
    async with listening() as listener:
        async with Host(config_of(tmp_path)) as host:
            first = await (await host.start(asked(listener), idempotency_key="k-1")).wait()
        async with Host(config_of(tmp_path, secret=False)) as host:
            again = await host.start(asked(listener), idempotency_key="k-1")
            assert (again.id, (await again.wait()).status) == (first.id, first.status)
            with pytest.raises(InvalidRequest, match="webhook_secret_env"):
                await host.start(asked(listener, prompt="Other."), idempotency_key="k-1")


async def _try(url: str, addresses: Sequence[str], networks: Any = (), **more: Any) -> Tried:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    target = read_target(url)
    return await send_webhook(target, headers={}, body=b"{}", networks=networks, resolve=resolve, **more)


async def test_a_name_that_leads_inside_is_refused_after_the_look_up() -> None:
    """R81: every address of a name is checked, and the one that was checked is the one that is spoken to."""
    async with listening() as listener:
        inside = f"https://hooks.example:{listener.port}/hook"
        for addresses in (["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:127.0.0.1"], []):
            assert (await _try(inside, addresses)).reason == "address_refused"
        plain = f"http://2130706433:{listener.port}/hook?a=b"
        assert (await _try(plain, ["127.0.0.1"])).reason == "address_refused"
        looked_up: list[str] = []

        async def flips(host: str, port: int) -> Sequence[str]:
            looked_up.append(host)
            return ["8.8.8.8"] if len(looked_up) > 1 else ["127.0.0.1"]

        target = read_target(f"http://hooks.example:{listener.port}/hook?a=b")
        tried = await send_webhook(target, headers={}, body=b"{}", networks=LOOPBACK, resolve=flips)
        assert (tried.reason, looked_up) == (None, ["hooks.example"])
    assert [headers["host"] for headers, _ in listener.heard] == [f"hooks.example:{listener.port}"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n", ("status", 302, False)),
        (b"HTTP/1.1 410 Gone\r\n\r\n", ("status", 410, True)),
        (b"HTTP/1.1 200 OK\r\n\r\nwords", (None, 200, True)),
        (b"nonsense\r\n", ("protocol", None, False)),
        (b"x" * 100_000, ("protocol", None, False)),
        (b"", ("protocol", None, False)),
        (b"silence", ("timeout", None, False)),
    ],
)
async def test_one_try_is_bounded(answer: bytes, expected: tuple[str | None, int | None, bool]) -> None:
    """R81: no redirect is followed, no more is read than a status, and no server holds a try up."""
    async with listening(answer) as listener:
        within_s = 0.3 if answer == b"silence" else 15
        tried = await _try(listener.url, ["127.0.0.1"], LOOPBACK, within_s=within_s)
    assert (tried.reason, tried.status, tried.is_final) == expected
    assert len(listener.heard) == 1


async def test_a_wrong_certificate_or_no_server_is_a_failed_try() -> None:
    """What goes wrong on the way is told by a word, and no exception."""

    async def speak_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(speak_plainly, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        tried = await _try(f"https://127.0.0.1:{port}/hook", ["127.0.0.1"], LOOPBACK)
        assert tried.reason in ("tls", "connect")
    assert (await _try(f"http://127.0.0.1:{port}/", ["127.0.0.1"], LOOPBACK)).reason == "connect"
