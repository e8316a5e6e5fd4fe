"""What `remit bench solve` does: one run a task, one hidden check a run, and the sums."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from remit.cli._asking import limits_from
from remit.cli._bench import SolveOptions
from remit.cli._driving import Driver, Outcome
from remit.cli._formats import duration, end_words, money, tokens
from remit.cli._place import Place, with_model
from remit.cli._progress import logging_to, make_progress
from remit.cli._screen import Results, console_on
from remit.cli._solve_checks import apply_patch, check_result, make_repository
from remit.cli._solve_tasks import SolveTask, load_tasks, write_script
from remit.cli._words import say
from remit.config import load_config
from remit.contract import RunRequest, RunView
from remit.primitives import SystemClock

_SCRIPTED: Final = "script:solve"
_PROFILE: Final = "reviewed"
_STOPPED: Final = frozenset({130, 143})
_MS_A_MINUTE: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """What came of one task."""

    task: str
    language: str
    status: str
    """`solved`, `not_solved`, or `not_run`."""
    reason: str | None = None
    """Why it isn't solved, or wasn't run."""
    attempts: int = 0
    """Provider requests."""
    total_tokens: int | None = None
    """None: not known."""
    cost_usd: float | None = None
    """None: not known."""
    run_ms: int = 0
    """Of the run, without the hidden check."""


def list_tasks() -> int:
    """Name the tasks."""
    console = console_on(sys.stdout)
    for task in load_tasks():
        missing = _missing(task, os.environ.get("PATH"))
        note = f"   (not here: {', '.join(missing)})" if missing else ""
        console.print(Text(f"{task.name:28} {task.language:12}{note}"), soft_wrap=True)
    return 0


def solve_tasks(options: SolveOptions, *, wrong: Collection[str] = ()) -> int:
    """Run the tasks and print what came of them; the exit code.

    Args:
        options: What was typed.
        wrong: With the scripted model, tasks to hand in a wrong solution for: a test of the harness.
    """
    chosen = load_tasks(options.tasks)
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="remit-solve-")))
    results = Results()
    found: list[Solved] = []
    try:
        for number, task in enumerate(chosen, start=1):
            done, code = _solve(task, options, folder / task.name, wrong=task.name in wrong)
            if done is None:
                say(f"stopped at {task.name}; nothing is summed up")
                return code
            found.append(done)
            said = done.status.replace("_", " ") + (f": {done.reason}" if done.reason else "")
            say(f"{number}/{len(chosen)} {task.name}: {said} ({duration(done.run_ms)})")
            if options.as_json:
                results.write_json({"kind": "task", **asdict(done)})
    finally:
        if options.keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    summary = summarise(found)
    if options.as_json:
        results.write_json(
            {"kind": "summary", "model": _named(options), "profile": options.profile or _PROFILE, **summary}
        )
        results.require_written()
    else:
        _print_table(found, summary, title=f"{_named(options)}, profile {options.profile or _PROFILE}")
    return 1 if options.scripted and summary["solved"] < summary["run"] else 0


def _named(options: SolveOptions) -> str:
    return "scripted" if options.scripted else options.model or "default model"


def summarise(found: Sequence[Solved]) -> dict[str, Any]:
    """The sums, over tasks that were run; what isn't known of one of them isn't known of the sum."""
    run = [one for one in found if one.status != "not_run"]
    solved = sum(one.status == "solved" for one in run)

    def per_solved(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return round(sum(known) / solved, 6) if solved and len(known) == len(values) else None

    return {
        "tasks": len(found),
        "run": len(run),
        "solved": solved,
        "not_run": [one.task for one in found if one.status == "not_run"],
        "solved_percent": round(100 * solved / len(run), 1) if run else None,
        "attempts_per_solved": per_solved([one.attempts for one in run]),
        "tokens_per_solved": per_solved([one.total_tokens for one in run]),
        "usd_per_solved": per_solved([one.cost_usd for one in run]),
        "minutes_per_solved": per_solved([one.run_ms / _MS_A_MINUTE for one in run]),
    }


# ---- one task


def _solve(task: SolveTask, options: SolveOptions, folder: Path, *, wrong: bool) -> tuple[Solved | None, int]:
    """What came of it; None and the exit code when a signal stopped it."""
    missing = _missing(task, os.environ.get("PATH"))
    if missing:
        reason = f"not installed: {', '.join(missing)}"
        return Solved(task=task.name, language=task.language, status="not_run", reason=reason), 0
    repository = folder / task.name
    folder.mkdir()
    make_repository(task, repository, environment=os.environ)
    if options.scripted:
        write_script(task, folder / "replies.json", wrong=wrong)
    place = _place(options, repository, folder)
    request = _request(task, options, place)
    place = with_model(place, request)
    began = time.monotonic()
    outcome = _drive(place, request)
    run_ms = int((time.monotonic() - began) * 1000)
    if outcome.view is None or outcome.exit_code in _STOPPED:
        return None, outcome.exit_code or 130
    reason = _why_not(task, outcome, folder, options)
    return _counted(task, outcome.view, run_ms=run_ms, reason=reason), 0


def _missing(task: SolveTask, path: str | None) -> list[str]:
    return [program for program in task.needs if shutil.which(program, path=path) is None]


def _place(options: SolveOptions, repository: Path, folder: Path) -> Place:
    """The task's repository with the user's settings, and a data folder of its own."""
    environment = {**os.environ, "REMIT_HOME": str(folder / "data")}
    script: dict[str, Any] = {}
    if options.scripted:  # whatever the user's own settings are
        environment = {name: value for name, value in environment.items() if "__" not in name}
        environment["XDG_CONFIG_HOME"] = str(folder / "no-settings")
        script = {"providers": {"script": {"kind": "scripted", "script": str(folder / "replies.json")}}}
    config = load_config(
        environment=environment,
        folder=repository,
        repository=repository,
        named=None if options.config_file is None else options.config_file.absolute(),
        overrides=script,
        allow_unconfined=options.allow_unconfined,
    ).as_owner()
    config, workspace = config.with_folder(repository)
    return Place(config=config, workspace=workspace, subdir=None, is_git=True)


def _request(task: SolveTask, options: SolveOptions, place: Place) -> RunRequest:
    body: dict[str, Any] = {
        "prompt": task.request,
        "model": _SCRIPTED if options.scripted else options.model,
        "profile": options.profile,
        "workspace": {"ref": place.workspace.ref},
        "delivery": "patch",
        "preserve": "never",
        "limits": limits_from(max_cost=options.max_cost, timeout=options.timeout),
    }
    return RunRequest.model_validate({key: value for key, value in body.items() if value is not None})


def _drive(place: Place, request: RunRequest) -> Outcome:
    progress = make_progress(sys.stderr, clock=SystemClock(), quiet=True)
    with logging_to(progress), progress:
        return asyncio.run(Driver(place, request, progress=progress).drive())


def _why_not(task: SolveTask, outcome: Outcome, folder: Path, options: SolveOptions) -> str | None:
    """Why the task isn't solved; None: it is."""
    view = outcome.view
    assert view is not None, "there was a run"
    if view.terminal is None or view.terminal.kind != "completed":
        return f"the run ended: {end_words(view.terminal)}" if view.terminal else "the run has no end"
    result = folder / "result"
    make_repository(task, result, environment=os.environ)
    refused = apply_patch(outcome.patch, result, environment=os.environ)
    if refused is not None:
        return f"the patch doesn't apply: {refused}"
    verdict = asyncio.run(
        check_result(
            task,
            result,
            data=folder / "check-data",
            environment=os.environ,
            unconfined=options.allow_unconfined,
        )
    )
    if options.keep:
        (folder / "check.txt").write_text(verdict.said, encoding="utf-8")
    return None if verdict.solved else "the hidden check fails"


