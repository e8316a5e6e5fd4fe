"""A served host on a thread of its own, for clients that block, and for modules whose tests share one."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from door_kit import LOOK, PLAN, REVIEW, WORK, Door, DoorWorld, frames_of
from remit.contract import RunView
from remit.runs import StoredRun

_Value = TypeVar("_Value")

ANSWER = "It is mended."
TITLE = "A calm chat"
USAGE = {
    "input_tokens": 100,
    "output_tokens": 20,
    "cache_read_tokens": 30,
    "cache_write_tokens": 10,
    "reasoning_tokens": 5,
}
NONCE = f"61.{os.getpid()}"
"""Seconds that a tool sleeps: in its process's command line, and in nobody else's."""
SCRIPT: tuple[dict[str, Any], ...] = (
    {"stage": "plan", "when": {"contains": "FAIL"}, "error": {"status": 401}},
    {"stage": "work", "when": {"contains": "FAIL"}, "error": {"status": 401}},
    {"stage": "work", "when": {"contains": "THINK"}, "text": "never", "delay_ms": 600_000},
    {"stage": "work", "when": {"contains": "SLOW"}, "text": "Slowly done", "delay_ms": 900},
    {"stage": "work", "when": {"contains": "BREAK"}, "text": "It is bro", "cut": True},
    {"stage": "work", "when": {"contains": "BREAK, then go on"}, "text": "It is broken no more"},
    {"stage": "work", "when": {"contains": "BREAK"}, "text": "Something else"},
    {"stage": "work", "when": {"contains": "NAME"}, "text": TITLE, "usage": USAGE},
    {**PLAN},
    {
        "stage": "work",
        "when": {"contains": "SLEEP"},
        "tool_calls": [{"name": "run_shell", "arguments": {"command": f"sleep {NONCE}"}}],
    },
    LOOK,
    WORK,
    REVIEW,
)
"""What the model says, by what it is told; a run that isn't told any of these words is a reviewed one."""
BINDINGS: dict[str, Any] = {
    "reviewed": {"workspace": "app", "profile": "reviewed"},
    "quiet": {"workspace": "app", "profile": "reviewed", "progress": False, "client_tools": "ignore"},
    "answer": {"profile": "answer"},
    "agent": {"profile": "answer", "client_tools": "ignore"},
    "lasting": {"profile": "answer", "on_disconnect": "continue"},
}


class Served:
    """A host that is served, seen from other threads."""

    def __init__(self, door: Door, loop: asyncio.AbstractEventLoop, world: DoorWorld) -> None:
        self.door = door
        self.host = door.host.door()
        self.loop = loop
        self.world = world

    @property
    def base_url(self) -> str:
        return self.door.base_url

    @property
    def secret(self) -> str:
        return self.door.secret

    def call(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """Do something on the host's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def client(self, secret: str | None = None, **headers: str) -> httpx2.Client:
        """A client with a key; an empty one: without."""
        key = self.secret if secret is None else secret
        named = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx2.Client(
            base_url=self.base_url, headers={**named, **headers}, timeout=60, trust_env=False
        )

    def add_key(self, name: str, **fields: Any) -> str:
        return self.call(self.door.add_key(name, **fields))

    def stored(self, run_id: str) -> StoredRun:
        stored = self.call(self._find(run_id))
        assert stored is not None
        return stored

    async def _find(self, run_id: str) -> StoredRun | None:
        return await self.host.store.find_run(run_id)

    def run(self, run_id: str) -> RunView:
        return self.stored(run_id).view

    def ended(self, run_id: str) -> RunView:
        """The run, once it has ended."""
        self.call(self.host.wait_ended(run_id, tenant="local", wait_ms=60_000))
        return self.run(run_id)


def hang_up_once_begun(served: Served, path: str, sent: dict[str, Any]) -> str:
    """Ask, wait until that has become a run, and close the connection without having read a byte."""
    with served.client() as look:

        def newest() -> str | None:
            runs = look.get("/api/v1/runs?limit=1").json()["data"]
            return runs[0]["id"] if runs else None

        before, text = newest(), json.dumps(sent).encode()
        host, port = served.base_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as line:
            head = (
                f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
                f"Authorization: Bearer {served.secret}\r\nContent-Length: {len(text)}\r\n\r\n"
            )
            line.sendall(head.encode() + text)
            deadline = time.monotonic() + 60
            while (run_id := newest()) == before or run_id is None:
                assert time.monotonic() < deadline, "no run came of it"
                time.sleep(0.02)
    return run_id


@contextmanager
def serve(home: Path, **world: Any) -> Generator[Served]:
    """Serve a host for the length of a block."""
    settings: dict[str, Any] = {"replies": SCRIPT, "bindings": BINDINGS, **world}
    described = DoorWorld(home=home, **settings)
    ready, stop, found = threading.Event(), asyncio.Event(), list[Served]()
    failed: list[BaseException] = []

    async def live() -> None:
        async with described.open() as door:
            found.append(Served(door, asyncio.get_running_loop(), described))
            ready.set()
            await stop.wait()

    def play() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=play, name="served host")
    thread.start()
    assert ready.wait(60)
    try:
        if failed:
            raise failed[0]
        yield found[0]
    finally:
        if found:
            found[0].loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        assert not thread.is_alive()


def chunks_of(text: str) -> list[Any]:
    """The data of each frame; `[DONE]` as it is."""
    return [
        frame["data"] if frame["data"] == "[DONE]" else json.loads(frame["data"])
        for frame in frames_of(text)
        if "data" in frame
    ]
