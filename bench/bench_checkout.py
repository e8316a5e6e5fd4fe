"""What a checkout and a sandboxed command cost, beside the least that the same thing can cost here.

Floors are measured in the same run: a bare mount, `cp`, a plain process, a bare bubblewrap, a plain pipe.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from remit.workspaces import Checkout, CheckoutRequest, CommandSpec, Keeper

FILES = 50_000
COPIED_FILES = 10_000
ROUNDS = 25
PIPED_BYTES = 200_000_000
TEMPORARY = os.path.realpath(tempfile.gettempdir())


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value beside its floor and its budget."""

    name: str
    value: float
    unit: str = "ms"
    floor: float | None = None
    """The least that it can cost here; None: there is nothing to compare with."""
    budget: float | None = None
    over_floor: bool = False
    """Whether the budget is for what is above the floor."""

    @property
    def kept(self) -> bool:
        """Whether the budget was kept."""
        counted = self.value - (self.floor or 0) if self.over_floor else self.value
        return self.budget is None or counted <= self.budget

    def line(self) -> str:
        """A row of the table."""
        floor = "" if self.floor is None else f"{self.floor:10.2f}"
        ratio = "" if not self.floor else f"{self.value / self.floor:8.1f}x"
        allowed = "" if self.budget is None else f"{'+' if self.over_floor else ''}{self.budget:g}"
        mark = "ok  " if self.kept else "OVER"
        return f"{mark} {self.name:38} {self.value:10.2f} {self.unit:5} {floor:>10} {ratio:>9} {allowed:>8}"


class Bench:
    """A tree of 50 000 files and a keeper."""

    def __init__(self, base: Path, keeper: Keeper) -> None:
        self.base = base
        self.keeper = keeper
        self.numbers = iter(range(10**6))

    async def open(self, root: str = "big", isolation: str = "overlay") -> Checkout:
        name = f"c{next(self.numbers)}"
        return await self.keeper.open(
            CheckoutRequest(
                checkout_id=name,
                root=self.base / root,
                storage=self.base / "data" / "checkouts" / name,
                data=self.base / "data",
                isolation="copy" if isolation == "copy" else "overlay",
            )
        )

    def spec(self, *argv: str) -> CommandSpec:
        return CommandSpec(call_id=f"n{next(self.numbers)}", argv=argv, timeout_ms=60_000)

    # ---- the figures

    async def opening(self) -> list[Figure]:
        opened: list[float] = []
        closed: list[float] = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            checkout = await self.open()
            opened.append(time.perf_counter() - started)
            started = time.perf_counter()
            await checkout.close()
            closed.append(time.perf_counter() - started)
        return [
            Figure(name="open, 50 000 files", value=quick_ms(opened), floor=self._bare_mount_ms(), budget=50),
            Figure(name="close, nothing changed", value=quick_ms(closed), budget=50),
        ]

    def _bare_mount_ms(self) -> float:
        parts = [self.base / "floor" / name for name in ("upper", "work", "merged")]
        for part in parts:
            part.mkdir(parents=True, exist_ok=True)
        upper, work, merged = parts
        options = f"lowerdir={self.base / 'big'},upperdir={upper},workdir={work},userxattr"
        command = [
            "unshare",
            "--map-current-user",
            "--mount",
            "mount",
            "-t",
            "overlay",
            "none",
            "-o",
            options,
            merged,
        ]
        return quick_ms([_timed(lambda: subprocess.run(command, check=True)) for _ in range(ROUNDS)])

    async def copying(self) -> list[Figure]:
        found: list[Figure] = []
        for root, files, budget in (("middle", COPIED_FILES, 1_500), ("big", FILES, None)):
            took = min([await self._copy_s(root) for _ in range(3 if budget else 1)])
            target = self.base / "floor" / "copy"
            copied = ["cp", "-a", str(self.base / root), str(target)]
            floor = _timed(lambda words=copied: subprocess.run(words, check=True))
            shutil.rmtree(target)
            name = f"open as a copy, {files:_} files".replace("_", " ")
            found.append(Figure(name=name, value=took * 1e3, floor=floor * 1e3, budget=budget))
        return found

    async def _copy_s(self, root: str) -> float:
        started = time.perf_counter()
        checkout = await self.open(root, isolation="copy")
        took = time.perf_counter() - started
        await checkout.close()
        return took

    async def commands(self) -> list[Figure]:
        checkout = await self.open("small")
        ours, plain, bare = [list[float]() for _ in range(3)]
        program = str(self.keeper.probe.bubblewrap)
        wrapped = [
            program,
            "--unshare-all",
            "--die-with-parent",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "true",
        ]
        for _ in range(ROUNDS):  # in turns, so that all see the same machine
            ours.append(await _timed_async(lambda: checkout.run(self.spec("true"))))
            plain.append(_timed(lambda: subprocess.run(["true"], check=True)))
            bare.append(_timed(lambda: subprocess.run(wrapped, check=True)))
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(checkout.run(self.spec("true")))
        rate = 40 / (time.perf_counter() - started)
        operations = [
            await _timed_async(lambda: checkout.call("read_file", {"relative_path": "file"}))
            for _ in range(200)
        ]
        direct = [_timed((self.base / "small" / "file").read_text) for _ in range(200)]
        figures = [
            Figure(
                name="command over a plain process",
                value=quick_ms(ours),
                floor=quick_ms(plain),
                budget=10,
                over_floor=True,
            ),
            Figure(name="command beside a bare bubblewrap", value=quick_ms(ours), floor=quick_ms(bare)),
            Figure(name="commands a second, 40 at once", value=rate, unit="/s"),
            Figure(
                name="read a small file",
                value=quick_ms(operations),
                floor=quick_ms(direct),
                budget=1,
                over_floor=True,
            ),
            await self._stop(checkout),
            await self._pipe(checkout),
            Figure(name="keeper's own memory", value=_own_mib(checkout.pid), unit="MiB", budget=12),
        ]
        await checkout.close()
        return figures

    async def _stop(self, checkout: Checkout) -> Figure:
        times: list[float] = []
        for _ in range(ROUNDS):
            async with asyncio.TaskGroup() as group:
                group.create_task(checkout.run(self.spec("/bin/sh", "-c", "sleep 600 & sleep 600")))
                await asyncio.sleep(0.05)
                times.append(await _timed_async(checkout.stop))
        return Figure(name="stop, until all processes are gone", value=quick_ms(times), budget=30)

    async def _pipe(self, checkout: Checkout) -> Figure:
        command = ["head", "-c", str(PIPED_BYTES), "/dev/zero"]
        ours = await _timed_async(lambda: checkout.run(self.spec(*command)))
        floor = await asyncio.to_thread(_read_pipe_s, command)
        return Figure(name="200 MB of output, bounded", value=ours * 1e3, floor=floor * 1e3, budget=4_000)