def _counted(task: SolveTask, view: RunView, *, run_ms: int, reason: str | None) -> Solved:
    usage = view.usage
    return Solved(
        task=task.name,
        language=task.language,
        status="solved" if reason is None else "not_solved",
        reason=reason,
        attempts=usage.coverage.attempts if usage else 0,
        total_tokens=usage.total_tokens if usage else None,
        cost_usd=None if view.cost_usd is None else float(view.cost_usd),
        run_ms=run_ms,
    )


# ---- what is shown


def _print_table(found: Sequence[Solved], summary: dict[str, Any], *, title: str) -> None:
    console = console_on(sys.stdout)
    console.print(Text(title, style="bold"), soft_wrap=True)
    for line in _lines([("task", "language", "", "attempts", "tokens", "cost", "time"), *map(_cells, found)]):
        console.print(Text(line), soft_wrap=True)
    percent = summary["solved_percent"]
    share = "" if percent is None else f" ({percent:g} %)"
    console.print(
        Text(f"solved {summary['solved']} of {summary['run']}{share}", style="bold"), soft_wrap=True
    )
    if summary["not_run"]:
        console.print(Text(f"not run, not counted: {', '.join(summary['not_run'])}"), soft_wrap=True)
    if summary["solved"]:
        minutes = summary["minutes_per_solved"]
        whole = summary["tokens_per_solved"]
        line = (
            f"per solved task: {summary['attempts_per_solved']:.1f} attempts, "
            f"{tokens(None if whole is None else round(whole))} tokens, {money(summary['usd_per_solved'])}, "
            f"{minutes:.2f} min"
        )
        console.print(Text(line), soft_wrap=True)


def _cells(one: Solved) -> tuple[str, ...]:
    if one.status == "not_run":
        return (one.task, one.language, f"not run: {one.reason}", "", "", "", "")
    status = "solved" if one.reason is None else f"not solved: {one.reason}"
    spent = money(one.cost_usd)
    return (
        one.task,
        one.language,
        status,
        str(one.attempts),
        tokens(one.total_tokens),
        spent,
        duration(one.run_ms),
    )


def _lines(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The rows in columns; numbers to the right."""
    cut = [tuple(cell if len(cell) <= 48 else f"{cell[:47]}…" for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in cut) for column in range(len(cut[0]))]
    for row in cut:
        cells = (
            cell.ljust(width) if column < 3 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
