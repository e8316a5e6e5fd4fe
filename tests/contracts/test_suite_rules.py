"""What `tests/conftest.py` does to every test, tried on a small suite of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SUITE = '''
import os
import pytest

def test_one():
    """Runs."""

def test_two():
    """Is skipped."""
    pytest.skip("no such thing here")

@pytest.mark.nightly
def test_three():
    """Is for the night."""
    raise AssertionError("nightly")

def test_four():
    """Sees nothing of the user's."""
    assert not [name for name in os.environ if name.endswith("_API_KEY") or name.startswith("REMIT_")]
    assert not os.environ["XDG_DATA_HOME"].startswith("/srv/mine")

async def test_five():
    """Runs in a loop."""
'''


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder with this repository's pytest settings and the small suite."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    (tmp_path / "tests" / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "tests" / "test_small.py").write_text(SUITE)
    return tmp_path


def run(suite: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run the small suite in a process of its own."""
    plain = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTEST_ADDOPTS"}}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    answer = subprocess.run(
        command, cwd=suite, env=plain | environment, capture_output=True, text=True, check=False, timeout=100
    )
    return answer.returncode, answer.stdout


def test_a_skip_is_told(suite: Path) -> None:
    """At home a test that lacks something is skipped, with its reason."""
    code, output = run(suite)
    assert code == 0
    assert "no such thing here" in output
    assert "3 passed, 1 skipped, 1 deselected" in output


def test_on_ci_nothing_is_skipped(suite: Path) -> None:
    """With CI=true a skip is a failure."""
    code, output = run(suite, CI="true")
    assert code == 1
    assert "nothing may be skipped here: Skipped: no such thing here" in output


def test_a_module_that_skips_itself_is_a_failure_too(suite: Path) -> None:
    """A module-level skip hides all its tests, so it counts as well."""
    (suite / "tests" / "test_whole.py").write_text('import pytest\npytest.importorskip("no_such_module")\n')
    code, output = run(suite, "--strict-skips")
    assert code != 0
    assert "nothing may be skipped here" in output


def test_the_night_is_asked_for(suite: Path) -> None:
    """Nightly tests run with `-m nightly` alone."""
    code, output = run(suite, "-m", "nightly")
    assert code == 1
    assert "1 failed, 4 deselected" in output


def test_the_users_keys_are_hidden(suite: Path) -> None:
    """No test may spend the user's money or write into the user's data folder."""
    code, output = run(
        suite,
        "-k",
        "four",
        OPENAI_API_KEY="x",
        OTHER_API_KEY="x",
        REMIT_HOME="/srv/mine",
        XDG_DATA_HOME="/srv/mine",
    )
    assert (code, "1 passed" in output) == (0, True)


def test_a_warning_is_an_error(suite: Path) -> None:
    """Warnings are failures, so that they are seen while they are cheap."""
    source = (
        'import warnings\n\ndef test_it():\n    """Warns."""\n    warnings.warn("old", DeprecationWarning)\n'
    )
    (suite / "tests" / "test_small.py").write_text(source)
    code, _ = run(suite)
    assert code == 1
