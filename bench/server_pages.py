"""How soon the page of a run with 10 000 events can be used, beside a page that has next to nothing on it."""

from __future__ import annotations

import asyncio
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
from bench.bench_server import Served, prepare, started

from remit.config import load_config
from remit.contract import RunStatus, ToolCompleted, ToolStarted
from remit.events import NewEvent
from remit.host import Host
from remit.testing._store_samples import (
    attempt_completed,
    attempt_started,
    fact,
    reviewed_run,
    sample_submission,
    stage_started,
)

ROUNDS = 2_500
"""Of four events each."""
PAGE_S = 1.0
RUN = "run_large"
TIMES = 5


def rounds() -> Iterator[NewEvent]:
    """A work stage of many rounds, each with a tool call."""
    yield stage_started("work-0", RunStatus.WORKING)
    for number in range(1, ROUNDS + 1):
        call: dict[str, Any] = {
            "tool_call_id": f"call_{number}",
            "stage_id": "work-0",
            "name": "run_shell",
        }
        done = ToolCompleted(**call, status="success", exit_code=0, duration_ms=1, receipt_id=None)
        yield attempt_started(f"att_{number}", stage_id="work-0", round_=number)
        yield attempt_completed(f"att_{number}", stage_id="work-0", round_=number)
        yield fact("tool.started", ToolStarted(**call, label="make test"), call["tool_call_id"])
        yield fact("tool.completed", done, call["tool_call_id"])


async def store_run(home: Path, config: Path) -> None:
    """Store an ended run of 10 000 events and some."""
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "REMIT_HOME": str(home / "data")}
    async with Host(load_config(environment=environment, folder=home, named=config)) as host:
        store, epoch = host.door().store, host.epoch
        submitted = await store.submit(sample_submission(RUN, epoch=epoch))
        claimed = await store.claim(epoch, run_id=RUN)
        assert claimed is not None
        writes = list(reviewed_run(submitted.run.view))
        events = list(rounds())
        await store.append(RUN, claimed.generation, writes[0].events)
        for start in range(0, len(events), 1_000):
            await store.append(RUN, claimed.generation, events[start : start + 1_000])
        for write in writes[1:-1]:
            await store.append(
                RUN,
                claimed.generation,
                write.events,
                transcript=write.transcript,
                artifacts=write.artifacts,
            )
        await store.finish(RUN, claimed.generation, writes[-1].events)


async def answer_times(served: Served) -> list[float]:
    """Seconds until the whole page is answered, the first one cold."""
    took: list[float] = []
    async with httpx2.AsyncClient(base_url=served.url, timeout=60, trust_env=False) as client:
        token = re.search(r'name="token" value="(\w+)"', (await client.get("/login")).text)
        assert token is not None
        form = {"key": served.key, "token": token[1]}
        await client.post("/login", data=form, headers={"Origin": served.url})
        for _ in range(TIMES):
            begun = time.perf_counter()
            answer = await client.get(f"/runs/{RUN}")
            took.append(time.perf_counter() - begun)
            if answer.status_code != 200 or RUN not in answer.text:
                raise RuntimeError(f"the page isn't the run's: {answer.status_code}")
    return took


def browse(served: Served) -> tuple[list[float], list[float]] | None:
    """Seconds to `domInteractive` of the run's page, and of the login page; None: there is no Chromium."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        return None
    from selenium import webdriver  # noqa: PLC0415 - where there is no browser it isn't needed
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415
    from selenium.webdriver.common.keys import Keys  # noqa: PLC0415

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    with tempfile.TemporaryDirectory(prefix="remit-bench-chromium-", ignore_cleanup_errors=True) as profile:
        flags = ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-sandbox")
        for flag in (*flags, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        found: Any = webdriver.Chrome(options=options, service=Service(driver))
        script = "return performance.getEntriesByType('navigation')[0].domInteractive"
        try:
            found.get(f"{served.url}/login")
            floor: list[float] = []
            for _ in range(TIMES):
                found.get(f"{served.url}/login")
                floor.append(found.execute_script(script) / 1000)
            found.switch_to.active_element.send_keys(served.key + Keys.ENTER)
            while found.current_url != f"{served.url}/":
                time.sleep(0.05)
            took: list[float] = []
            for _ in range(TIMES):
                found.get(f"{served.url}/runs/{RUN}")
                took.append(found.execute_script(script) / 1000)
        finally:
            found.quit()
    return took, floor


async def measure_pages(home: Path) -> list[tuple[str, float, float | None]]:
    """Figures: name, seconds, budget; the first visit of a page counts, where nothing is at hand yet."""
    config = await asyncio.to_thread(prepare, home)
    await store_run(home, config)
    async with started(home, config) as served:
        seen = await asyncio.to_thread(browse, served)
        if seen is None:
            times = await answer_times(served)
            return [("page of 10 000 events, answered (s)", times[0], PAGE_S)]
    async with started(home, config) as served:
        times = await answer_times(served)
    took, floor = seen
    return [
        ("page of 10 000 events, interactive (s)", took[0], PAGE_S),
        ("the same, again p50 (s)", statistics.median(took[1:]), PAGE_S),
        ("the same, answered, first / again (s)", times[0], None),
        ("login page, interactive p50 (floor, s)", statistics.median(floor), None),
    ]
