"""What checks cost a run before its first request, where their state on the base is known: nothing.

The floor is the same preparation of the same repository without any check.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.bench_checkout import ROUNDS, TEMPORARY, Figure, quick_ms

from remit.contract import CleanedUp, CleanupRequest, Prepared, PrepareRequest
from remit.primitives import SystemClock, SystemIds
from remit.workspaces import NodeService, WorkspaceSettings

FILES = 2_000
CHECK_S = 1
_AUTHOR = ("-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")


def _lay_out(root: Path) -> None:
    for number in range(FILES):
        folder = root / f"part{number // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"test_{number}.py").write_text("import unittest\n")
    for words in (("init", "-q"), ("add", "-A"), (*_AUTHOR, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], cwd=root, check=True)


def _workspace(ref: str, root: Path, **checks: Any) -> WorkspaceSettings:
    return WorkspaceSettings.model_validate({"ref": ref, "root": root, **checks})


async def _prepare_s(service: NodeService, ref: str, run_id: str) -> float:
    started = time.perf_counter()
    prepared = await service.handle(PrepareRequest(run_id=run_id, workspace_ref=ref))
    took = time.perf_counter() - started
    assert isinstance(prepared, Prepared), prepared
    assert isinstance(await service.handle(CleanupRequest(run_id=run_id, keep=False)), CleanedUp)
    return took


async def measure() -> list[Figure]:
    """Every figure."""
    with tempfile.TemporaryDirectory(prefix="remit-bench-", dir=TEMPORARY) as name:
        base = Path(name)
        root = base / "repository"
        await asyncio.to_thread(_lay_out, root)
        command = {"id": "slow", "executable": "sleep", "args": [str(CHECK_S)]}
        service = await NodeService.start(
            [
                _workspace("checked", root, commands=[command], checks=["slow"]),
                _workspace("found", root),
                _workspace("unchecked", root, checks=[]),
            ],
            data=base / "data",
            clock=SystemClock(),
            ids=SystemIds(),
        )
        try:
            return await _figures(service)
        finally:
            await service.aclose()


async def _figures(service: NodeService) -> list[Figure]:
    await _prepare_s(service, "unchecked", "warm")  # the commit is packed, the keeper is there
    first = await _prepare_s(service, "checked", "first")
    await _prepare_s(service, "found", "found")
    known: dict[str, list[float]] = {"checked": [], "found": [], "unchecked": []}
    for number in range(ROUNDS):  # in turns, so that all see the same machine
        for ref, took in known.items():
            took.append(await _prepare_s(service, ref, f"{ref}-{number}"))
    floor = quick_ms(known["unchecked"])
    return [
        Figure(name=f"prepare, a check of {CHECK_S} s, once", value=first * 1e3, floor=CHECK_S * 1e3),
        Figure(
            name="prepare again, named checks known",
            value=quick_ms(known["checked"]),
            floor=floor,
            budget=5,
            over_floor=True,
        ),
        Figure(
            name="prepare again, found checks known",
            value=quick_ms(known["found"]),
            floor=floor,
            budget=5,
            over_floor=True,
        ),
    ]


def main() -> int:
    """Print the figures; 1 when a budget is passed."""
    figures = asyncio.run(measure())
    print(f"     {'':38} {'here':>10} {'':5} {'floor':>10} {'ratio':>9} {'budget':>8}")
    for figure in figures:
        print(figure.line())
    return 0 if all(figure.kept for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
