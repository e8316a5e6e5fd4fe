"""`remit bench solve`: what counts as solved is decided by checks that no model saw."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cli_kit import CommandLine
from remit.cli import _solving
from remit.cli._bench import SolveOptions
from remit.cli._solve_tasks import lay_out, load_tasks


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_reference_solutions_are_solved_and_nothing_is_left(tmp_path: Path) -> None:
    """Rows and sums as JSON; the user's data, settings and folders stay as they were."""
    line = CommandLine.make(tmp_path)
    (line.folder / "tmp").mkdir()
    (line.folder / "home" / "config" / "remit" / "remit.toml").write_text("not toml at all = =")
    tasks = ("--task", "python-log-report", "--task", "config-services")
    done = line.run("bench", "solve", "--scripted", "--json", *tasks, TMPDIR=str(line.folder / "tmp"))
    assert done.returncode == 0, done.stdout + done.stderr
    *rows, summary = records(done.stdout)
    assert [(row["kind"], row["task"], row["status"]) for row in rows] == [
        ("task", "config-services", "solved"),
        ("task", "python-log-report", "solved"),
    ]
    assert all(row["attempts"] == 4 and row["cost_usd"] == 0 and row["total_tokens"] > 0 for row in rows)
    assert (summary["solved"], summary["run"], summary["solved_percent"]) == (2, 2, 100.0)
    assert summary["attempts_per_solved"] == 4
    assert summary["minutes_per_solved"] > 0
    assert not list((line.folder / "tmp").glob("remit-solve-*"))
    assert not (line.folder / "data").exists()
    assert "2/2 python-log-report: solved" in done.stderr


def test_a_wrong_solution_is_not_solved_and_an_absent_tool_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that completes, passes its review and claims success isn't solved by that."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    right, wrong, absent = load_tasks(("config-services", "python-slugs", "sql-migration"))
    absent = absent.model_copy(update={"needs": ("no-such-program-at-all",)})
    monkeypatch.setattr(_solving, "load_tasks", lambda names: (right, wrong, absent))
    options = SolveOptions(scripted=True, profile="direct")
    assert _solving.solve_tasks(options, wrong={"python-slugs"}) == 1
    shown = capsys.readouterr().out
    assert "not solved: the hidden check fails" in shown
    assert "not run: not installed: no-such-program-at-all" in shown
    assert "solved 1 of 2 (50 %)" in shown
    assert "not run, not counted: sql-migration" in shown
    assert not list(tmp_path.glob("remit-solve-*"))


def test_a_run_that_fails_is_not_solved(tmp_path: Path) -> None:
    """With a configured model: what a failed run left behind isn't looked at, and its cost counts."""
    line = CommandLine.make(tmp_path)
    line.use(
        {"stage": "plan", "json": {"plan": "p"}},
        {"stage": "plan", "json": {}},
        {"stage": "plan", "text": "x"},
    )
    done = line.run("bench", "solve", "--task", "python-slugs", "--json")
    assert done.returncode == 0, done.stdout + done.stderr  # it was measured, and that is the result
    row, summary = records(done.stdout)
    assert row["status"] == "not_solved"
    assert "invalid_output" in row["reason"]
    assert row["attempts"] == 3
    assert (summary["solved"], summary["solved_percent"], summary["usd_per_solved"]) == (0, 0.0, None)


def test_wrong_use_is_said_before_anything_is_run(tmp_path: Path) -> None:
    """Names and options that can't be are refused with what to do."""
    line = CommandLine.make(tmp_path)
    unknown = line.run("bench", "solve", "--task", "nope")
    assert unknown.returncode == 2, unknown.stderr
    assert "--list" in unknown.stderr
    both = line.run("bench", "solve", "--scripted", "--model", "a:b")
    assert both.returncode == 2
    listed = line.run("bench", "solve", "--list")
    assert listed.returncode == 0
    assert len(listed.stdout.splitlines()) == 20


@pytest.mark.skipif(os.name != "posix", reason="links need a POSIX system")
def test_a_link_in_a_result_leads_hidden_files_nowhere(tmp_path: Path) -> None:
    """What the check needs is written into the result's own folder, whatever a model put in its way."""
    outside, result = tmp_path / "outside", tmp_path / "result"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (result / "deep").mkdir(parents=True)
    (result / "tests").symlink_to(outside)
    (result / "hidden.py").symlink_to(outside / "file")
    (result / "a").write_text("a file where a folder is to be")
    lay_out({"tests/hidden.rs": "1", "hidden.py": "2", "a/b": "3", "deep": "4"}, result)
    assert sorted(path.name for path in outside.iterdir()) == ["file"]
    assert (outside / "file").read_text() == "mine"
    assert [(result / name).read_text() for name in ("tests/hidden.rs", "hidden.py", "a/b", "deep")] == list(
        "1234"
    )
