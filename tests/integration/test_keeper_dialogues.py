"""Programs in a checkout that are talked to: bytes both ways, bounded, and gone with the checkout."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keeper_places import place, processes_with
from remit.workspaces import Checkout, CommandSpec, KeeperLost, WorkspaceOperationError
from remit.workspaces._dialogue import Dialogue


@pytest.fixture(params=["bubblewrap", "none"])
async def checkout(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Checkout]:
    async with place(tmp_path, sandbox=request.param, allow_unconfined=True) as here:
        yield await here.open()


async def talk(checkout: Checkout, script: str, **options: Any) -> Dialogue:
    spec = CommandSpec(
        call_id=f"talk-{secrets.token_hex(4)}",
        argv=("/bin/sh", "-c", script),
        timeout_ms=60_000,
        max_output_bytes=65_536,
    )
    return await checkout.converse(replace(spec, **options))


async def hear_until(dialogue: Dialogue, end: bytes) -> bytes:
    heard = b""
    async with asyncio.timeout(30):
        while not heard.endswith(end):
            part = await dialogue.hear()
            assert part, heard[-200:]
            heard += part
    return heard


async def hear_all(dialogue: Dialogue) -> bytes:
    heard = b""
    async with asyncio.timeout(30):
        while part := await dialogue.hear():
            heard += part
    return heard


async def test_what_is_said_is_heard_and_answered(checkout: Checkout) -> None:
    """Bytes go both ways, cut anywhere, for as long as the program runs."""
    dialogue = await talk(checkout, 'while read -r line; do echo "got $line"; done')
    for text in (b"one\n", b"two\nth", b"ree\n"):
        await dialogue.say(text)
    assert await hear_until(dialogue, b"got three\n") == b"got one\ngot two\ngot three\n"
    assert not dialogue.ended
    stopped = await dialogue.stop()
    assert stopped is not None
    assert await hear_all(dialogue) == b""
    assert (await dialogue.wait()).status == "cancelled"


async def test_large_messages_go_through_whole(checkout: Checkout) -> None:
    """More than a pipe holds arrives unchanged, while both sides wait for each other."""
    dialogue = await talk(checkout, "cat")
    data = os.urandom(3 << 20)
    heard = bytearray()

    async def listen() -> None:
        while len(heard) < len(data):
            heard.extend(await dialogue.hear())

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(listen())
        group.create_task(dialogue.say(data))
    assert bytes(heard) == data
    await dialogue.stop()


async def test_stderr_is_drained_and_its_end_kept(checkout: Checkout) -> None:
    """R47: 256 KiB on stderr, half of it without a line's end, hold up nothing."""
    flood = "yes warning | head -c 131072 >&2; head -c 131072 /dev/zero | tr '\\0' x >&2"
    dialogue = await talk(checkout, f'{flood}; read -r q; echo "a $q"; echo last >&2')
    await dialogue.say(b"question\n")
    assert await hear_until(dialogue, b"\n") == b"a question\n"
    result = await dialogue.wait()
    assert result.stderr_total_bytes == 262_144 + len(b"last\n")
    assert result.stderr.endswith(b"last\n")
    assert len(result.stderr) <= 65_536


async def test_what_nobody_hears_holds_up_the_program_alone(checkout: Checkout) -> None:
    """A program that says more than is heard waits; the checkout goes on, and nothing grows."""
    dialogue = await talk(checkout, "yes")
    assert await dialogue.hear()
    await asyncio.sleep(0.3)
    rss_kib = int(Path(f"/proc/{checkout.pid}/statm").read_text().split()[1]) * 4
    assert rss_kib < 100_000
    assert (await checkout.call("read_file", {"relative_path": "tracked.txt"}))["content"] == "original\n"
    assert await dialogue.stop() is not None


async def test_last_words_are_heard_after_the_end(checkout: Checkout) -> None:
    """What was said before the end is heard, also by who listens late."""
    dialogue = await talk(checkout, "echo first; echo last; exit 3")
    result = await dialogue.wait()
    assert (result.status, result.exit_code) == ("exited", 3)
    assert await hear_all(dialogue) == b"first\nlast\n"
    assert await dialogue.hear() == b""


async def speak_on(dialogue: Dialogue) -> None:
    """Say something now and then: the supervisor closes the pipe a moment after the command began."""
    while True:
        await dialogue.say(b"hello\n")
        await asyncio.sleep(0.02)


async def test_who_reads_no_more_is_told_of(checkout: Checkout) -> None:
    """Speaking to a program that has closed its stdin, or has ended, is an error of that call."""
    dialogue = await talk(checkout, "exec 0<&-; echo ready; sleep 30")
    await hear_until(dialogue, b"ready\n")
    if checkout.sandbox == "none":  # a sandbox's own first process holds the pipe as well
        with pytest.raises(WorkspaceOperationError, match="reads no more"):
            await asyncio.wait_for(speak_on(dialogue), 20)
    await dialogue.stop()
    with pytest.raises(WorkspaceOperationError, match="isn't running"):
        await dialogue.say(b"hello\n")


async def test_stop_ends_all_that_it_started(checkout: Checkout) -> None:
    """A stop answers when the program and what it started are gone, also when TERM is ignored."""
    nap = str(1000 + secrets.randbelow(10**9))
    dialogue = await talk(checkout, f"trap '' TERM; sleep {nap} & echo up; sleep {nap}; sleep {nap}")
    await hear_until(dialogue, b"up\n")
    stopped = await dialogue.stop(grace_ms=100)
    assert stopped is not None
    assert stopped.how == "kill"
    assert stopped.pids
    assert processes_with(nap) == []
    assert await dialogue.stop() is None


async def test_it_ends_with_the_checkout(checkout: Checkout) -> None:
    """Closing the checkout ends what is talked to; who listens is told."""
    nap = str(1000 + secrets.randbelow(10**9))
    dialogue = await talk(checkout, f"echo up; sleep {nap}")
    await hear_until(dialogue, b"up\n")
    await checkout.close()
    assert processes_with(nap) == []
    assert dialogue.ended


async def test_a_lost_keeper_ends_it(checkout: Checkout) -> None:
    """With the keeper dies what it ran, and who listens is told."""
    nap = str(1000 + secrets.randbelow(10**9))
    dialogue = await talk(checkout, f"echo up; sleep {nap}")
    await hear_until(dialogue, b"up\n")
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(_outcome(dialogue))
        await asyncio.sleep(0.05)
        os.kill(checkout.pid, signal.SIGKILL)
    assert isinstance(listening.result(), KeeperLost)
    async with asyncio.timeout(10):
        while processes_with(nap):
            await asyncio.sleep(0.02)


async def _outcome(dialogue: Dialogue) -> object:
    try:
        return await dialogue.hear()
    except KeeperLost as error:
        return error


async def test_outside_the_sandbox_only_when_asked(tmp_path: Path) -> None:
    """Unconfined it sees the machine, starts outside of the tree, and inherits no variable."""
    async with place(tmp_path) as here:
        checkout = await here.open()
        marker = tmp_path / "outside"
        confined = await talk(checkout, f"ls {tmp_path}/data 2>&1 | wc -l; pwd")
        assert await hear_all(confined) == f"1\n{checkout.root}\n".encode()
        script = f'pwd; echo "[$CI]"; cat {checkout.root}/tracked.txt; touch {marker}'
        free = await talk(checkout, script, confined=False, environment={"PATH": "/usr/bin:/bin"})
        assert await hear_all(free) == b"/\n[]\noriginal\n"
        assert (await free.wait()).exit_code == 0
        assert marker.exists()
