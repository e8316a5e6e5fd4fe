"""The examples of the how-to pages do what they say."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_kit import CommandLine
from host_kit import make_config
from remit.contract import RunView

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"
PAGES = ("deliver.md", "continue.md", "checks.md")
_EXAMPLE = re.compile(r"<!-- example -->\n```\n(.*?)\n```", re.DOTALL)
EXAMPLES = [(page, text) for page in PAGES for text in _EXAMPLE.findall((HOW_TO / page).read_text())]


@pytest.mark.parametrize(("page", "text"), EXAMPLES)
def test_an_example_does_what_it_says(tmp_path: Path, page: str, text: str) -> None:
    """Each command ends as the page says (`# exit N`, else 0), and its output holds the lines below it."""
    line = CommandLine.make(tmp_path)
    program = tmp_path / "bin" / "remit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m remit.cli "$@"\n')
    program.chmod(0o755)
    # The pages' project has pytest, which the machine's own Python need not.
    first = (str(program.parent), str(Path(sys.executable).parent), line.environment["PATH"])
    line.environment["PATH"] = os.pathsep.join(first)
    run_id = "RUN"
    for command, wanted in _steps(text):
        typed, _, code = command.partition("    # exit ")
        done = subprocess.run(
            ["/bin/sh", "-c", typed.replace("RUN", run_id)],
            cwd=line.repository,
            env=line.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        said = done.stdout + done.stderr
        assert done.returncode == int(code or 0), (command, said)
        if typed.startswith(("remit run", "remit continue")) and "--dry-run" not in typed:
            run_id = line.newest()["id"]
        for expected in wanted:
            assert expected.replace("RUN", run_id) in said, (command, said)


def _steps(text: str) -> list[tuple[str, list[str]]]:
    steps: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        if line.startswith("$ "):
            steps.append((line[2:], []))
        else:
            steps[-1][1].append(line.strip())
    return steps


async def test_the_approval_example(tmp_path: Path) -> None:
    """The Python example of the page waits for approval, gives it, and the work is applied."""
    text = (HOW_TO / "deliver.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)\n```", text, re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile(code, "deliver.md", "exec"), found)
    config = make_config(tmp_path, pools={"default": {"members": [{"model": "demo:model"}]}})
    async with asyncio.timeout(60):
        view: RunView = await found["run_with_approval"](config, "change")
    assert view.delivery is not None
    assert (view.delivery.mode, view.delivery.status) == ("apply", "delivered")


def test_each_page_has_examples() -> None:
    """No page loses its examples, and each is in the list of pages."""
    listed = (HOW_TO / "README.md").read_text()
    for page in PAGES:
        assert any(name == page for name, _ in EXAMPLES)
        assert f"({page})" in listed
