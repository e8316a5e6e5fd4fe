"""What is said at the end of a run: what is suggested next must be what works."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from remit.cli._formats import call_words, failure_words, lineage_words, trouble_words
from remit.cli._report import report
from remit.cli._screen import Glyphs
from remit.cli._summary import summary_markdown
from remit.contract import AttemptEnded, RunView, StageFailed, ToolCompleted

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


def _said(view: RunView, *, width: int = 100) -> str:
    console = Console(width=width, record=True, file=None, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        console.print(report(view, patch="", glyphs=Glyphs(), width=width))
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


def test_a_cancel_says_who_asked_for_it_and_why() -> None:
    """A true story: whoever reads it in the morning sees who stopped the run, when, and for what reason."""
    receipt = {
        "requested_at": NOW,
        "by": "operator",
        "reason": "too\x1b[31m slow",
        "complete": True,
        "items": [],
    }
    ended = {"kind": "cancelled", "class": "cancelled", "code": "operator"}
    said = _said(_ended(None, status="cancelled", terminal=ended, cancel=receipt))
    assert "Asked for by operator at 2026-01-01 00:00:00Z: too" in said
    assert "\x1b" not in said


def test_a_report_fits_a_terminal_of_80_columns() -> None:
    """Nothing of a receipt is cut, and what goes on below a line stays in its own block."""
    pids = list(range(1_234_567, 1_234_573))
    tool = {"work_id": "w1", "kind": "tool", "how": "already_ended", "ms": 123_456, "pids": pids}
    tool["label"] = "run_shell: echo waiting; sleep 300 & wait"
    stage = {"work_id": "w2", "kind": "stage", "label": "work-1", "how": "closed", "ms": 52}
    receipt = {"requested_at": NOW, "by": "caller", "complete": True, "items": [tool, stage]}
    receipt["reason"] = "a reason that takes a good many words to tell and so doesn't fit on its line"
    flags = ["ignored:2 files, such as __pycache__/slugs.cpython-311.pyc, and the other one of the two"]
    view = _ended("delivery_conflict", cancel=receipt, review={**REVIEW, "flags": flags})
    said = _said(view, width=80)
    lines = said.splitlines()
    assert [line for line in lines if len(line) > 80 or "…" in line] == []
    for shown in ("already_ended", "123456", "closed", *map(str, pids), "of the two"):
        assert shown in said
    assert [line for line in lines[1:] if line.strip() and not line.startswith("  ")] == []


def test_a_patch_that_its_review_refused_was_reviewed() -> None:
    """A true story: `not reviewed` is said of what nobody has looked at, and of nothing else."""
    patch = {**PATCH, "reviewed": False}
    assert "not passed by its review" in _said(
        _ended(None, patch=patch, review={**REVIEW, "decision": "reject"})
    )
    assert "not reviewed" in _said(_ended(None, patch=patch, review=None))


def test_a_limit_is_said_once() -> None:
    """A limit that was reached exactly is its cap; what goes beyond it is told beside it."""
    limit = {"kind": "wall_clock_ms", "value": 1500, "cap": 1500}
    end = {"kind": "failed", "class": "budget", "code": "wall_clock", "limit": limit}
    assert "(wall_clock_ms is 1.5 s)" in _said(_ended(None, status="failed", terminal=end))
    end = {**end, "code": "tokens", "limit": {"kind": "max_total_tokens", "value": 9, "cap": 8}}
    assert "(max_total_tokens is 8, 9 reached or asked for)" in _said(
        _ended(None, status="failed", terminal=end)
    )


def test_what_a_run_came_from() -> None:
    """A true story: a child names its parent, one that goes on the run before it, a thread its session."""
    assert lineage_words(_ended(None)) is None
    child = _ended(None, parent_run_id="run_p", session_id="run_p", root_run_id="run_p")
    assert lineage_words(child) == "child of run_p"
    assert (
        lineage_words(_ended(None, continues="run_a", session_id="talk")) == "continues run_a, session talk"
    )


def test_calls_and_requests_in_words() -> None:
    """A true story: what is told of a call, a request and a stage is what is known, and once."""
    call: dict[str, Any] = {
        "tool_call_id": "c",
        "stage_id": "work-1",
        "name": "run_shell",
        "receipt_id": None,
    }
    words = [
        call_words(ToolCompleted.model_validate({**call, **one}))
        for one in (
            {"status": "success", "exit_code": 0, "duration_ms": 12},
            {"status": "cancelled", "exit_code": None, "duration_ms": 1400},
            {"status": "cancelled", "exit_code": None, "duration_ms": None},
            {"status": "outcome_unknown", "exit_code": None, "duration_ms": None},
            {"status": "success", "exit_code": 0, "duration_ms": 12, "leftovers": ("sleep 60 (pid 3)",)},
        )
    ]
    assert words == [
        "exit 0, 12 ms",
        "cancelled, 1.4 s",
        "not begun",
        "outcome unknown",
        "exit 0, 12 ms, left running and stopped: sleep 60 (pid 3)",
    ]
    attempt: dict[str, Any] = {
        "attempt_id": "a",
        "stage_id": "plan",
        "round": 1,
        "ordinal": 2,
        "model": "m",
        "usage": None,
    }
    assert trouble_words(AttemptEnded(**attempt, status="cut", code="cut")) == "request 1.2 cut"
    assert trouble_words(AttemptEnded(**attempt, status="cancelled")) == "request 1.2 stopped by Remit"
    assert (
        failure_words(StageFailed(stage_id="plan", class_="cancelled", code="caller")) == "cancelled (caller)"
    )
    assert failure_words(StageFailed(stage_id="plan", class_="timeout", code="plan")) == "timeout/plan"


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


CHECKS = [
    {"id": "pytest", "base_exit": 1, "exit": 0, "ms": 148, "gate": "pass", "flaky": False},
    {"id": "ruff", "base_exit": 0, "exit": 2, "ms": 20, "gate": "worse", "flaky": True},
]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_checks_are_read_whole_at_every_width(width: int) -> None:
    """A table where there is room, else lines; no word of a check's end is cut off."""
    said = _said(_ended(None, checks=CHECKS), width=width)
    for words in ("pytest", "exit 1", "exit 0", "passes now", "148 ms", "worse than before", "exit 2"):
        assert words in said
    assert "…" not in said
    assert ("before   after" in said) is (width >= 60)


def test_what_a_command_said_keeps_its_lines() -> None:
    """Of a failed setup: the command, its last lines as they stood, and no trick of a terminal."""
    detail = "setup failed at `make`\n\n" + "".join(f"  line {n}\n" for n in range(40)) + "\x1b[2Jexit code 3"
    view = _ended("frozen", terminal={"kind": "failed", "class": "internal", "code": "invariant"})
    console = Console(width=100)
    with console.capture() as captured:
        console.print(report(view, patch="", glyphs=Glyphs(), width=100, detail=detail))
    lines = captured.get().splitlines()
    start = next(at for at, line in enumerate(lines) if "setup failed" in line)
    assert lines[start + 1].strip() == "… 23 lines …"
    assert lines[start + 2] == "    line 23"
    assert lines[start + 19] == "  exit code 3"
    page = summary_markdown(view, patch="", detail=detail)
    assert "```text\nsetup failed at `make`\n" in page
    assert "\n  line 39\nexit code 3\n```" in page
