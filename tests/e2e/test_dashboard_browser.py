"""The dashboard in a real browser: live, by keyboard alone, on a phone, in the dark, and with large runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from browser_kit import NARROW, WIDE, browser, complaints, resize
from door_kit import PLAN, SLEEP, WORK, Door, DoorWorld, slowly
from remit.contract import RunStatus, ToolCompleted, ToolStarted
from remit.events import NewEvent
from remit.testing._store_samples import (
    attempt_completed,
    attempt_started,
    fact,
    reviewed_run,
    sample_submission,
    stage_started,
)

HOSTILE = "<img src=x onerror='window.broken = 1'><script>window.broken = 1</script>"
SAY = {"stage": "work", "text": f"I think aloud. {HOSTILE}", "tool_calls": SLEEP["tool_calls"]}


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Generator[WebDriver]:
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


def log_in(chrome: WebDriver, door: Door) -> None:
    """As a person does, with the keyboard alone: the field has the focus."""
    chrome.get(f"{door.base_url}/")
    chrome.switch_to.active_element.send_keys(door.secret + Keys.ENTER)
    wait(lambda: chrome.current_url == f"{door.base_url}/")


def wait(is_so: Callable[[], object], *, within_s: float = 30) -> None:
    """Return once something is so."""
    ends = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.05)


def text_of(chrome: WebDriver, id_: str) -> str:
    """What a person reads in a part of the page; in one step, since the page changes by itself."""
    return chrome.execute_script("return document.getElementById(arguments[0])?.innerText ?? ''", id_)


def press(chrome: WebDriver, words: str) -> None:
    """Go to a button with the Tab key alone, and press it."""
    for _ in range(60):
        ActionChains(chrome).send_keys(Keys.TAB).perform()
        if chrome.execute_script("return document.activeElement.innerText") == words:
            ActionChains(chrome).send_keys(Keys.ENTER).perform()
            return
    pytest.fail(f"the keyboard doesn't reach {words!r}")


async def test_live_run_is_followed_and_cancelled_by_keyboard(tmp_path: Path, chrome: WebDriver) -> None:
    """R49: the page follows the run by itself, runs nothing that the model says, and its button stops it."""
    world = DoorWorld(home=tmp_path, replies=(slowly(PLAN, 1_500), slowly(SAY, 1_500), WORK))
    async with world.open() as door:
        async with door.client() as api:
            answer = await api.post("/api/v1/runs", json={"binding": "reviewed", "prompt": HOSTILE})

        def look() -> None:
            log_in(chrome, door)
            wait(lambda: "reviewed" in text_of(chrome, "runs"))
            chrome.get(f"{door.base_url}/runs/{answer.json()['id']}")
            wait(lambda: "run_shell" in text_of(chrome, "progress"))
            wait(lambda: "I think aloud." in text_of(chrome, "stream"))
            wait(lambda: "tool" in text_of(chrome, "work"))
            press(chrome, "Cancel this run")
            wait(lambda: "Complete: nothing is left." in text_of(chrome, "receipt"))
            assert "cancelled/operator" in text_of(chrome, "head")
            assert chrome.execute_script("return window.broken === undefined")
            assert complaints(chrome) == []

        await asyncio.to_thread(look)


async def test_pages_fit_every_screen_and_scheme(tmp_path: Path, chrome: WebDriver) -> None:
    """R49: at phone and desk width, in light and dark, no page is wider than the screen or complains."""
    async with DoorWorld(home=tmp_path).open() as door:
        async with door.client() as api:
            asked = {"binding": "reviewed", "prompt": "word" * 200}
            run = (await api.post("/api/v1/runs?wait_ms=20000", json=asked)).json()["id"]

        def look() -> None:
            log_in(chrome, door)
            colours: set[str] = set()
            for width, dark in ((WIDE, False), (NARROW, True), (NARROW, False), (WIDE, True)):
                resize(chrome, width, dark=dark)
                paths = ("", "work", "sessions", "nodes", "usage", f"runs/{run}", f"runs/{run}/stages/work-1")
                for path in paths:
                    chrome.get(f"{door.base_url}/{path}")
                    wide = (
                        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
                    )
                    assert chrome.execute_script(wide) <= 0, (path, width)
                    assert complaints(chrome) == []
                    back = "return getComputedStyle(document.body).backgroundColor"
                    colours.add(chrome.execute_script(back))
            assert len(colours) == 2
            resize(chrome, WIDE, dark=False)

        await asyncio.to_thread(look)


def rounds(count: int) -> list[NewEvent]:
    """Rounds of a work stage, each with a tool call: four events each."""
    events: list[NewEvent] = [stage_started("work-1", RunStatus.WORKING)]
    for number in range(1, count + 1):
        call: dict[str, Any] = {
            "tool_call_id": f"call_{number}",
            "stage_id": "work-1",
            "name": "run_shell",
        }
        done = ToolCompleted(**call, status="success", exit_code=0, duration_ms=1, receipt_id=None)
        events += [
            attempt_started(f"att_{number}", stage_id="work-1", round_=number),
            attempt_completed(f"att_{number}", stage_id="work-1", round_=number),
            fact("tool.started", ToolStarted(**call, label="make test"), call["tool_call_id"]),
            fact("tool.completed", done, call["tool_call_id"]),
        ]
    return events


async def store_large(door: Door, *, runs: int, count: int) -> None:
    """Many small runs, and `run_large` with a long log."""
    store, epoch = door.host.door().store, door.host.epoch
    for number in range(runs):
        await store.submit(sample_submission(f"run_small_{number}", epoch=epoch))
    submitted = await store.submit(sample_submission("run_large", epoch=epoch))
    claimed = await store.claim(epoch, run_id="run_large")
    assert claimed is not None
    writes = list(reviewed_run(submitted.run.view))
    await store.append("run_large", claimed.generation, writes[0].events)
    events = rounds(count)
    for start in range(0, len(events), 1_000):
        await store.append("run_large", claimed.generation, events[start : start + 1_000])


async def test_large_host_and_run_are_quick_to_see(tmp_path: Path, chrome: WebDriver) -> None:
    """R67: 1,000 runs and a run of 10,000 events make pages of bounded size that are soon there."""
    async with DoorWorld(home=tmp_path).open() as door:
        await store_large(door, runs=1_000, count=2_500)

        def look() -> None:
            log_in(chrome, door)
            assert len(chrome.find_elements(By.CSS_SELECTOR, "#runs tbody tr")) == 50
            for _ in range(2):
                chrome.get(f"{door.base_url}/runs/run_large")
                ready = "return performance.getEntriesByType('navigation')[0].domInteractive"
                took_ms = chrome.execute_script(ready)
                assert took_ms < 15_000, "generous: the figure is the bench's"
            assert "2,500 requests" in text_of(chrome, "progress").replace("\u202f", ",") or (
                "2500 requests" in text_of(chrome, "progress")
            )
            assert len(chrome.page_source) < 1_000_000

        await asyncio.to_thread(look)
