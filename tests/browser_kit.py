"""A real Chromium for tests of pages: Debian's, headless, driven by its own driver."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

WIDE, NARROW = 1280, 390


def find_browser() -> tuple[str, str]:
    """Paths of Chromium and of its driver; on CI they are installed, elsewhere the test is skipped."""
    if not _found() and os.environ.get("CI") == "true" and os.geteuid() == 0:
        quiet = {"DEBIAN_FRONTEND": "noninteractive", "PATH": os.environ["PATH"]}
        for words in (["update", "-qq"], ["install", "-y", "-qq", "chromium", "chromium-driver"]):
            subprocess.run(["apt-get", *words], check=True, env=quiet, timeout=600, capture_output=True)
    found = _found()
    if not found:
        pytest.skip("Chromium isn't here: `apt-get install chromium chromium-driver`")
    return found


def _found() -> tuple[str, str] | None:
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


@contextmanager
def browser(home: Path) -> Generator[WebDriver]:
    """A browser with a profile of its own; it and all that it started end with the block."""
    chromium, driver = find_browser()
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    flags = ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-sandbox")
    for flag in (*flags, f"--user-data-dir={home}", f"--window-size={WIDE},900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    try:
        found.set_page_load_timeout(60)
        yield found
    finally:
        found.quit()


def resize(found: Any, width: int, *, dark: bool) -> None:
    """Show pages on a screen of this width, light or dark."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    found.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    found.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def complaints(found: Any) -> list[str]:
    """What the browser's console has complained of since the last look."""
    return [line["message"] for line in found.get_log("browser") if line["level"] in {"SEVERE", "WARNING"}]
