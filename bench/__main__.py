"""Runs the measurements, each in a process of its own: ``python -m bench [NAME...]``.

A measurement is a module `bench_NAME.py` whose `main()` prints its figures beside their floor or budget and
answers with 1 when a budget was passed. They run one after another, since they would disturb each other.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def main(arguments: list[str]) -> int:
    """Run the named measurements, or all; 1 when one of them passed its budget."""
    known = sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        print(f"no measurement {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    code = 0
    for name in arguments or known:
        print(f"== {name}", flush=True)
        module = f"bench.bench_{name}"
        code |= subprocess.run([sys.executable, "-m", module], cwd=FOLDER.parent, check=False).returncode != 0
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
