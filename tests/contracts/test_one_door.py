"""The Makefile and what it stands on: every entry is there, and the environment is made once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import bootstrap

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = {"help", "demo", "run", "test", "lint", "types", "check", "bench", "docs"}


def make(*arguments: str, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    """Call make as on a machine where nothing is set."""
    return subprocess.run(
        ["make", *arguments],
        cwd=ROOT,
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_help_shows_every_entry() -> None:
    """`make` alone lists what can be called, and needs nothing for it."""
    answer = make()
    listed = set(re.findall(r"^  make (\w+) ", answer.stdout, flags=re.MULTILINE))
    assert listed >= ENTRIES
    assert answer.stderr == ""


def test_an_old_python_is_told_apart(tmp_path: Path) -> None:
    """Where no Python is new enough the target says so, exits with an error and makes nothing."""
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        fake = tmp_path / name
        fake.write_text("#!/bin/sh\nexit 1\n")
        fake.chmod(0o755)
    answer = make("environment-run", path=f"{tmp_path}:/usr/bin:/bin")
    assert answer.returncode == 2
    assert "remit needs Python 3.11 or newer" in answer.stderr


def test_the_bootstrap_refuses_wrong_use() -> None:
    """An unknown lock is no reason to install anything."""
    assert bootstrap.main([]) == 2
    assert bootstrap.main(["everything"]) == 2


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """A folder with locks, and what would be installed into it."""
    calls: list[tuple[str, ...]] = []
    requirements = tmp_path / "requirements"
    requirements.mkdir()
    for name in ("uv.txt", "run.txt", "dev.txt"):
        (requirements / name).write_text(name)
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "REQUIREMENTS", requirements)
    monkeypatch.setattr(bootstrap, "_install_uv", lambda: None)
    monkeypatch.setattr(bootstrap, "_make_environment", lambda: (tmp_path / ".venv").mkdir(exist_ok=True))
    monkeypatch.setattr(bootstrap, "_install", lambda *arguments: calls.append(arguments))
    return calls


def test_what_is_in_place_is_not_installed_again(installed: list[tuple[str, ...]]) -> None:
    """A repeated call does nothing, and the larger lock serves for the smaller one."""
    bootstrap.bring_up("dev")
    assert len(installed) == 2
    bootstrap.bring_up("dev")
    bootstrap.bring_up("run")
    assert len(installed) == 2


def test_the_larger_lock_is_installed_over_the_smaller(installed: list[tuple[str, ...]]) -> None:
    """What runs the program doesn't run the tests."""
    bootstrap.bring_up("run")
    bootstrap.bring_up("dev")
    assert len(installed) == 4


def test_a_changed_lock_is_installed(installed: list[tuple[str, ...]], tmp_path: Path) -> None:
    """The stamp knows the lock's content."""
    bootstrap.bring_up("run")
    (tmp_path / "requirements" / "run.txt").write_text("another")
    bootstrap.bring_up("run")
    assert len(installed) == 4


def test_a_failed_install_is_tried_again(
    installed: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An install that broke in the middle leaves no stamp behind, an older one neither."""
    bootstrap.bring_up("run")
    changed = tmp_path / "requirements" / "run.txt"
    before = changed.read_text()
    changed.write_text("another")
    with monkeypatch.context() as broken:
        broken.setattr(bootstrap, "_install", _fail)
        with pytest.raises(bootstrap.BootstrapError):
            bootstrap.bring_up("run")
    changed.write_text(before)
    bootstrap.bring_up("run")
    assert len(installed) == 4


def _fail(*_: str) -> None:
    raise bootstrap.BootstrapError("no registry")


def test_hashes_are_required(installed: list[tuple[str, ...]]) -> None:
    """Nothing gets in that the lock doesn't vouch for, and the project itself brings nothing along."""
    bootstrap.bring_up("run")
    assert installed[0][0] == "--require-hashes"
    assert {"--no-deps", "--no-build-isolation"} <= set(installed[1])


def test_ci_calls_only_the_door() -> None:
    """`.ci/run` is bash that parses, and calls make for all that counts."""
    script = ROOT / ".ci" / "run"
    subprocess.run(["bash", "-n", str(script)], check=True)
    text = script.read_text()
    assert "set -euo pipefail" in text
    assert {"make check", "make test"} <= set(re.findall(r"make (?:check|test)", text))
    assert "pytest" not in text.replace("pytest's", "")


def test_an_unknown_measurement_is_refused() -> None:
    """`make bench` says what there is, instead of measuring nothing in silence."""
    command = [sys.executable, "-m", "bench", "no-such-thing"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 2
    assert "there are: " in answer.stderr


def test_each_measurement_can_be_run() -> None:
    """Every `bench_NAME.py` has the `main` that the door calls."""
    modules = sorted((ROOT / "bench").glob("bench_*.py"))
    assert modules
    assert [path.name for path in modules if "def main()" not in path.read_text()] == []
