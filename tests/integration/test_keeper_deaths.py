"""Whoever dies, nothing of a checkout lives on; and many checkouts at once share nothing they shouldn't."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from keeper_places import place, processes_with, run
from remit.workspaces import Checkout, CheckoutRequest, Keeper, KeeperLost
from remit.workspaces.keeper import _processes

HOST = """
import asyncio, os, sys
from pathlib import Path
from remit.workspaces import CheckoutRequest, CommandSpec, Keeper

async def main(base, number, sandbox):
    root = base / "repo"
    root.mkdir(parents=True)
    keeper = await Keeper.start(data=base / "data")
    text = f"trap '' TERM HUP; setsid sleep {number} & (setsid sleep {number} &) ; sleep {number}"
    async with asyncio.TaskGroup() as group:
        for name in ("a", "b"):
            request = CheckoutRequest(checkout_id=name, root=root, storage=base / "data/checkouts" / name,
                                      data=base / "data", sandbox=sandbox, allow_unconfined=True)
            checkout = await keeper.open(request)
            for call in ("1", "2"):
                spec = CommandSpec(call_id=call, argv=("/bin/sh", "-c", text), timeout_ms=600_000)
                group.create_task(checkout.run(spec))
            print("keeper", checkout.pid, flush=True)
        print("zygote", keeper.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
"""


class Host:
    """Another process that holds a keeper with two checkouts and twelve sleeping processes."""

    def __init__(self, base: Path, sandbox: str) -> None:
        self.number = str(1000 + secrets.randbelow(10**9))
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOST, str(base.resolve()), self.number, sandbox],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().split() for _ in range(3)]
        self.keepers = [int(pid) for kind, pid in lines if kind == "keeper"]
        self.zygote = next(int(pid) for kind, pid in lines if kind == "zygote")
        wait_until(lambda: len(processes_with(self.number)) == 13)  # twelve, and the host itself

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        for pid in processes_with(self.number):  # only a failing test leaves any
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def alive(self) -> list[int]:
        """Everything that still runs of it, the host aside."""
        ours = [pid for pid in (self.zygote, *self.keepers) if runs(pid)]
        return ours + [pid for pid in processes_with(self.number) if pid != self.process.pid]


def runs(pid: int) -> bool:
    process = _processes.read_process(pid)
    return process is not None and not process.ended


def wait_until(condition: object, timeout_s: float = 20) -> float:
    """Waits until something holds; how long it took, in seconds."""
    assert callable(condition)
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < timeout_s, "it took too long"
        time.sleep(0.005)
    return time.monotonic() - started


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
@pytest.mark.parametrize("victim", ["host", "zygote"])
def test_everything_dies_within_a_second(tmp_path: Path, sandbox: str, victim: str) -> None:
    """R2: kill -9 of the host, or of the zygote, ends every keeper, command and daemon within a second."""
    host = Host(tmp_path, sandbox)
    try:
        os.kill(host.process.pid if victim == "host" else host.zygote, signal.SIGKILL)
        assert wait_until(lambda: host.alive() == []) < 1.0
    finally:
        host.end()


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
def test_a_killed_keeper_takes_its_checkout_alone(tmp_path: Path, sandbox: str) -> None:
    """R2: kill -9 of one keeper ends what ran in its checkout, and no other checkout notices."""
    host = Host(tmp_path, sandbox)
    try:
        before = len(processes_with(host.number))
        os.kill(host.keepers[0], signal.SIGKILL)
        wait_until(lambda: len(processes_with(host.number)) <= (before + 1) // 2)
        assert runs(host.keepers[1])
        assert runs(host.zygote)
        time.sleep(0.2)
        assert len(processes_with(host.number)) > 1
    finally:
        host.process.kill()
        try:
            wait_until(lambda: host.alive() == [])
        finally:
            host.end()


async def test_a_dead_keeper_is_an_error_for_its_callers_only(tmp_path: Path) -> None:
    """A keeper that dies fails what waits for it with a typed error; new checkouts open as before."""
    async with place(tmp_path) as here:
        first, second = await here.open("c1"), await here.open("c2")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(expect_loss(first))
            await asyncio.sleep(0.3)
            os.kill(first.pid, signal.SIGKILL)
        assert waiting.result() == "lost"
        with pytest.raises(KeeperLost):
            await first.call("read_file", {"relative_path": "tracked.txt"})
        assert await first.close() == ()
        assert (await run(second, "echo fine")).text == "fine\n"
        third = await here.open("c1")
        assert (await run(third, "echo fine")).text == "fine\n"


async def expect_loss(checkout: Checkout) -> str:
    with pytest.raises(KeeperLost) as lost:
        await run(checkout, "sleep 600")
    return lost.value.reason


async def test_a_dead_zygote_is_said_so(tmp_path: Path) -> None:
    """Opening through a zygote that has died is a typed error, at once; ending it is fine."""
    async with place(tmp_path) as here:
        os.kill(here.keeper.pid, signal.SIGKILL)
        await asyncio.sleep(0.1)
        with pytest.raises(KeeperLost):
            await here.open()


async def test_ending_the_keeper_ends_running_commands(tmp_path: Path) -> None:
    """R2: `aclose` with commands under way ends them and fails their callers; twice is fine."""
    number = str(1000 + secrets.randbelow(10**9))
    async with place(tmp_path) as here:
        checkout = await here.open()
        async with asyncio.TaskGroup() as group:
            group.create_task(expect_loss_of(checkout, f"setsid sleep {number} & sleep {number}"))
            while len(processes_with(number)) < 2:
                await asyncio.sleep(0.02)
            await here.keeper.aclose()
            assert processes_with(number) == []
        assert not runs(checkout.pid)
        await here.keeper.aclose()


async def expect_loss_of(checkout: Checkout, text: str) -> None:
    with pytest.raises(KeeperLost):
        await run(checkout, text)


async def test_a_keeper_started_in_a_thread_that_ends_lives_on(tmp_path: Path) -> None:
    """The zygote lives as long as the process that started it, not as the thread that did."""
    root = tmp_path.resolve() / "repo"
    root.mkdir()
    loop = asyncio.new_event_loop()
    started: list[Keeper] = []
    starter = threading.Thread(target=lambda: started.append(loop.run_until_complete(_start(tmp_path))))
    starter.start()
    await asyncio.to_thread(starter.join)
    await asyncio.sleep(0.3)
    assert runs(started[0].pid)
    closer = threading.Thread(target=lambda: loop.run_until_complete(started[0].aclose()))
    closer.start()
    await asyncio.to_thread(closer.join)
    loop.close()
    assert not runs(started[0].pid)


async def _start(base: Path) -> Keeper:
    return await Keeper.start(data=base.resolve() / "data")


@pytest.mark.slow
async def test_two_hundred_checkouts_at_once(tmp_path: Path) -> None:
    """Many checkouts at once: each opens, runs a command, holds few descriptors and none of another's."""
    count = 200
    async with place(tmp_path) as here:
        before = len(os.listdir("/proc/self/fd"))
        gate = asyncio.Semaphore(20)

        async def use(number: int) -> Checkout:
            async with gate:
                checkout = await here.open(f"c{number}")
                result = await run(checkout, f"echo {number} > mine; cat mine")
                assert result.text == f"{number}\n"
                return checkout

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(use(number)) for number in range(count)]
        checkouts = [task.result() for task in tasks]
        assert len(os.listdir("/proc/self/fd")) <= before + count
        last = checkouts[-1]
        handles = os.listdir(f"/proc/{last.pid}/fd")
        assert len(handles) < 16, handles
        assert len(os.listdir(f"/proc/{here.keeper.pid}/fd")) < count + 16
        async with asyncio.TaskGroup() as group:
            for checkout in checkouts:
                group.create_task(checkout.close())
        assert os.listdir(here.data / "checkouts") == []
        async with asyncio.timeout(20):
            while len(os.listdir(f"/proc/{here.keeper.pid}/fd")) >= 16:
                await asyncio.sleep(0.05)


