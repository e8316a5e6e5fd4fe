"""The tutorial on embedding, executed: each program of the page is run, and what it prints is compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "embedding.md"
NAMED = re.compile(r"\bas\s+`([\w./]+)`", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the page, and what the page says it prints."""

    name: str
    prints: str


def read_page() -> tuple[dict[str, str], list[Program]]:
    """The files of the page, and its programs in order."""
    files: dict[str, str] = {}
    programs: list[Program] = []
    last = ""
    pieces = PAGE.read_text().split("```")
    for prose, block in zip(pieces[::2], pieces[1::2], strict=False):
        text = block.partition("\n")[2]
        if prose.rstrip().endswith("It prints:"):
            programs.append(Program(last, text))
        else:
            last = NAMED.findall(prose)[-1]
            files[last] = text
    return files, programs


FILES, PROGRAMS = read_page()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The reader's folder."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def run(folder: Path, name: str) -> str:
    """What a program prints."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    answer = subprocess.run(
        [sys.executable, name],
        cwd=folder,
        env={**kept, "HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_tutorial_is_read_whole() -> None:
    """No block of the page is left out: each is a file, or what the program before it prints."""
    assert len(FILES) + len(PROGRAMS) == PAGE.read_text().count("```") // 2
    programs = [name for name in FILES if re.fullmatch(r"\w+\.py", name)]
    assert [program.name for program in PROGRAMS] == programs


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_tutorial_program(folder: Path, program: Program) -> None:
    """R15: a reader who types it in sees what the page says, and the project is as it was."""
    assert run(folder, program.name) == program.prints
    assert (folder / "shop" / "price.py").read_text() == FILES["shop/price.py"]


@pytest.mark.slow
def test_tutorial_strict_view_settles(folder: Path) -> None:
    """M3: with the line that the page names, the last program's result is settled."""
    settings = folder / "remit.toml"
    more = 'profile = "reviewed"\nallow_models = ["script:*"]'
    settings.write_text(settings.read_text().replace('profile = "reviewed"', more))
    assert run(folder, "strict.py") == "settled None\n"
