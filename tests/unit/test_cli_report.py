"""What is said at the end of a run: what is suggested next must be what works."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from remit.cli._report import report
from remit.cli._screen import Glyphs
from remit.contract import RunView

NOW = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
PATCH: dict[str, Any] = {"sha256": "0" * 64, "files": 1, "insertions": 1, "deletions": 0, "reviewed": True}
REVIEW: dict[str, Any] = {"decision": "pass", "summary": "Fine."}


def _ended(code: str | None, **fields: Any) -> RunView:
    end = {"kind": "failed", "class": "workspace", "code": code} if code else {"kind": "completed"}
    body = {
        "id": "run_x",
        "session_id": "run_x",
        "root_run_id": "run_x",
        "binding": "reviewed",
        "profile": "reviewed",
        "status": end["kind"],
        "created_at": NOW,
        "ended_at": NOW,
        "limits": {},
        "terminal": end,
        "review": REVIEW,
        "patch": PATCH,
        **fields,
    }
    return RunView.model_validate(body)


def _said(view: RunView) -> str:
    console = Console(width=100, record=True, file=None, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        console.print(report(view, patch="", glyphs=Glyphs(), width=100))
    return captured.get()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["protected:AGENTS.md"], "remit patch run_x --apply --allow-protected"),
        (["frozen:a.txt"], None),
    ],
)
def test_a_refused_patch_is_applied_with_the_flag_that_it_needs(
    flags: list[str], expected: str | None
) -> None:
    """What a delivery refused isn't offered without the flag that lets it; what is frozen isn't at all."""
    said = _said(_ended("delivery_refused", review={**REVIEW, "flags": flags}))
    if expected is None:
        assert "--apply" not in said
    else:
        assert expected in said


def test_a_patch_that_was_kept_is_offered() -> None:
    """A run that only kept its patch says how to apply it, and how to apply one that nobody reviewed."""
    kept = _ended(None, delivery={"mode": "patch", "status": "delivered"})
    assert "remit patch run_x --apply\x20" in _said(kept)
    unreviewed = _ended(None, patch={**PATCH, "reviewed": False}, review=None)
    assert "remit patch run_x --apply --unreviewed" in _said(unreviewed)


@pytest.mark.parametrize(
    ("typed", "is_on_path", "name"),
    [
        (".venv/bin/remit", False, ".venv/bin/remit"),
        (".venv/bin/remit", True, "remit"),
        ("cli.py", False, "remit"),
    ],
)
def test_next_steps_can_be_typed(
    monkeypatch: pytest.MonkeyPatch, typed: str, is_on_path: bool, name: str
) -> None:
    """After `make demo` the program is on no PATH: what is offered next names it by its path."""
    monkeypatch.setattr("sys.argv", [typed])
    monkeypatch.setattr("remit.cli._words.which", lambda _: "/bin/remit" if is_on_path else None)
    assert f"  {name} show run_x" in _said(_ended(None))
