"""What a person at a terminal is asked about a patch, and what each answer does."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from remit.cli import _deciding
from remit.cli._deciding import NAME_TAKEN, can_ask, decide, is_undecided
from remit.cli._summary import summary_markdown
from remit.contract import CheckResult, Delivery, PatchSummary, Review, RunStatus, RunView, Terminal
from remit.primitives import SystemClock

NOW = SystemClock().now()
PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-old\n+new\n"


def ended(kind: str = "completed", *, flags: tuple[str, ...] = (), **fields: Any) -> RunView:
    terminal = Terminal.completed() if kind == "completed" else Terminal.of("cancelled", "caller")
    if kind == "failed":
        terminal = Terminal.of("workspace", "delivery_conflict")
    from remit.contract import Limits

    values: dict[str, Any] = {
        "id": "run_x",
        "session_id": "run_x",
        "root_run_id": "run_x",
        "binding": "reviewed",
        "profile": "reviewed",
        "status": RunStatus(terminal.kind),
        "created_at": NOW,
        "ended_at": NOW,
        "limits": Limits(),
        "terminal": terminal,
        "output": "It is fixed.",
        "review": Review(decision="pass", summary="Fine.", flags=flags),
        "patch": PatchSummary(sha256="ab", files=1, insertions=1, deletions=1, reviewed=True),
        "delivery": Delivery(mode="patch", status="delivered"),
        "checks": (CheckResult(id="pytest", base_exit=1, exit=0, ms=5, gate="pass", flaky=True),),
    }
    return RunView.model_validate(values | fields)


class Asked:
    """A person who types these lines, and a delivery that comes to these codes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, typed: str, *codes: int) -> None:
        self.calls: list[tuple[str | None, bool]] = []
        self.codes = list(codes)
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))

    def deliver(self, *, branch: str | None, allow_protected: bool) -> int:
        self.calls.append((branch, allow_protected))
        return self.codes.pop(0)

    def decide(self, view: RunView) -> int:
        return decide(view, patch=PATCH, deliver=self.deliver)


@pytest.mark.parametrize(
    ("typed", "codes", "calls", "code"),
    [
        ("a\n", [0], [(None, True)], 0),
        ("apply\n", [1], [(None, True)], 1),
        ("n\n", [], [], 0),
        ("", [], [], 0),
        ("abort\nall of it\napply?\nn\n", [], [], 0),
        ("\nx\nd\nN\n", [], [], 0),
        ("b\n\n", [0], [("remit/run_x", True)], 0),
        ("b\nfix/it\n", [0], [("fix/it", True)], 0),
        ("b\na..b\nb\nfix\n", [0], [("fix", True)], 0),
        ("b\ntaken\nb\nfree\n", [NAME_TAKEN, 0], [("taken", True), ("free", True)], 0),
        ("b\n", [], [], 0),
    ],
)
def test_each_answer(
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    codes: list[int],
    calls: list[tuple[str | None, bool]],
    code: int,
) -> None:
    """Apply and branch deliver, diff asks again, nothing and the end of input change nothing."""
    asked = Asked(monkeypatch, typed, *codes)
    assert asked.decide(ended()) == code
    assert asked.calls == calls


@pytest.mark.parametrize("typed", ["", "b\n"])
def test_the_end_of_input_ends_the_questions_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    """Ctrl-D leaves no line end on the screen, so what is said next begins one of its own."""
    assert Asked(monkeypatch, typed).decide(ended()) == 0
    assert "\nremit: nothing was changed" in capsys.readouterr().err


def test_protected_paths_are_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch that touches protected paths is applied only after a second yes."""
    view = ended(flags=("protected:.envrc",))
    asked = Asked(monkeypatch, "a\n\nn\n")
    assert asked.decide(view) == 0
    assert asked.calls == []
    asked = Asked(monkeypatch, "a\nyesterday\nn\n")
    assert (asked.decide(view), asked.calls) == (0, [])
    asked = Asked(monkeypatch, "a\ny\n", 0)
    assert asked.decide(view) == 0
    assert asked.calls == [(None, True)]


def test_ctrl_c_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the question changes nothing and is no failure; the handler is as it was."""

    def interrupted(question: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(_deciding, "_ask", interrupted)
    assert decide(ended(), patch=PATCH, deliver=Asked(monkeypatch, "").deliver) == 0


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (ended(), True),
        (ended("cancelled"), False),
        (ended(delivery=Delivery(mode="apply", status="delivered")), False),
        (ended(delivery=Delivery(mode="patch", status="skipped")), False),
        (ended(flags=("frozen:a",)), False),
        (ended(patch=PatchSummary(sha256="a", files=1, insertions=0, deletions=0, reviewed=False)), False),
    ],
)
def test_who_is_asked_about(view: RunView, expected: bool) -> None:
    """Only a completed run's reviewed patch that nobody delivered, and that may be."""
    assert is_undecided(view) is expected


def test_nobody_is_asked_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI and pipes are asked nothing."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert can_ask(environment={})
    assert can_ask(environment={"CI": "false"})
    assert not can_ask(environment={"CI": "true"})
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert not can_ask(environment={})


# ---- the page for CI


@pytest.mark.parametrize("kind", ["completed", "failed", "cancelled"])
def test_every_ending_has_its_page(kind: str) -> None:
    """The page says how it ended, what changed, what it cost and how to get the patch, however it ended."""
    page = summary_markdown(ended(kind, flags=("tests:a_test.py",)), patch=PATCH)
    assert page.startswith("## ")
    assert kind in page.split("\n")[0]
    assert "`run_x`" in page
    assert "| `pytest` | exit 1 | exit 0 | passes now, at the second try |" in page
    assert "remit patch run_x > fix.patch" in page
    assert "changes tests: `a_test.py`" in page
    assert "| Cost |" in page


def test_what_others_wrote_is_no_markdown() -> None:
    """Text of models and names of files stand in code, whatever they hold, and no cell ends early."""
    evil = "```\n<script>alert(1)</script>\n````\n@everyone [x](http://evil)\x1b[2J\n# Remit: completed"
    view = ended(
        output=evil,
        flags=("tests:`|a`.py",),
        checks=(CheckResult(id="a|b`c", base_exit=0, exit=0, ms=1, gate="pass"),),
    )
    page = summary_markdown(view, patch=PATCH.replace("a.py", "x`y.py"))
    assert "\x1b" not in page
    fence = "`````text\n"
    assert fence in page, "a longer fence than any that the text holds"
    start = page.index(fence)
    inside = page[start : page.index("\n`````\n", start + len(fence))]
    assert "<script>" in inside
    assert "# Remit: completed" in inside
    assert "<script>" not in page.replace(inside, "")
    assert "| ``a\\|b`c`` | exit 0 |" in page
    assert "* changes tests: `` `|a`.py ``" in page


def test_a_delivered_run_says_how_to_take_it_back() -> None:
    """What was applied or branched has its way back on the page."""
    page = summary_markdown(
        ended(delivery=Delivery(mode="branch", status="delivered", ref="fix")), patch=PATCH
    )
    assert "on the branch `fix`" in page
    assert "`remit undo run_x`" in page
