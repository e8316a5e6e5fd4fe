"""A host that dies in the middle, by kill -9: nothing goes on, nothing is half done, nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.testing import Reply, route_by_stage
from whole_kit import (
    MEND,
    NO_CHECKS,
    Ended,
    World,
    alive,
    descendants_of,
    differing,
    gone_within,
    look_closely,
    nonce,
    planned,
    processes_with,
    reviewed,
    shell,
    worked,
)


@pytest.fixture(autouse=True)
def _without_checks(world: World) -> None:
    world.workspace = dict(NO_CHECKS)


def wait_for(there: Callable[[], Any], process: subprocess.Popen[str], *, timeout_s: float = 60) -> None:
    """Wait until something is there, as long as the program runs."""
    until = time.monotonic() + timeout_s
    while not there():
        if process.poll() is not None:
            output, errors = process.communicate()
            pytest.fail(f"it ended before, with {process.returncode}: {output} {errors}")
        assert time.monotonic() < until, "it didn't come"
        time.sleep(0.001)


def kill_9(process: subprocess.Popen[str]) -> set[int]:
    """Kill the host alone; the processes below it that still live some time later.

    An idle machine needs 40 ms for it.
    """
    below = descendants_of(process.pid)
    assert below
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=10)
    until = time.monotonic() + 5.0
    while (left := alive(below)) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def runs_of(world: World) -> list[dict[str, Any]]:
    code, output, errors = world.command("ps", "--all", "--json")
    assert code == 0, errors
    return [json.loads(line) for line in output.splitlines()]


DAEMONS = (
    "(setsid bash -c 'trap \"\" TERM HUP; exec -a {nonce}-d sleep 600' >/dev/null 2>&1 &);"
    " trap '' TERM; bash -c 'exec -a {nonce}-c sleep 600' & exec -a {nonce} sleep 600"
)


async def test_killed_in_a_tool(world: World) -> None:
    """R57, R58: within a second nothing is left; the next host ends the run as lost, who looks doesn't."""
    word = nonce()
    world.fake.script(
        *route_by_stage(plan=[planned()], work=[MEND, shell(DAEMONS.format(nonce=word)), worked()])
    )
    before = look_closely(world.root)
    process = world.start_run()
    wait_for(lambda: len(processes_with(word)) >= 3, process)
    assert kill_9(process) == set()
    assert gone_within(word, 0)
    assert look_closely(world.root) == before

    (found,) = runs_of(world)
    assert found["status"] == "working"
    assert world.command("show", found["id"])[0] == 0
    assert [run["status"] for run in runs_of(world)] == ["working"]

    world.fake.script(*reviewed(MEND))
    async with world.host() as host:
        assert [view.id for view in host.swept] == [found["id"]]
        lost = await Ended.of(host, host.open_run(found["id"]))
        assert lost.ending == ("indeterminate", "lost", "unproven")
        assert lost.types[-1] == "run.indeterminate"
        assert lost.types.count("run.settling") == 1
        assert lost.bill.coverage.attempts == 3
        (view,) = host.swept
        assert view.patch is not None, "what its checkout held is read at the next start"
        assert (view.patch.files, view.patch.reviewed) == (1, False)
        run = await host.start(world.request())
        assert (await run.ended()).status == "completed"
    assert differing(before, look_closely(world.root)) == {"calc/__init__.py"}
    async with world.host() as host:
        assert host.swept == ()


async def test_killed_in_a_model_call(world: World) -> None:
    """R57, R21: the call that was on the wire stands on the bill as one whose cost isn't known."""
    world.fake.script(Reply(text=planned().text, delay_ms=60_000))
    process = world.start_run()
    wait_for(lambda: world.fake.requests, process)
    assert kill_9(process) == set()
    assert world.fake.requests[0].wait(5)
    async with world.host() as host:
        (lost,) = host.swept
    assert lost.terminal is not None
    assert (lost.terminal.class_, lost.terminal.code) == ("lost", "unproven")
    assert lost.usage is not None
    assert not lost.usage.complete
    assert lost.usage.coverage.interrupted == 1
    assert lost.cost_usd is None


