"""Tries the attacks in a process of its own: `python -m remit.testing.attacks LEVEL FOLDER SECONDS`.

A line of JSON for each, as it is tried. Whoever starts it sets HOME to a folder in FOLDER.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import cast

from remit.contract import SandboxLevel
from remit.testing.attacks._trying import Tried, try_attacks


async def _main(level: str, folder: str, seconds: str) -> None:
    await try_attacks(cast("SandboxLevel", level), Path(folder), time_s=float(seconds), tell=_tell)


def _tell(tried: Tried) -> None:
    sys.stdout.write(json.dumps(asdict(tried)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
