"""What is printed of a run that would be started."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from remit.cli._dry_run import print_dry_run
from remit.contract import DryRun

RUN: dict[str, Any] = {
    "id": "run_new",
    "session_id": "run_new",
    "root_run_id": "run_new",
    "binding": "reviewed",
    "profile": "reviewed",
    "status": "queued",
    "created_at": datetime(2026, 1, 1, tzinfo=UTC).isoformat(),
    "limits": {},
}


def printed(capsys: pytest.CaptureFixture[str], **run: Any) -> dict[str, str]:
    """The rows, by name."""
    found = DryRun.model_validate(
        {
            "would": "start",
            "run": {**RUN, **run},
            "delivery": "apply",
            "models": {},
            "prices": {},
            "max_cost_usd": None,
            "text_replaced": 0,
        }
    )
    print_dry_run(found, as_json=False)
    lines = [line.split(None, 1) for line in capsys.readouterr().out.splitlines() if line.strip()]
    return {line[0]: line[1] if len(line) > 1 else "" for line in lines}


def test_it_names_the_run_that_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """The run whose checkout goes on, which says all; else the session, if it is another one's."""
    assert not {"continues", "session"} & set(printed(capsys))
    assert printed(capsys, session_id="run_old")["session"] == "run_old"
    rows = printed(capsys, session_id="run_old", continues="run_old")
    assert rows["continues"] == "run_old"
    assert "session" not in rows
