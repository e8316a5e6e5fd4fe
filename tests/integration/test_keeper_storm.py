"""Commands started, stopped, cancelled and timed out in every order: each ends once, and nothing stays."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from pathlib import Path
from typing import Any

import pytest

from keeper_places import place, processes_with, run, shell
from remit.workspaces import Checkout

TEXTS = (
    "true",
    "exit 3",
    "sleep {n}",
    "sleep {n} & true",
    "setsid sleep {n} & sleep 0.02",
    "trap '' TERM; sleep {n}",
    "trap 'exit 9' TERM; sleep {n}",
    "yes | head -c 200000",
    "(sleep {n} &) ; exit 1",
    "kill -9 $$",
    "kill -9 -1; sleep {n}",
)


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
@pytest.mark.parametrize("seed", range(3))
async def test_storm_of_commands_and_stops(tmp_path: Path, sandbox: str, seed: int) -> None:
    """R1, R2, R50: whatever meets whatever, every command has one ending and leaves no process or handle."""
    chance = random.Random(seed)
    number = str(1000 + secrets.randbelow(10**9))
    # `kill -9 -1` outside of a sandbox would end everything that this user runs.
    texts = [text for text in TEXTS if sandbox == "bubblewrap" or "-1" not in text]
    async with place(tmp_path, sandbox=sandbox, allow_unconfined=True) as here:
        checkout = await here.open()
        await run(checkout, "true")
        before = len(os.listdir(f"/proc/{checkout.pid}/fd"))
        gate = asyncio.Semaphore(12)
        async with asyncio.timeout(100), asyncio.TaskGroup() as group:
            for call in range(60):
                text = chance.choice(texts).replace("{n}", number)
                how = (chance.choice(("stop", "cancel", "time", "stop")), chance.random() * 0.1)
                group.create_task(_one(checkout, f"c{call}", text, how, gate))
        assert await checkout.stop() == ()
        assert processes_with(number) == []
        assert len(os.listdir(f"/proc/{checkout.pid}/fd")) == before
        assert (await run(checkout, "echo fine")).text == "fine\n"


async def _one(
    checkout: Checkout, call_id: str, text: str, how: tuple[str, float], gate: asyncio.Semaphore
) -> None:
    way, after_s = how
    async with gate:
        timeout_ms = max(1, int(after_s * 1000)) if way == "time" else 60_000
        running = asyncio.get_running_loop().create_task(
            checkout.run(shell(text, call_id=call_id, timeout_ms=timeout_ms))
        )
        await asyncio.sleep(0 if way == "time" else after_s)
        if way == "cancel":
            running.cancel()
            try:
                await running
            except asyncio.CancelledError:
                assert running.cancelled() or running.done()
            return
        if way == "stop":
            (stopped,) = await checkout.stop(call_id, grace_ms=int(after_s * 500))
            assert stopped.call_id == call_id
        result = await running
        assert result.status in ("exited", "signalled", "timed_out", "cancelled"), result
        assert result.message is None or "hasn't gone" not in result.message


async def test_stop_at_once_after_the_start(tmp_path: Path) -> None:
    """R3: a command stopped in its first moments, before its program even runs, is gone and says so."""
    number = str(1000 + secrets.randbelow(10**9))
    async with place(tmp_path) as here:
        checkout = await here.open()
        for turn in range(20):
            async with asyncio.TaskGroup() as group:
                running = group.create_task(run(checkout, f"sleep {number}"))
                await asyncio.sleep(turn * 0.0007)
                for stopped in await checkout.stop(grace_ms=0):
                    assert stopped.pids, "whatever was stopped had a process"
                await asyncio.sleep(0)
                if not running.done():
                    await checkout.stop(grace_ms=0)
            assert running.result().status == "cancelled"
        assert processes_with(number) == []


ODD: list[tuple[str, dict[str, Any]]] = [
    ("echo a\0b", {}),
    ("true", {"environment": {"A=B": "c"}}),
    ("true", {"environment": {"A": "b\0--bind\0/\0/mnt"}}),
    ("true", {"environment": {"A\0--share-net\0": "b"}}),
    ("true", {"cwd": "no/such/folder"}),
    ("true " + "x" * 3_000_000, {}),
]


@pytest.mark.parametrize(("text", "options"), ODD, ids=range(len(ODD)))
async def test_odd_arguments_are_results(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    """What can't be an argument, a folder or a variable fails that command alone."""
    async with place(tmp_path) as here:
        checkout = await here.open()
        result = await run(checkout, text, **options)
        assert result.status == "failed_to_start", result
        assert result.message
        assert (await run(checkout, "echo fine")).text == "fine\n"


async def test_bytes_that_are_no_text_reach_a_command(tmp_path: Path) -> None:
    """R41: an argument with bytes that aren't UTF-8, as file names have them, is passed on as it is."""
    async with place(tmp_path) as here:
        checkout = await here.open()
        result = await run(checkout, "printf %s 'na\udcefve'")
        assert result.stdout == b"na\xefve"
        assert result.text == "na\ufffdve"
