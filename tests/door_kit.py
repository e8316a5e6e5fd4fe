"""What tests of the doors share: a host on a scripted model, served on a free port of loopback, with keys."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from remit.api import (
    LOOPBACK_NAMES,
    App,
    DoorServer,
    DoorSettings,
    hash_secret,
    host_names,
    listen_on,
    new_secret,
)
from remit.config import Config, load_config
from remit.contract import ApiKey
from remit.host import Host
from remit.primitives import SystemIds

PLAN = {"stage": "plan", "json": {"plan": "Mend it.", "verification": "Look."}}
LOOK = {"stage": "work", "tool_calls": [{"name": "list_files", "arguments": {}}]}
WORK = {"stage": "work", "json": {"completion": "Mended.", "verification": "Looked."}}
REVIEW = {"stage": "review", "json": {"decision": "pass", "output": "It is mended.", "summary": "Fine."}}
REVIEWED = (PLAN, LOOK, WORK, REVIEW)
DIRECT = (WORK,)
WRITE = {
    "stage": "work",
    "tool_calls": [{"name": "write_file", "arguments": {"relative_path": "new.txt", "content": "new\n"}}],
}
SLEEP = {"stage": "work", "tool_calls": [{"name": "run_shell", "arguments": {"command": "sleep 60"}}]}
"""A tool that goes on until it is stopped."""


def slowly(reply: Mapping[str, Any], delay_ms: int) -> dict[str, Any]:
    """The same reply, later."""
    return {**reply, "delay_ms": delay_ms}


@dataclass(slots=True, kw_only=True)
class Door:
    """A host that is served."""

    host: Host
    app: App
    port: int
    secret: str
    """Of the tenant `local`, with all scopes."""

    @property
    def base_url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def client(self, secret: str | None = None, **more: Any) -> httpx2.AsyncClient:
        """A client with a key; an empty one: without."""
        key = self.secret if secret is None else secret
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx2.AsyncClient(
            base_url=self.base_url, headers=headers, timeout=30, trust_env=False, **more
        )

    async def add_key(self, name: str, **fields: Any) -> str:
        """A further key; returns its secret."""
        return await add_key(self.host, name, **fields)


async def add_key(host: Host, name: str, **fields: Any) -> str:
    """A key in a host's store; returns its secret."""
    secret = new_secret()
    defaults: dict[str, Any] = {
        "id": SystemIds().new("key"),
        "name": name,
        "scopes": ("run", "read", "admin", "node"),
        "created_at": datetime.now(UTC),
    }
    await host.door().store.add_key(
        ApiKey.model_validate({**defaults, **fields}), key_hash=hash_secret(secret)
    )
    return secret


@dataclass(slots=True, kw_only=True)
class DoorWorld:
    """A home, a folder to work in, and a script."""

    home: Path
    replies: Sequence[Mapping[str, Any]] = REVIEWED
    host_table: dict[str, Any] = field(default_factory=dict[str, Any])
    bindings: dict[str, Any] = field(default_factory=dict[str, Any])
    door: dict[str, Any] = field(default_factory=dict[str, Any])
    """Other settings of the doors."""

    @property
    def root(self) -> Path:
        """The folder that runs work in."""
        return self.home / "app"

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.home / "data"

    def environment(self) -> dict[str, str]:
        """The variables of whoever runs the host."""
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], "REMIT_HOME": str(self.data)}

    def settings(self) -> dict[str, Any]:
        """What stands in the configuration."""
        script = self.home / "script.json"
        script.write_text(json.dumps({"replies": list(self.replies)}))
        self.root.mkdir(exist_ok=True)
        if not (self.root / ".git").exists():
            (self.root / "readme.txt").write_text("A folder.\n")
            for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Begin"]):
                identity = ["-c", "user.name=T", "-c", "user.email=t@example.invalid"]
                subprocess.run(["git", *identity, *words], cwd=self.root, check=True, timeout=60)
        usual = {
            "reviewed": {"workspace": "app", "profile": "reviewed"},
            "direct": {"workspace": "app", "profile": "direct", "require_evidence": False},
        }
        workspace = {"ref": "app", "root": str(self.root), "shell": True, "checks": []}
        return {
            "providers": {"demo": {"kind": "scripted", "script": str(script)}},
            "pools": {"default": {"members": [{"model": "demo:m"}]}},
            "bindings": self.bindings or usual,
            "nodes": {"local": {"workspaces": [workspace]}},
            "host": self.host_table,
        }

    def config(self) -> Config:
        """The settings in force."""
        return load_config(environment=self.environment(), folder=self.home, overrides=self.settings())

    @asynccontextmanager
    async def open(self, *, key_name: str = "tests") -> AsyncGenerator[Door]:
        """Serve a host."""
        async with Host(self.config()) as host:
            listener = listen_on("127.0.0.1:0")
            port = listener.getsockname()[1]
            settings = DoorSettings(hosts=host_names(set(LOOPBACK_NAMES), port), **self.door)
            app = App(host.door(), settings)
            async with DoorServer(app, listener):
                yield Door(host=host, app=app, port=port, secret=await add_key(host, key_name))


async def raw(port: int, data: bytes, *, wait_s: float = 10) -> bytes:
    """Send bytes, and read until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(wait_s):
            return await reader.read()
    finally:
        writer.close()


def frames_of(text: str) -> list[dict[str, str]]:
    """Server-sent events, without comments and `retry`."""
    frames: list[dict[str, str]] = []
    for block in text.split("\n\n"):
        fields: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            if name in {"id", "event", "data"}:
                fields[name] = value.removeprefix(" ")
        if fields:
            frames.append(fields)
    return frames
