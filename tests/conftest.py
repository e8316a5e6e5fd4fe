"""Rules for every test: nothing of the user's own machine is read, and on CI nothing is skipped."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Generator

# Deterministic, so that what fails on one machine fails on the next; `nightly` looks further.
settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "nightly", parent=settings.get_profile("ci"), derandomize=False, max_examples=10_000
)
settings.load_profile("ci")

FOREIGN_PREFIXES = (
    "REMIT_",
    "OPENAI_",
    "ANTHROPIC_",
    "GOOGLE_",
    "GEMINI_",
    "AZURE_OPENAI_",
    "OPENROUTER_",
    "GIT_",
)
FOREIGN_NAMES = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this suite."""
    parser.addoption(
        "--strict-skips",
        action="store_true",
        default=os.environ.get("CI") == "true",
        help="a skipped test is a failed one (default where CI=true)",
    )


def _hear_signals() -> None:
    """Let what the tests start hear signals, also where the suite itself was started deaf (`&`, `nohup`)."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            heard = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, heard)


def pytest_configure(config: pytest.Config) -> None:
    """Hide the user's keys, settings, proxies and git identity, also from what the tests start."""
    _hear_signals()
    before = dict(os.environ)
    folder = TemporaryDirectory(prefix="remit-tests-")
    config.add_cleanup(folder.cleanup)
    config.add_cleanup(lambda: _restore(before))
    for name in list(os.environ):
        if name.startswith(FOREIGN_PREFIXES) or name.lower() in FOREIGN_NAMES or name.endswith("_API_KEY"):
            del os.environ[name]
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        os.environ[name] = str(Path(folder.name) / name.lower())
    os.environ.update(
        {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    )
    for role in ("AUTHOR", "COMMITTER"):
        os.environ.update({f"GIT_{role}_NAME": "Tester", f"GIT_{role}_EMAIL": "tester@example.invalid"})


def _restore(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the nightly tests out unless they are asked for by `-m`; many examples may take their time."""
    if settings.get_current_profile_name() == "nightly":
        for item in items:
            item.add_marker(pytest.mark.timeout(0))
    if "nightly" in (config.option.markexpr or ""):
        return
    kept = [item for item in items if item.get_closest_marker("nightly") is None]
    if len(kept) != len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where nothing may be skipped."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _forbid_skip(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself whole."""
    report = yield
    if report.skipped:
        _forbid_skip(collector.config, report)
    return report


def _forbid_skip(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport) -> None:
    if config.getoption("strict_skips"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped here: {reason}"
