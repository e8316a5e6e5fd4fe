"""What a user installs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_string
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_the_whole_package(wheel: zipfile.ZipFile) -> None:
    """Every source file is in it: code, prompts and other data, and the mark of typed code."""
    inside = {name for name in wheel.namelist() if name.startswith("remit/")}
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "remit").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert inside == source
    assert "remit/py.typed" in inside


def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    """Neither tests nor tools are installed."""
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"remit"}


def test_the_wheel_tells_what_it_is(wheel: zipfile.ZipFile) -> None:
    """Name, licence and Python floor are in its description; the licence's text is in it."""
    (name,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
    said = message_from_string(wheel.read(name).decode())
    assert (said["Name"], said["License-Expression"], said["Requires-Python"]) == (
        "remit",
        "Apache-2.0",
        ">=3.11",
    )
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_the_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    """`remit` is the one command."""
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert wheel.read(name).decode().split() == ["[console_scripts]", "remit", "=", "remit.cli:main"]


def test_the_command_is_there() -> None:
    """The entry point leads to something that can be called."""
    (entry,) = entry_points(group="console_scripts", name="remit")
    assert callable(entry.load())