async def test_descriptors_are_given_back(tmp_path: Path) -> None:
    """A keeper that has run many commands, failing ones too, holds as many descriptors as before."""
    async with place(tmp_path) as here:
        checkout = await here.open()
        await run(checkout, "true")
        await checkout.call("read_file", {"relative_path": "tracked.txt"})
        before = len(os.listdir(f"/proc/{checkout.pid}/fd"))
        for text in ("true", "exit 3", "sleep 60 &", "no-such-program"):
            for _ in range(5):
                await run(checkout, text)
        await run(checkout, "sleep 60", timeout_ms=50)
        await checkout.call("read_file", {"relative_path": "tracked.txt"})
        assert len(os.listdir(f"/proc/{checkout.pid}/fd")) == before


async def test_a_cancelled_opening_leaves_nothing_running(tmp_path: Path) -> None:
    """R3: an opening whose caller is cancelled ends its keeper; the name can be opened again."""
    async with place(tmp_path, isolation="copy") as here:
        for number in range(3_000):
            (here.root / f"file{number}").write_text("x")
        guard = _processes.children_of(here.keeper.pid)
        opening = asyncio.get_running_loop().create_task(here.open())
        while _processes.children_of(here.keeper.pid) == guard and not opening.done():
            await asyncio.sleep(0.001)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with asyncio.timeout(10):
            while _processes.children_of(here.keeper.pid) != guard:
                await asyncio.sleep(0.01)
        again = await here.open()
        assert (await run(again, "ls | wc -l")).text == "3002\n"