async def test_killed_in_a_check_on_the_base(world: World) -> None:
    """R57: while the workspace is prepared nothing of it outlives the host either."""
    word = nonce()
    command = {"id": "slow", "executable": "bash", "args": ["-c", f"exec -a {word} sleep 600"]}
    world.workspace = {"commands": [command], "checks": ["slow"]}
    before = look_closely(world.root)
    process = world.start_run()
    wait_for(lambda: processes_with(word), process)
    assert kill_9(process) == set()
    assert gone_within(word, 0)
    assert look_closely(world.root) == before
    checkouts = world.data / "node" / "checkouts"
    assert [path.name[:8] for path in checkouts.iterdir()] == ["scratch_"]
    async with world.host() as host:
        assert len(host.swept) == 1
    assert list(checkouts.iterdir()) == [], "the next start removes what the preparation left"


FILES = 800
KEEPER = "remit.workspaces.keeper"


@pytest.mark.slow
@pytest.mark.parametrize("after_ms", [0, 10, 60])
async def test_killed_in_a_delivery(world: World, after_ms: int) -> None:
    """R57, R60: a delivery that was cut in the middle is whole or undone once a host has opened again."""
    (world.root / "many").mkdir()
    many = [world.root / "many" / f"{number:04}.txt" for number in range(FILES)]
    for path in many[: FILES // 2]:
        path.write_text("old\n")
    before = look_closely(world.root)
    world.fake.script(
        *reviewed(shell(f"for n in $(seq -f %04g 0 {FILES - 1}); do echo new > many/$n.txt; done"))
    )
    process = world.start_run()
    wait_for(lambda: is_new(many[0]) or many[-1].exists() or is_new(many[FILES // 2 - 1]), process)
    await asyncio.sleep(after_ms / 1000)
    left = set[int]() if process.poll() is not None else kill_9(process)
    assert left == set()
    async with world.host() as host:
        runs, _ = await host.store.list_runs()
        (stored,) = runs
        assert stored.view.terminal is not None
        after = look_closely(world.root)
        changed = differing(before, after)
        wanted = {str(path.relative_to(world.root)) for path in many}
        assert changed in (set[str](), wanted), f"{len(changed)} of {len(wanted)}"
        if changed:
            assert all(is_new(path) for path in many)
        if stored.view.terminal.kind == "completed":
            assert changed == wanted


def is_new(path: Path) -> bool:
    try:
        return path.read_text() == "new\n"
    except OSError:
        return False


@pytest.mark.parametrize("victim", ["the checkout's keeper", "the one above it"])
async def test_the_keeper_is_killed(world: World, victim: str) -> None:
    """R57: when what holds the checkout dies, its commands die too, the run ends, and the next one works."""
    word = nonce()
    stubborn = shell(f"trap '' TERM; exec -a {word} sleep 600")
    world.fake.script(*route_by_stage(plan=[planned()], work=[stubborn]))
    before = look_closely(world.root)
    async with world.host() as host:
        run = await host.start(world.request())
        async with asyncio.timeout(60):
            while not any(words.startswith(word) for words in processes_with(word).values()):
                await asyncio.sleep(0.01)
        keepers = [pid for pid, words in descendants_of(os.getpid()).items() if KEEPER in words]
        (above,) = [pid for pid in keepers if {*keepers} - {pid} <= descendants_of(pid).keys()]
        holding = [pid for pid in keepers if descendants_of(pid).keys() & processes_with(word).keys()]
        (below,) = {*holding} - {above}  # there is a guard beside it, too
        os.kill(above if victim == "the one above it" else below, signal.SIGKILL)
        ended = await Ended.of(host, run)
        assert gone_within(word, 1)
        assert ended.ending == ("failed", "workspace", "lost")
        ended.check_story()
        assert look_closely(world.root) == before
        world.fake.script(*reviewed(MEND))
        second = await host.start(world.request())
        assert (await second.ended()).status == "completed"
