"""The walls of the house, and that the check of them can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the sources with the real contracts, to be broken."""
    shutil.copytree(ROOT / "src" / "remit", tmp_path / "remit", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    return tmp_path


def check(folder: Path) -> tuple[int, str]:
    """Run the layers check on the copy, which stands before the installed package."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo"]
    environment = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"}
    answer = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    return answer.returncode, answer.stdout + answer.stderr


def test_the_layers_hold(copy: Path) -> None:
    """Upper rooms may import lower ones, never the reverse."""
    code, output = check(copy)
    assert code == 0, output


def test_a_room_that_nobody_planned_fails(copy: Path) -> None:
    """The contract is exhaustive: a new top-level module must be given its place first."""
    (copy / "remit" / "utils.py").write_text('"""Whatever."""\n')
    code, output = check(copy)
    assert code != 0
    assert "utils" in output


def test_an_import_upwards_fails(copy: Path) -> None:
    """The lowest room may not know of a higher one."""
    with (copy / "remit" / "errors.py").open("a") as file:
        file.write("\nimport remit.contract\n")
    code, output = check(copy)
    assert code != 0
    assert "remit.errors" in output
