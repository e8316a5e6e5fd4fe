"""Without a namespace a command can reach its own supervisor: killed or stopped, nothing outlives a call."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keeper_places import place, processes_with, run
from remit.workspaces import Checkout, KeeperLost, _checkout

_DAEMON = (
    'python3 -c "import os, signal; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); '
    "signal.signal(15, signal.SIG_IGN); os.execvp('sleep', ['sleep', '{n}'])\""
)


@pytest.fixture
async def checkout(tmp_path: Path) -> AsyncIterator[Checkout]:
    async with place(tmp_path, sandbox="none", allow_unconfined=True) as here:
        yield await here.open()


def nap() -> str:
    """How long to sleep, by which the sleeping process is told from all others."""
    return str(1000 + secrets.randbelow(10**9))


async def started(number: str, count: int = 1) -> None:
    """Waits until so many processes sleep for that long."""
    async with asyncio.timeout(60):
        while len(processes_with(number)) < count:
            await asyncio.sleep(0.01)


async def test_a_command_that_kills_its_supervisor_ends_with_it(checkout: Checkout) -> None:
    """R1, R2: the call ends as killed, names what still ran, and none of it is left, daemons neither."""
    number = nap()
    began = time.monotonic()
    result = await run(checkout, f"{_DAEMON.format(n=number)}; sleep 0.3; kill -9 $PPID; sleep {number}")
    assert (result.status, result.signal, result.exit_code) == ("signalled", 9, None), result
    assert time.monotonic() - began < 30
    assert sum(left.startswith(f"sleep {number} (pid ") for left in result.leftovers) >= 1, result.leftovers
    assert processes_with(number) == []
    assert (await run(checkout, "echo fine")).text == "fine\n"


async def test_what_a_killed_supervisor_leaves_is_told_from_another_commands(checkout: Checkout) -> None:
    """R2, R33: only what the dead supervisor had adopted ends; a command beside it goes on."""
    mine, others = nap(), nap()
    async with asyncio.TaskGroup() as group:
        beside = group.create_task(run(checkout, f"{_DAEMON.format(n=others)}; sleep {others}"))
        await started(others, 2)
        await run(checkout, f"{_DAEMON.format(n=mine)}; sleep 0.3; kill -9 $PPID; sleep {mine}")
        assert processes_with(mine) == []
        assert len(processes_with(others)) == 2
        assert not beside.done()
        await checkout.stop()
    assert beside.result().status == "cancelled"
    assert processes_with(others) == []


@pytest.mark.parametrize("grace_ms", [0, 200])
async def test_a_stopped_supervisor_holds_up_no_cancel(checkout: Checkout, grace_ms: int) -> None:
    """R1, R50: a command that stops its supervisor, and ignores TERM, is gone when the stop is answered."""
    number = nap()
    async with asyncio.TaskGroup() as group:
        stubborn = f"trap '' TERM; kill -STOP $PPID; sleep {number}; sleep {number}"
        running = group.create_task(run(checkout, f"{_DAEMON.format(n=number)}; {stubborn}"))
        await started(number, 2)
        (stopped,) = await checkout.stop(grace_ms=grace_ms)
        assert processes_with(number) == []
    assert (stopped.how, stopped.ms < 20_000) == ("kill", True)
    assert running.result().status == "cancelled"
    assert "hasn't gone" not in (running.result().message or "")


async def test_a_stopped_supervisor_holds_up_no_timeout(checkout: Checkout) -> None:
    """R50: the command has ended, its stopped supervisor can't say so: the time limit ends the call."""
    result = await run(checkout, "kill -STOP $PPID; echo said", timeout_ms=1_000)
    assert (result.status, result.text) == ("timed_out", "said\n")
    assert result.duration_ms < 30_000


async def test_a_stopped_supervisor_holds_up_no_close(checkout: Checkout) -> None:
    """R2: closing the checkout ends what a stopped supervisor holds, before the close is answered."""
    number = nap()
    async with asyncio.TaskGroup() as group:
        group.create_task(run(checkout, f"kill -STOP $PPID; sleep {number}; true"))
        await started(number)
        assert await checkout.close() == ()
        assert processes_with(number) == []


@pytest.mark.parametrize("way", ["cancel", "stop", "close"])
async def test_a_keeper_that_does_not_answer_is_killed(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """R1, R50: a command can stop the keeper too: no cancel, stop or close waits for it without end."""
    monkeypatch.setattr(_checkout, "_SHIELD_S", 1.0)
    number = nap()
    running = asyncio.ensure_future(run(checkout, f"sleep {number}"))  # noqa: TID251 - awaited below
    await started(number)
    os.kill(checkout.pid, signal.SIGSTOP)
    async with asyncio.timeout(60):
        if way == "cancel":
            running.cancel()
        elif way == "stop":
            with pytest.raises(KeeperLost):
                await checkout.stop(grace_ms=0)
        else:
            assert await checkout.close() == ()
        with pytest.raises(asyncio.CancelledError if way == "cancel" else KeeperLost):
            await running
        while processes_with(number):
            await asyncio.sleep(0.01)
