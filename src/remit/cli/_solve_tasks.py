"""The bundled tasks: small repositories with a request, checks that aren't in them, a reference solution."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field

from remit.contract import Model
from remit.errors import NotFound


class SolveTask(Model):
    """One task, as its file in `solve/data` holds it."""

    name: str
    language: str
    request: str
    needs: tuple[str, ...] = ()
    """Programs without which it isn't run."""
    check: str
    """A command line; with exit code 0 the task is solved."""
    files: dict[str, str]
    """The repository: path to content."""
    hidden: dict[str, str] = Field(default_factory=dict)
    """What the check needs. It is laid over the result, whatever the model wrote in its place."""
    solution: dict[str, str]
    """Files of the reference solution, whole."""


def load_tasks(names: Sequence[str] = ()) -> tuple[SolveTask, ...]:
    """The tasks of these names, or all, in the order of their names.

    Raises:
        NotFound: There is no task of a name.
    """
    folder = files("remit.cli") / "solve" / "data"
    known = {
        path.name.removesuffix(".toml"): path for path in folder.iterdir() if path.name.endswith(".toml")
    }
    for name in names:
        if name not in known:
            raise NotFound(f"there is no task `{name}`; `remit bench solve --list` lists them", param="task")
    chosen = sorted(set(names) or known)
    return tuple(
        SolveTask.model_validate({"name": name, **tomllib.loads(known[name].read_text(encoding="utf-8"))})
        for name in chosen
    )


def lay_out(content: Mapping[str, str], folder: Path) -> None:
    """Write files into a folder; those with a first line `#!` may be executed.

    What stands in their way is removed, a link above all: a model may have made one that leads elsewhere.
    """
    for name, text in content.items():
        path = folder / name
        _make_way(path, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        path.chmod(0o755 if text.startswith("#!") else 0o644)


def _make_way(path: Path, folder: Path) -> None:
    """Leave nothing but folders between a folder and a file in it, and nothing at the file's own place."""
    for place in (*reversed([parent for parent in path.parents if parent.is_relative_to(folder)][:-1]), path):
        if place.is_symlink() or place.is_file() or (place.exists() and not place.is_dir()):
            place.unlink()
    if path.is_dir():
        shutil.rmtree(path)


def write_script(task: SolveTask, path: Path, *, wrong: bool = False) -> None:
    """A script for the scripted model that hands in the reference solution, or does nothing of use.

    Args:
        task: The task.
        path: Where the script goes.
        wrong: Leave the task unsolved, and claim the contrary.
    """
    written = {"NOTES.txt": "Looked at it.\n"} if wrong else task.solution
    calls = [
        {"name": "write_file", "arguments": {"relative_path": name, "content": text}}
        for name, text in written.items()
    ]
    done = {"completion": "Did what was asked.", "verification": "Read it again."}
    verdict = {"decision": "pass", "output": "It is done.", "summary": "Does what was asked."}
    replies: list[dict[str, Any]] = [
        {"stage": "plan", "json": {"plan": "Change the files.", "verification": "Run the checks."}},
        {"stage": "work", "tool_calls": calls},
        {"stage": "work", "json": done},
        {"stage": "review", "json": verdict},
    ]
    path.write_text(json.dumps(replies), encoding="utf-8")
