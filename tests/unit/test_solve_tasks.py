"""The bundled tasks are whole, and sums say only what is known."""

from __future__ import annotations

from typing import Any

import pytest

from remit.cli._solve_tasks import SolveTask, load_tasks
from remit.cli._solving import Solved, summarise

TASKS = load_tasks()


def test_there_are_twenty_in_several_languages() -> None:
    """Small tasks in the languages that people ask about."""
    assert len(TASKS) == 20
    assert len({task.language for task in TASKS}) >= 8


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_is_whole(task: SolveTask) -> None:
    """A repository, a request, a check that isn't in it, and a solution that changes something."""
    assert task.request.strip()
    assert task.needs
    assert task.files
    assert task.hidden
    assert not set(task.hidden) & set(task.files)
    assert not set(task.hidden) & set(task.solution)
    assert any(task.files.get(name) != text for name, text in task.solution.items())
    for name in (*task.files, *task.hidden, *task.solution):
        assert not name.startswith("/")
        assert ".." not in name.split("/")
    assert not any(name in task.request for name in task.hidden)


def solved(**fields: Any) -> Solved:
    values: dict[str, Any] = {
        "task": "t",
        "language": "C",
        "status": "solved",
        "attempts": 4,
        "total_tokens": 100,
        "cost_usd": 0.5,
        "run_ms": 60_000,
    }
    return Solved(**(values | fields))


def test_sums_are_over_what_was_run_and_per_solved_task() -> None:
    """What an unsolved task cost is part of the price of the solved ones; what never ran counts nowhere."""
    got = summarise(
        [solved(), solved(status="not_solved"), Solved(task="g", language="Go", status="not_run")]
    )
    assert (got["tasks"], got["run"], got["solved"], got["not_run"]) == (3, 2, 1, ["g"])
    assert got["solved_percent"] == 50.0
    assert (got["attempts_per_solved"], got["tokens_per_solved"]) == (8, 200)
    assert (got["usd_per_solved"], got["minutes_per_solved"]) == (1.0, 2.0)


def test_an_unknown_cost_makes_the_sum_unknown() -> None:
    """R23: what isn't known is null, never 0; without a solved task there is no price of one."""
    assert summarise([solved(), solved(cost_usd=None)])["usd_per_solved"] is None
    assert summarise([solved(status="not_solved")])["tokens_per_solved"] is None
    assert summarise([])["solved_percent"] is None
