"""How soon the command line answers, beside Python's own start and that of its one library.

Run alone: `python -m bench.bench_cli`. Medians of processes that are started one after another.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

ROUNDS = 11
HELP_BUDGET_S = 0.150


def _seconds(arguments: Sequence[str]) -> float:
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as home:
        environment = {"HOME": home, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        times: list[float] = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            subprocess.run(
                [sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL
            )
            times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> int:
    """Print the figures; 1 when the budget is passed."""
    bare = _seconds(["-c", "pass"])
    library = _seconds(["-c", "import click"])
    figures = {
        "remit --help": _seconds(["-m", "remit.cli", "--help"]),
        "remit --version": _seconds(["-m", "remit.cli", "--version"]),
        "remit run --help": _seconds(["-m", "remit.cli", "run", "--help"]),
    }
    kept = True
    for name, value in figures.items():
        within = value <= HELP_BUDGET_S
        kept = kept and within
        floor = f"floor: python {bare * 1e3:.0f} ms, with click {library * 1e3:.0f} ms"
        print(f"{'ok  ' if within else 'OVER'} {name:18} {value * 1e3:6.0f} ms (budget 150)   {floor}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
