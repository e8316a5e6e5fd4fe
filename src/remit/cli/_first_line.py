"""The first line of a run: what was chosen for it, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from remit.cli._formats import exit_words
from remit.cli._place import Place, models_of
from remit.cli._story import Story
from remit.cli._words import one_line
from remit.contract import CheckState, RunPrepared, RunRequest


@dataclass(frozen=True, slots=True)
class Line:
    """A line and how it looks."""

    text: str
    style: str = ""


def first_lines(place: Place, request: RunRequest, story: Story) -> Iterator[Line]:
    """Workspace, model, sandbox, isolation, checks; then what the user should know."""
    prepared = story.prepared
    models = ", ".join(models_of(place.config, request))
    if prepared is None:
        yield Line(f"{models}, no workspace")
        return
    parts = [_folder(place), models, _confinement(prepared), _checks(prepared.checks)]
    yield Line("; ".join(parts), "bold")
    for note in (*place.notes, *prepared.notes):
        yield Line(f"  {one_line(note, width=400)}", "dim")
    if story.text_replaced:
        yield Line(
            f"  {story.text_replaced} characters of the request can't be stored and were replaced", "dim"
        )


def _folder(place: Place) -> str:
    where = str(place.workspace.root)
    return f"{where} (in {place.subdir})" if place.subdir else where


def _confinement(prepared: RunPrepared) -> str:
    sandbox = prepared.workspace.sandbox
    confined = "NO SANDBOX" if sandbox == "none" else f"sandbox {sandbox}"
    return f"{confined} on {_ISOLATIONS.get(str(prepared.workspace.isolation), prepared.workspace.isolation)}"


_ISOLATIONS = {"overlay": "an overlay", "copy": "a copy", "in_place": "YOUR FILES"}


def _checks(checks: tuple[CheckState, ...]) -> str:
    if not checks:
        return "no checks found"
    return "checks: " + ", ".join(_check(check) for check in checks)


def _check(check: CheckState) -> str:
    if check.problem is not None:
        state = f"can't run: {one_line(check.problem, width=120)}"
    elif check.base_exit == 0:
        state = "passes"
    else:
        state = f"fails now, {exit_words(check.base_exit)}"
    return f"{one_line(check.id, width=40)} ({one_line(check.why, width=80)}): {state}"