async def test_zygote_imports_the_standard_library_alone(tmp_path: Path) -> None:
    """A checkout costs a fork of a small process: no pydantic, no asyncio, nothing from outside."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import remit.workspaces.keeper.__main__; "
        "print(*sorted(m for m in sys.modules if '.' not in m))"
    )
    source = Path(__file__).resolve().parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(source)], capture_output=True, text=True, check=True
    )
    names = set(done.stdout.split())
    assert names <= set(sys.stdlib_module_names) | {"remit", "__main__"}, names
    assert "asyncio" not in names
    async with place(tmp_path) as here:
        status = Path(f"/proc/{here.keeper.pid}/status").read_text()
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        assert int(resident.split()[1]) < 40_000
        assert "Threads:\t1\n" in status


def test_request_defaults_to_generation_one(tmp_path: Path) -> None:
    """A checkout's generation starts at 1, as the lease's does."""
    request = CheckoutRequest(checkout_id="x", root=tmp_path, storage=tmp_path, data=tmp_path)
    assert request.generation == 1


STARTING = """
import asyncio, sys
from pathlib import Path
from remit.workspaces import CheckoutRequest, CommandSpec, Keeper

async def go_on(checkout, name, number):
    for turn in range(10**6):
        argv = ("/bin/sh", "-c", f"sleep {number} & sleep 0.01")
        await checkout.run(CommandSpec(call_id=f"{name}{turn}", argv=argv, timeout_ms=600_000))

async def main(base, number):
    root = base / "repo"
    root.mkdir(parents=True)
    keeper = await Keeper.start(data=base / "data")
    checkout = await keeper.open(CheckoutRequest(
        checkout_id="a", root=root, storage=base / "data/checkouts/a", data=base / "data"))
    async with asyncio.TaskGroup() as group:
        for name in "xyz":
            group.create_task(go_on(checkout, name, number))
        print(checkout.pid, keeper.pid, flush=True)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


@pytest.mark.parametrize("guarded", [True, False])
def test_nothing_stays_of_a_command_that_was_just_starting(tmp_path: Path, guarded: bool) -> None:
    """R2, R58: host, zygote and keeper killed while commands start: all goes; else at the next start."""
    number = str(1000 + secrets.randbelow(10**9))
    guards: list[int] = []
    for turn in range(5):
        host = subprocess.Popen(
            [sys.executable, "-c", STARTING, str(tmp_path / str(turn)), number],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert host.stdout is not None
        with host.stdout:
            keeper, zygote = map(int, host.stdout.readline().split())
        time.sleep(0.05 + secrets.randbelow(50) / 1000)
        helpers = [pid for pid in _processes.children_of(zygote) if pid != keeper]
        guards += helpers if guarded else []
        for pid in (host.pid, zygote, keeper, *(() if guarded else helpers)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        host.wait()
    if not guarded:
        time.sleep(0.3)
        asyncio.run(_start_once(tmp_path / "next"))
    wait_until(lambda: processes_with(number) == [] and not any(runs(pid) for pid in guards))


async def _start_once(base: Path) -> None:
    async with await Keeper.start(data=base):
        pass
