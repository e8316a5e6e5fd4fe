"""`remit mcp`: a process that the SDK's own client starts, with a host of its own or in front of another."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from door_kit import PLAN, REVIEW, SLEEP, WORK, WRITE, DoorWorld

pytest.importorskip("mcp", reason="the extra `mcp` isn't installed")
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

REPLIES = (PLAN, {**SLEEP, "when": {"contains": "SLEEP"}}, WRITE, WORK, REVIEW)


def toml_of(world: DoorWorld) -> Path:
    """The world's settings as a file."""
    settings = world.settings()
    script, root = settings["providers"]["demo"]["script"], world.root
    file = world.home / "remit.toml"
    file.write_text(
        f"""
[providers.demo]
kind = "scripted"
script = "{script}"

[pools.default]
members = [{{ model = "demo:m" }}]

[bindings.reviewed]
workspace = "app"
profile = "reviewed"

[[nodes.local.workspaces]]
ref = "app"
root = "{root}"
shell = true
checks = []
"""
    )
    return file


def command(world: DoorWorld, *words: str, **environment: str) -> StdioServerParameters:
    """How a client starts it."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "remit.cli", "mcp", *words],
        env={**world.environment(), **environment},
        cwd=world.home,
    )


async def test_a_client_starts_it_and_runs(tmp_path: Path) -> None:
    """Over stdin and stdout a run is done by a host of its own; cancelling a call stops its process."""
    world = DoorWorld(home=tmp_path, replies=REPLIES)
    file = toml_of(world)
    told: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with Client(command(world, "--config", str(file))) as client:
        result = await client.call_tool("run", {"prompt": "Write."}, progress_callback=on_progress)
        run: dict[str, Any] = result.structured_content
        assert (run["status"], run["output"]) == ("completed", "It is mended.")
        assert not (world.root / "new.txt").exists()
        calling = asyncio.get_running_loop().create_task(
            client.call_tool("run", {"prompt": "SLEEP"}, progress_callback=on_progress)
        )
        async with asyncio.timeout(60):
            while not any("sleep 60" in line for line in told):
                await asyncio.sleep(0.05)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        run_id = next(line for line in reversed(told) if line.startswith("Run ")).split()[1].rstrip(".")
        shown = await client.call_tool("get_run", {"run_id": run_id, "wait_ms": 30_000})
        assert shown.structured_content["status"] == "cancelled"
    assert "Planning." in told


async def test_it_stands_before_a_host(tmp_path: Path) -> None:
    """With `--host` the runs are that host's; a client that leaves stops what it was waiting for."""
    async with DoorWorld(home=tmp_path, replies=REPLIES).open() as door:
        world = DoorWorld(home=tmp_path)
        asked = command(world, "--host", door.base_url, REMIT_API_KEY=door.secret)
        async with Client(asked) as client:
            result = await client.call_tool("run", {"binding": "reviewed", "prompt": "Write."})
            run: dict[str, Any] = result.structured_content
            patch = await client.call_tool("get_run", {"run_id": run["id"], "include_patch": True})
            assert len(patch.content) == 2
            calling = asyncio.get_running_loop().create_task(
                client.call_tool("run", {"binding": "reviewed", "prompt": "SLEEP"})
            )
            async with door.client() as http, asyncio.timeout(60):
                while not any(
                    one["kind"] == "tool" for one in (await http.get("/api/v1/work")).json()["data"]
                ):
                    await asyncio.sleep(0.05)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
        async with door.client() as http, asyncio.timeout(60):
            assert (await http.get(f"/api/v1/runs/{run['id']}")).json() == run
            while not all(one["ended_at"] for one in (await http.get("/api/v1/runs")).json()["data"]):
                await asyncio.sleep(0.05)
            newest = (await http.get("/api/v1/runs")).json()["data"][0]
            assert newest["terminal"]["code"] == "caller"


def test_no_host_is_said_at_once(tmp_path: Path) -> None:
    """A host that isn't there: exit 69 and one sentence, and nothing on stdout."""
    world = DoorWorld(home=tmp_path)
    environment = {**world.environment(), "REMIT_API_KEY": "rk_" + "x" * 43, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-m", "remit.cli", "mcp", "--host", "http://127.0.0.1:9"],
        env={**os.environ, **environment},
        cwd=tmp_path,
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (69, "")
    assert "doesn't answer" in done.stderr
    assert "Traceback" not in done.stderr
