"""What runs cost that wait on a provider: memory, CPU while nothing happens, how fast they start and end.

`python -m bench.bench_waiting [COUNT]`; 1 000 runs by default, all 10 000 of the budget with `10000` (some
minutes). Beside them as the floor: as many bare connections with a reply begun, in the same process.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench.bench_runs import Provider, Report, config_for, make_tree, request

from remit.cli._ready import calm_collector, raise_file_limit
from remit.host import Host

DEFAULT = 1_000
MOST = 10_000
MOST_GIB = 1.5
"""Resident, with 10 000 runs. Fewer have their share of what lies above the empty host."""
MOST_OF_A_CORE = 0.05
WATCHED_S = 10.0
STARTED_WITHIN_S = 120.0
STARTED_AT_ONCE = 50


class Waiting(Provider):
    """The provider's process, which only says how many replies it has begun."""

    def begun(self) -> int:
        """How many that are."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@contextmanager
def waiting_provider() -> Generator[Waiting]:
    """A provider that keeps everybody waiting."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.waiting_provider"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[1],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Waiting(process, {"base_url": process.stdout.readline().strip(), "api_key": "key"})
    finally:
        process.stdin.close()
        process.wait(30)


def resident_mib() -> float:
    """Resident memory of this process."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


async def watch_cpu() -> float:
    """The part of a core that this process uses while nothing happens."""
    await asyncio.sleep(1)
    began, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(WATCHED_S)
    return (time.process_time() - cpu) / (time.monotonic() - began)


async def wait_until(fake: Waiting, wanted: int) -> None:
    """Until so many replies have begun."""
    until = time.monotonic() + STARTED_WITHIN_S
    while (begun := fake.begun()) < wanted:
        if time.monotonic() > until:
            raise RuntimeError(f"after {STARTED_WITHIN_S:.0f} s only {begun} of {wanted} replies have begun")
        await asyncio.sleep(0.1)


async def measure_floor(fake: Waiting, count: int, report: Report) -> None:
    """As many bare connections with a reply begun."""
    host, _, port = fake.base_url.removeprefix("http://").removesuffix("/v1").partition(":")
    before = resident_mib()
    writers: list[asyncio.StreamWriter] = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        await reader.readuntil(b"data: ")
        writers.append(writer)
    each = (resident_mib() - before) * 1024 / count
    report.line(f"{count} bare connections", each, "KiB", said="each (floor)")
    for writer in writers:
        writer.close()


async def measure(base: Path, fake: Waiting, count: int) -> bool:
    """Print the figures; whether every budget was kept."""
    report = Report()
    await measure_floor(fake, count, report)
    config = config_for(base, fake, make_tree(base / "small", files=40), at_once=count)
    async with Host(config) as host:
        first = await host.start(request(prompt="Wait."))
        await wait_until(fake, count + 1)
        empty, began, cpu = resident_mib(), time.monotonic(), time.process_time()
        runs = [first]
        while len(runs) < count:
            for _ in range(min(STARTED_AT_ONCE, count - len(runs))):
                runs.append(await host.start(request(prompt="Wait.")))  # noqa: PERF401 - it awaits between two of them
            await wait_until(fake, count + len(runs))
        took = time.monotonic() - began
        each_ms = (time.process_time() - cpu) * 1000 / count
        said = f"{each_ms:.1f} ms of CPU each"
        report.line("runs started and brought to their wait", count / took, "runs/s", said=said)
        full = resident_mib()
        budget = empty + (MOST_GIB * 1024 - empty) * count / MOST
        said = f"{(full - empty) * 1024 / count:.0f} KiB each over {empty:.0f} MiB (budget {budget:.0f})"
        report.line(f"{count} waiting runs: resident", full, "MiB", said=said, ok=full <= budget)
        share = await watch_cpu()
        most = MOST_OF_A_CORE * count / MOST
        said = f"(budget {most * 100:.1f}: its share of {MOST_OF_A_CORE:.0%} for {MOST})"
        report.line(
            f"{count} waiting runs: of a core", share * 100, "%", said=said, ok=share <= max(most, 0.01)
        )
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for run in runs:
                group.create_task(run.cancel())
        report.line("all of them cancelled", count / (time.monotonic() - began), "runs/s")
    return report.kept


def main() -> int:
    """1 when a budget was passed. The argument: how many runs."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    calm_collector()
    limit = raise_file_limit()
    if limit is not None and limit < count + 512:
        print(f"this needs {count + 512} open files, {limit} are allowed")
        return 1
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder, waiting_provider() as fake:
        return 0 if asyncio.run(measure(Path(folder).resolve(), fake, count)) else 1


if __name__ == "__main__":
    sys.exit(main())