def _read_pipe_s(command: list[str]) -> float:
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while process.stdout.read(65_536):
            pass
    return time.perf_counter() - started


def _own_mib(pid: int) -> float:
    """Memory that the process shares with nobody."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    private = (line.split() for line in text.splitlines() if line.startswith("Private_"))
    return sum(int(words[1]) for words in private) / 1024


def quick_ms(times_s: list[float]) -> float:
    """The slowest of the fastest fifth: what it costs when nobody else uses the machine just then."""
    return statistics.quantiles(times_s, n=5)[0] * 1e3


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


async def _timed_async(action: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await action()
    return time.perf_counter() - started


def _lay_out(base: Path) -> None:
    (base / "small").mkdir()
    (base / "small" / "file").write_text("x = 1\n" * 40)
    for name, files in (("middle", COPIED_FILES), ("big", FILES)):
        for folder in range(files // 100):
            inner = base / name / str(folder)
            inner.mkdir(parents=True)
            for number in range(100):
                (inner / f"{number}.py").write_text("x = 1\n")


async def measure() -> list[Figure]:
    """Every figure."""
    with tempfile.TemporaryDirectory(prefix="remit-bench-", dir=TEMPORARY) as folder:
        base = Path(folder)
        _lay_out(base)
        started = time.perf_counter()
        async with await Keeper.start(data=base / "data") as keeper:
            first = Figure(
                name="start of the keeper, first on this disk", value=(time.perf_counter() - started) * 1e3
            )
            bench = Bench(base, keeper)
            found = [first, *await bench.opening(), *await bench.copying(), *await bench.commands()]
        started = time.perf_counter()
        async with await Keeper.start(data=base / "data"):
            again = Figure(
                name="start of the keeper", value=(time.perf_counter() - started) * 1e3, budget=200
            )
        return [*found, again]


def main() -> int:
    """Print the figures; 1 when a budget is passed."""
    figures = asyncio.run(measure())
    print(f"     {'':38} {'here':>10} {'':5} {'floor':>10} {'ratio':>9} {'budget':>8}")
    for figure in figures:
        print(figure.line())
    return 0 if all(figure.kept for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
