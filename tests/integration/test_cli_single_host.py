"""The command's own host is there for its one run, and goes with it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from host_kit import COMPLETES, WAITS, make_config, request
from remit.cli import _driving as driving
from remit.cli._driving import Driver, Outcome
from remit.cli._place import Place
from remit.cli._progress import make_progress
from remit.contract import RunRequest
from remit.events import Event
from remit.host import Host, HostStatus, Run
from remit.primitives import SystemClock


async def drive(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> tuple[Outcome, list[HostStatus]]:
    """Drive one run as the command does; it is cancelled once a tool of it has started."""
    config = make_config(folder)
    place = Place(config=config, workspace=config.workspaces["app"], subdir=None, is_git=False)
    hosts: list[Host] = []
    found: list[HostStatus] = []
    runs: list[Run] = []
    make = driving.make_host

    def kept(place: Place, **given: Any) -> Host:
        hosts.append(make(place, **given))
        return hosts[-1]

    monkeypatch.setattr(driving, "make_host", kept)
    asked = RunRequest.model_validate(request(text, delivery={"mode": "patch"}))
    driver = Driver(
        place, asked, progress=make_progress(io.StringIO(), clock=SystemClock(), quiet=True, environment={})
    )

    def on_event(event: Event) -> None:
        if event.type == "tool.started" and text == WAITS:
            runs[-1].cancel_nowait(reason="enough")
            found.append(hosts[-1].status)

    driver.on_start = runs.append
    driver.on_event = on_event
    outcome = await driver.drive()
    return outcome, found


async def test_a_cancel_drains_the_host_of_its_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M15, M17: `remit run` hosts its one run alone, so a cancel of it asks the host to drain, at once."""
    outcome, found = await drive(tmp_path, monkeypatch, WAITS)
    assert outcome.view is not None
    assert outcome.view.status.value == "cancelled"
    assert found == [HostStatus.DRAINING]


async def test_a_run_that_completes_drains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asked for a drain before the end."""
    outcome, found = await drive(tmp_path, monkeypatch, COMPLETES)
    assert outcome.exit_code == 0
    assert found == []
